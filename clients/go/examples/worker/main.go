// Worker charges orders one after another under a lock, and stops in the middle when it loses
// the lock. It ends with the code 3 then.
//
//	DAPR_GRPC_PORT=50001 go run ./examples/worker
//
// End its lock by force from another terminal:
//
//	curl -X DELETE -d '{"force":true}' http://127.0.0.1:3500/v1.0-alpha2/lock/lockstore/invoices
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/leasehold/leasehold/clients/go"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := run(ctx)
	if err == nil {
		return
	}
	var lost *leasehold.Error
	if errors.Is(err, leasehold.ErrLockLost) && errors.As(err, &lost) {
		fmt.Println("stopped, because the lock is lost:", lost.Cause)
		os.Exit(3)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func run(ctx context.Context) error {
	locks, err := leasehold.New("lockstore")
	if err != nil {
		return err
	}
	defer func() { _ = locks.Close() }()
	return locks.Do(ctx, "invoices", func(ctx context.Context, lock *leasehold.Lock) error {
		for order := 1; order <= 1000; order++ {
			if err := charge(ctx, order, lock.Token()); err != nil {
				return err
			}
		}
		return nil
	}, leasehold.Wait(10*time.Second), leasehold.TTL(10*time.Second), leasehold.Label("invoice run"))
}

// charge stands for a call that takes a while, and that its context can end.
func charge(ctx context.Context, order int, token int64) error {
	select {
	case <-time.After(50 * time.Millisecond):
		fmt.Printf("charged order %d with the token %d\n", order, token)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
