// Command redislock checks bsm/redislock over go-redis.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"leasehold/conformance/redis-front/internal/checks"
	"leasehold/conformance/redis-front/internal/report"
	"leasehold/conformance/redis-front/internal/stage"
)

type client struct {
	redis *redis.Client
	locks *redislock.Client
}

func connect(address string, protocol int) client {
	connection := checks.NewRedis(address, protocol)
	return client{connection, redislock.New(connection)}
}

func (c client) Take(key string, ttl time.Duration) (checks.Held, error) {
	lock, err := c.locks.Obtain(context.Background(), key, ttl, nil)
	if err != nil {
		return nil, refusal(err)
	}
	return held{lock}, nil
}

func (c client) PTTL(key string) (time.Duration, error) { return checks.PTTL(c.redis, key) }

type held struct{ lock *redislock.Lock }

func (h held) Extend(ttl time.Duration) error {
	return refusal(h.lock.Refresh(context.Background(), ttl, nil))
}

func (h held) Release() error { return refusal(h.lock.Release(context.Background())) }

func refusal(err error) error {
	if errors.Is(err, redislock.ErrNotObtained) || errors.Is(err, redislock.ErrLockNotHeld) {
		return fmt.Errorf("%w: %w", checks.ErrRefused, err)
	}
	return err
}

// own has what only redislock has.
type own struct{ stage stage.Stage }

func (o own) run(to *report.Report, subject string) {
	to.Check(subject, "TTL tells what is left of an owner's lock, and 0 of a lost one", o.ttl)
	to.Check(subject, "the same token obtains its own lock again", o.sameToken)
	to.Check(subject, "a retry strategy waits until the holder releases", o.waits)
	to.Check(subject, "a lock with metadata is extended and released", o.metadata)
	o.runMulti(to, subject)
}

func (o own) client() *redislock.Client { return connect(o.stage.Direct, 3).locks }

func (o own) ttl() error {
	ctx := context.Background()
	lock, err := o.client().Obtain(ctx, stage.FreshKey("ttl"), checks.Long, nil)
	if err != nil {
		return err
	}
	left, err := lock.TTL(ctx)
	if err != nil {
		return err
	}
	if left <= 30*time.Second || left > 62*time.Second {
		return fmt.Errorf("TTL tells %v of %v", left, checks.Long)
	}
	if err := lock.Release(ctx); err != nil {
		return err
	}
	left, err = lock.TTL(ctx)
	if err != nil {
		return err
	}
	return report.Expect("the TTL of a lost lock", left, 0)
}

func (o own) sameToken() error {
	ctx, key := context.Background(), stage.FreshKey("token")
	lock, err := o.client().Obtain(ctx, key, checks.Long, nil)
	if err != nil {
		return err
	}
	again, err := o.client().Obtain(ctx, key, checks.Long, &redislock.Options{Token: lock.Token()})
	if err != nil {
		return err
	}
	return again.Release(ctx)
}

func (o own) waits() error {
	ctx, key := context.Background(), stage.FreshKey("waits")
	lock, err := o.client().Obtain(ctx, key, checks.Long, nil)
	if err != nil {
		return err
	}
	refused := make(chan struct{})
	granted := make(chan error, 1)
	go func() {
		_, err := o.client().Obtain(ctx, key, checks.Long, &redislock.Options{
			RetryStrategy: &announced{strategy: redislock.LinearBackoff(10 * time.Millisecond), first: refused},
		})
		granted <- err
	}()
	select {
	case <-refused:
	case err := <-granted:
		return fmt.Errorf("the waiter was answered at once: %w", err)
	}
	if err := lock.Release(ctx); err != nil {
		return err
	}
	return <-granted
}

// announced closes first when it is asked for the first delay, after a first refusal.
type announced struct {
	strategy redislock.RetryStrategy
	first    chan struct{}
	once     sync.Once
}

func (a *announced) NextBackoff() time.Duration {
	a.once.Do(func() { close(a.first) })
	return a.strategy.NextBackoff()
}

func (o own) metadata() error {
	ctx, key := context.Background(), stage.FreshKey("metadata")
	lock, err := o.client().Obtain(ctx, key, checks.Long, &redislock.Options{Metadata: "a note"})
	if err != nil {
		return err
	}
	return report.InOrder(
		func() error { return lock.Refresh(ctx, checks.Long, nil) },
		func() error { return lock.Release(ctx) },
	)
}

func main() {
	on, err := stage.FromEnvironment()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(64)
	}
	to := &report.Report{}
	name := "bsm/redislock " + stage.Version("github.com/bsm/redislock")
	var group sync.WaitGroup
	for _, protocol := range []int{2, 3} {
		group.Go(func() {
			checks.Run(to, on, checks.Library{
				Name:    fmt.Sprintf("%s RESP%d", name, protocol),
				Connect: func(address string) checks.Client { return connect(address, protocol) },

				TakesItsOwn: true,
			})
		})
	}
	group.Go(func() { own{on}.run(to, name+" on "+on.Backend) })
	group.Wait()
	os.Exit(to.Close())
}
