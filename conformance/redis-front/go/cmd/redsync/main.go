// Command redsync checks redsync's mutex over go-redis.
package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"leasehold/conformance/redis-front/internal/checks"
	"leasehold/conformance/redis-front/internal/report"
	"leasehold/conformance/redis-front/internal/stage"
)

type client struct {
	redis *redis.Client
	locks *redsync.Redsync
}

func connect(address string, protocol int) client {
	connection := checks.NewRedis(address, protocol)
	return client{connection, redsync.New(goredis.NewPool(connection))}
}

func (c client) Take(key string, ttl time.Duration) (checks.Held, error) {
	// By default redsync waits for an answer no longer than a twentieth of the TTL.
	mutex := c.locks.NewMutex(key, redsync.WithExpiry(ttl), redsync.WithTimeoutFactor(0.5))
	if err := mutex.TryLock(); err != nil {
		return nil, refusal(err)
	}
	return held{c, mutex}, nil
}

func (c client) PTTL(key string) (time.Duration, error) { return checks.PTTL(c.redis, key) }

type held struct {
	client client
	mutex  *redsync.Mutex
}

// A mutex extends by its own TTL; another mutex with the same value has another one.
func (h held) Extend(ttl time.Duration) error {
	mutex := h.client.locks.NewMutex(
		h.mutex.Name(),
		redsync.WithExpiry(ttl),
		redsync.WithTimeoutFactor(0.5),
		redsync.WithValue(h.mutex.Value()),
	)
	return outcome(mutex.Extend())
}

func (h held) Release() error { return outcome(h.mutex.Unlock()) }

func outcome(ok bool, err error) error {
	if err != nil {
		return refusal(err)
	}
	if !ok {
		return checks.ErrRefused
	}
	return nil
}

func refusal(err error) error {
	var taken *redsync.ErrTaken
	var node *redsync.ErrNodeTaken
	if errors.As(err, &taken) || errors.As(err, &node) ||
		errors.Is(err, redsync.ErrLockAlreadyExpired) || errors.Is(err, redsync.ErrExtendFailed) {
		return fmt.Errorf("%w: %w", checks.ErrRefused, err)
	}
	return err
}

// own has the checks of what only redsync offers.
type own struct{ stage stage.Stage }

func (o own) run(to *report.Report, subject string) {
	to.Check(subject, "Valid is right for the owner and for another", o.valid)
	to.Check(subject, "a mutex that was never locked is refused its unlock and extension", o.neverLocked)
	to.Check(subject, "with WithSetNXOnExtend an extension takes a lock that is free", o.extendFree)
	to.Check(subject, "with WithSetNXOnExtend an extension does not take another's lock", o.extendTaken)
	to.Check(subject, "Lock waits until the holder unlocks", o.waits)
}

func (o own) mutex(key string, options ...redsync.Option) *redsync.Mutex {
	return connect(o.stage.Direct, 3).locks.NewMutex(key, options...)
}

func (o own) valid() error {
	key := stage.FreshKey("valid")
	mutex, other := o.mutex(key), o.mutex(key)
	if err := mutex.Lock(); err != nil {
		return err
	}
	mine, err := mutex.Valid()
	if err != nil {
		return err
	}
	// Another's Valid is an error of redsync or false.
	others, _ := other.Valid()
	return report.InOrder(
		func() error { return report.Expect("the owner's Valid", mine, true) },
		func() error { return report.Expect("another's Valid", others, false) },
	)
}

func (o own) neverLocked() error {
	key := stage.FreshKey("never")
	if err := o.mutex(key).Lock(); err != nil {
		return err
	}
	never := o.mutex(key)
	return report.InOrder(
		func() error { return checks.Refused("the unlock", outcome(never.Unlock())) },
		func() error { return checks.Refused("the extension", outcome(never.Extend())) },
	)
}

func (o own) extendFree() error {
	key := stage.FreshKey("extend-free")
	mutex := o.mutex(key, redsync.WithSetNXOnExtend())
	if err := mutex.Lock(); err != nil {
		return err
	}
	return report.InOrder(
		func() error { return outcome(mutex.Unlock()) },
		func() error { return outcome(mutex.Extend()) },
		func() error { return checks.Refused("another's try", refusal(o.mutex(key).TryLock())) },
		func() error { return outcome(mutex.Unlock()) },
	)
}

func (o own) extendTaken() error {
	key := stage.FreshKey("extend-taken")
	owner, other := o.mutex(key), o.mutex(key, redsync.WithSetNXOnExtend(), redsync.WithValue("other"))
	if err := owner.Lock(); err != nil {
		return err
	}
	return report.InOrder(
		func() error { return checks.Refused("the extension", outcome(other.Extend())) },
		func() error { return outcome(owner.Unlock()) },
	)
}

func (o own) waits() error {
	key := stage.FreshKey("waits")
	owner := o.mutex(key)
	if err := owner.Lock(); err != nil {
		return err
	}
	return checks.Waits(
		func() error { return outcome(owner.Unlock()) },
		func(refused func()) error {
			// redsync asks for a delay after each refusal.
			delay := redsync.WithRetryDelayFunc(func(int) time.Duration {
				refused()
				return 10 * time.Millisecond
			})
			return o.mutex(key, redsync.WithTries(1000), delay).Lock()
		},
	)
}

func main() {
	checks.Main(checks.Library{
		Name:    "redsync",
		Module:  "github.com/go-redsync/redsync/v4",
		Connect: func(address string, protocol int) checks.Client { return connect(address, protocol) },
		Own:     func(on stage.Stage, to *report.Report, subject string) { own{on}.run(to, subject) },
	})
}
