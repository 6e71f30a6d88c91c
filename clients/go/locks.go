package leasehold

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Do waits for the lock, runs work under it in the calling goroutine, and unlocks.
//
// The context of the work is derived from ctx. It ends when the lock is lost, and
// context.Cause is then the [*Error] that says why. Do returns when the work has returned:
//
//   - the error of the work, if there is one. If the lock was lost too, the error matches both by
//     errors.Is and errors.As (it is made by errors.Join);
//   - else an [*Error] that matches [ErrLockLost], if the lock was lost, also if
//     the work succeeded or returned the error of its cancelled context;
//   - else nil.
//
// When ctx ends, the wait ends, or the work is cancelled. The lock is released once the work
// has returned. If the work panics the lock is released and the panic goes on.
//
// If the lock could not be taken, work is not called. The error then matches [ErrNotAcquired]
// if somebody else held the lock until [Wait] had passed, wraps ctx.Err() if ctx ended, and is
// another [*Error] otherwise. A work that is nil is refused before the lock is taken.
func (c *Locks) Do(ctx context.Context, name string, work func(context.Context, *Lock) error, chosen ...Option) error {
	if work == nil {
		return errNoWork()
	}
	lock, err := c.Lock(ctx, name, chosen...)
	if err != nil {
		return err
	}
	return lock.run(work)
}

// TryDo is Do without waiting. It returns false, and does not call work, if somebody
// else holds the lock or the lock could not be taken.
func (c *Locks) TryDo(ctx context.Context, name string, work func(context.Context, *Lock) error, chosen ...Option) (bool, error) {
	if work == nil {
		return false, errNoWork()
	}
	lock, err := c.TryLock(ctx, name, chosen...)
	if lock == nil {
		return false, err
	}
	return true, lock.run(work)
}

// Lock waits for the lock. The caller must call [Lock.Unlock]; until then the lock
// is held, and renewed. The end of ctx ends the wait and [Lock.Context], but not the lock.
//
// Nothing stops the caller when the lock is lost: watch [Lock.Context] or call [Lock.Check].
// Its errors are those of Do for a lock that could not be taken.
func (c *Locks) Lock(ctx context.Context, name string, chosen ...Option) (*Lock, error) {
	o, err := newOptions(name, false, chosen)
	if err != nil {
		return nil, err
	}
	return c.lock(ctx, name, o)
}

// TryLock is Lock without waiting. It returns nil and no error if somebody else holds the lock.
func (c *Locks) TryLock(ctx context.Context, name string, chosen ...Option) (*Lock, error) {
	o, err := newOptions(name, true, chosen)
	if err != nil {
		return nil, err
	}
	lock, err := c.lock(ctx, name, o)
	if errors.Is(err, ErrNotAcquired) {
		return nil, nil
	}
	return lock, err
}

func (c *Locks) lock(ctx context.Context, name string, o *options) (*Lock, error) {
	if !o.reentrant {
		h, err := c.acquire(ctx, name, o)
		if err != nil {
			return nil, err
		}
		return newLock(ctx, h), nil
	}
	key := ownedKey(c, name, o.namespace)
	h, err := joinOwned(ctx, key, o.mode)
	if err != nil {
		return nil, err
	}
	if h != nil {
		return newLock(ctx, h), nil
	}
	if h, err = c.acquire(ctx, name, o); err != nil {
		return nil, err
	}
	return newLock(withOwned(ctx, key, h), h), nil
}

// notGranted is the error of a stream that ended before the lock was granted.
func notGranted(name string, err error, o *options) error {
	if err == io.EOF {
		return unavailable(name, "the stream ended before the lock was granted", nil)
	}
	if missing, ok := err.(*unreachable); ok {
		return unavailable(name, missing.message, missing.err)
	}
	failure := refused(name, err)
	switch {
	case failure.Reason == reasonLocked && failure.Holder != "":
		failure.Message = fmt.Sprintf("the lock %q is held by %s", name, failure.Holder)
	case failure.Reason == reasonLocked:
		failure.Message = fmt.Sprintf("the lock %q is held by somebody else", name)
	case failure.Reason == reasonWaitEnded && o.wait != nil:
		failure.Message = fmt.Sprintf("the lock %q was not acquired within %s", name, inSeconds(*o.wait))
	case failure.Reason == reasonWaitEnded:
		failure.Message = fmt.Sprintf("the lock %q was not acquired: %s", name, failure.Message)
	}
	return failure
}

func errNoWork() error { return invalid("work", "is nil") }
