// Bench measures what the client costs beside raw gRPC, both in turns over one connection, and
// how long a forced unlock takes to cancel the work.
//
//	LEASEHOLD=… LEASEHOLD_TEST_SIDECAR=… go run ./internal/bench [memory|redis|etcd]
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasehold/leasehold/clients/go"
	"github.com/leasehold/leasehold/clients/go/internal/pb"
	"github.com/leasehold/leasehold/clients/go/internal/stage"
)

const (
	warmUp = 200
	rounds = 3000
	losses = 50
)

func main() {
	backend := "memory"
	if len(os.Args) > 1 {
		backend = os.Args[1]
	}
	if err := run(context.Background(), backend); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, backend string) error {
	s, err := stage.Start(backend)
	if err != nil {
		return err
	}
	defer s.Close()
	conn, err := grpc.NewClient(s.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	locks, err := leasehold.New(stage.Store, leasehold.WithConn(conn))
	if err != nil {
		return err
	}
	var client, raw, cancellation []time.Duration
	for i := range warmUp + rounds {
		took, err := timed(func() error { return throughClient(ctx, locks) })
		if err != nil {
			return err
		}
		tookRaw, err := timed(func() error { return throughGRPC(ctx, conn) })
		if err != nil {
			return err
		}
		if i >= warmUp {
			client, raw = append(client, took), append(raw, tookRaw)
		}
	}
	for range losses {
		took, err := timeToCancel(ctx, s, locks)
		if err != nil {
			return err
		}
		cancellation = append(cancellation, took)
	}
	fmt.Printf("%s: lock and unlock, median of %d: client %v, raw gRPC %v, ratio %.2f\n", backend, rounds,
		median(client), median(raw), float64(median(client))/float64(median(raw)))
	fmt.Printf("%s: from the call of a forced unlock to the end of the context, median of %d: %v\n",
		backend, losses, median(cancellation))
	return nil
}

func timed(call func() error) (time.Duration, error) {
	began := time.Now()
	err := call()
	return time.Since(began), err
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2].Round(100 * time.Nanosecond)
}

func throughClient(ctx context.Context, locks *leasehold.Locks) error {
	lock, err := locks.Lock(ctx, "bench-client")
	if err != nil {
		return err
	}
	return lock.Unlock()
}

func throughGRPC(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	description := &grpc.StreamDesc{StreamName: "LockStream", ServerStreams: true}
	stream, err := conn.NewStream(ctx, description, "/leasehold.v1.Locks/LockStream")
	if err != nil {
		return err
	}
	request := &pb.LockRequest{StoreName: stage.Store, ResourceId: "bench-raw"}
	if err := errors.Join(stream.SendMsg(request), stream.CloseSend()); err != nil {
		return err
	}
	message := &pb.LockServerStream{}
	if err := stream.RecvMsg(message); err != nil {
		return err
	}
	unlock := &pb.UnlockRequest{
		StoreName: stage.Store, ResourceId: "bench-raw", LockId: message.GetLockAcquired().GetLockId(),
	}
	return conn.Invoke(ctx, "/leasehold.v1.Locks/Unlock", unlock, &pb.UnlockResponse{})
}

func timeToCancel(ctx context.Context, s *stage.Stage, locks *leasehold.Locks) (took time.Duration, err error) {
	err = locks.Do(ctx, "bench-loss", func(ctx context.Context, lock *leasehold.Lock) error {
		ended := make(chan time.Time, 1)
		go func() {
			<-ctx.Done()
			ended <- time.Now()
		}()
		began := time.Now()
		if err := s.Force(lock.Resource()); err != nil {
			return err
		}
		took = (<-ended).Sub(began)
		return ctx.Err()
	})
	if errors.Is(err, leasehold.ErrLockLost) {
		return took, nil
	}
	return 0, fmt.Errorf("the lock was not lost: %w", err)
}
