// Command redislock checks bsm/redislock over go-redis.
package main

import (
	"context"
	"errors"
	"fmt"
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

// own has the checks of what only redislock offers.
type own struct{ stage stage.Stage }

func (o own) run(to *report.Report, subject string) {
	to.Check(subject, "TTL returns what is left of an owner's lock, and 0 for a lost one", o.ttl)
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
		return fmt.Errorf("TTL returned %v of %v", left, checks.Long)
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
	return checks.Waits(
		func() error { return lock.Release(ctx) },
		func(refused func()) error {
			_, err := o.client().Obtain(ctx, key, checks.Long, &redislock.Options{RetryStrategy: backoff(refused)})
			return err
		},
	)
}

// backoff is called after each refusal.
type backoff func()

func (b backoff) NextBackoff() time.Duration {
	b()
	return 10 * time.Millisecond
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
	checks.Main(checks.Library{
		Name:        "bsm/redislock",
		Module:      "github.com/bsm/redislock",
		Connect:     func(address string, protocol int) checks.Client { return connect(address, protocol) },
		TakesItsOwn: true,
		Own:         func(on stage.Stage, to *report.Report, subject string) { own{on}.run(to, subject) },
	})
}
