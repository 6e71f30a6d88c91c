package leasehold

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Lock is a handle of a lock that is held. Any goroutine may use it.
type Lock struct {
	hold   *hold
	ctx    context.Context
	cancel context.CancelCauseFunc
	detach func() bool // ends the watch for the loss
	scoped bool        // a Do or TryDo ends the context
	ended  atomic.Bool
	once   sync.Once
	lost   *Error // what ended the lock before the Unlock; set when once is done
}

func newLock(ctx context.Context, h *hold) *Lock {
	l := &Lock{hold: h}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	l.detach = context.AfterFunc(h.ctx, func() { l.cancel(context.Cause(h.ctx)) })
	return l
}

// Token is the fencing token, of up to 63 bits: greater than that of every earlier exclusive lock
// of the same name.
func (l *Lock) Token() int64 { return l.hold.grant.GetFencingToken() }

// Store is the name of the store.
func (l *Lock) Store() string { return l.hold.request.GetStoreName() }

// Namespace is the namespace of the name, the outermost segment first.
func (l *Lock) Namespace() []string { return slices.Clone(l.hold.request.GetNamespace()) }

// Resource is the name of the lock.
func (l *Lock) Resource() string { return l.hold.request.GetResourceId() }

// LockID proves the ownership: with it, a process can unlock and renew the lock.
func (l *Lock) LockID() string { return l.hold.grant.GetLockId() }

// GrantID is the public name of this grant, and proves nothing. It is empty if the store has no inspection.
func (l *Lock) GrantID() string { return l.hold.grant.GetGrantId() }

// Context is derived from the context that the lock was taken with. It ends when the lock is
// lost, and context.Cause is then the [*Error] that says why; when that context ends; and when
// the lock is unlocked, or, in a Do or TryDo, when the work has returned.
func (l *Lock) Context() context.Context { return l.ctx }

// ValidFor is how long until the work is cancelled unless the lock is confirmed, which
// happens every sixth of the TTL. It is 0 once the lock is lost or unlocked. It reads the
// clock and makes no call.
func (l *Lock) ValidFor() time.Duration {
	if l.ended.Load() {
		return 0
	}
	return l.hold.validFor()
}

// Check is nil while ValidFor is above 0, and then an [*Error] that matches [ErrLockLost].
// It reads the clock and makes no call: use it before each step of work that does not
// watch the context.
func (l *Lock) Check() error {
	if l.ended.Load() {
		if l.lost != nil {
			return l.lost
		}
		return l.unlocked()
	}
	if l.hold.validFor() > 0 {
		return nil
	}
	if lost := l.hold.loss(); lost != nil {
		return lost
	}
	return l.unlocked() // an Unlock is under way
}

func (l *Lock) unlocked() *Error {
	return lockLost(l.Resource(), CauseEnded, "it was unlocked", nil)
}

// Unlock ends the lock. It takes 5 s at most, and no context cancels it. Its error, if any,
// matches [ErrLockLost]: the lock had been lost before. A second Unlock does nothing and returns nil.
func (l *Lock) Unlock() error {
	if l.unlock() && l.lost != nil {
		return l.lost
	}
	return nil
}

// unlock returns false if this was done before. A Do keeps the context of its work: work that unlocks
// early is not cancelled by that, nor by the end of the grant's other handles.
func (l *Lock) unlock() (first bool) {
	l.once.Do(func() {
		first = true
		l.lost = l.hold.leave(l.ctx)
		l.ended.Store(true)
		if l.detach(); l.lost != nil || !l.scoped {
			l.end()
		}
	})
	return first
}

// end ends the context.
func (l *Lock) end() {
	if l.lost != nil {
		l.cancel(l.lost)
	} else {
		l.cancel(l.unlocked())
	}
}

// run does the work and ends the lock, also if the work panics.
func (l *Lock) run(work func(context.Context, *Lock) error) (err error) {
	l.scoped = true
	defer func() {
		l.unlock()
		l.end()
		// Also if the work has called Unlock and ignored its error.
		err = outcome(err, l.lost)
	}()
	return work(l.ctx, l)
}
