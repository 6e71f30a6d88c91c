// Leader takes part in the election of a leader: the holder of the lock leads, all others wait.
// Start it twice with different names, and end the first: the second takes over.
//
//	DAPR_GRPC_PORT=50001 go run ./examples/leader first
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
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: leader NAME")
		os.Exit(64)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	locks, err := leasehold.New("lockstore")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer func() { _ = locks.Close() }()
	campaign(ctx, locks, os.Args[1])
}

// campaign leads whenever it can, until ctx ends.
func campaign(ctx context.Context, locks *leasehold.Locks, name string) {
	for ctx.Err() == nil {
		err := locks.Do(ctx, "leader", func(ctx context.Context, lock *leasehold.Lock) error {
			return lead(ctx, name, lock.Token())
		}, leasehold.Label(name), leasehold.TTL(5*time.Second))
		if ctx.Err() != nil {
			return
		}
		// The leadership or the sidecar was lost. Others may lead now: get in line again.
		if errors.Is(err, leasehold.ErrLockLost) {
			fmt.Println(name, "is no longer the leader:", err)
		} else if err != nil {
			fmt.Println(name, "cannot take part:", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// lead does what only the leader may do, until it is no longer the leader.
func lead(ctx context.Context, name string, token int64) error {
	fmt.Printf("%s leads with the token %d\n", name, token)
	<-ctx.Done()
	return ctx.Err()
}
