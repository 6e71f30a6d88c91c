package leasehold

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/leasehold/leasehold/clients/go/internal/pb"
)

// hold is a grant of the sidecar, and its state in the client. Several handles may share it.
type hold struct {
	locks       *Locks
	link        *link
	request     *pb.LockRequest
	closeStream context.CancelFunc
	received    chan struct{} // closed when the stream's goroutine has ended

	// Set by the grant.
	grant      *pb.LockAcquired
	ttl        time.Duration
	margin     time.Duration // StopBefore
	limit      time.Duration // when MaxHold has passed, on this client's clock; farFuture without one
	stopKeeper context.CancelFunc
	kept       chan struct{} // closed when the keeper has ended

	// ctx ends when the lock is lost, and the loss is its cause.
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	deadline time.Duration // the safe deadline, on this client's clock
	lost     *Error
	handles  int // those that have not been unlocked; 0 means that the grant is being released
}

// drift is by how much a TTL may differ between the clocks of this host and of the store's.
func drift(ttl time.Duration) time.Duration { return ttl/20 + 20*time.Millisecond }

// granted records the grant of a request that was sent at that time. It fails if StopBefore leaves
// no time, or if the safe deadline has passed already.
func (h *hold) granted(grant *pb.LockAcquired, sent time.Duration, o *options) error {
	h.grant, h.ttl = grant, grant.GetTtl().AsDuration()
	h.margin = o.margin(h.ttl)
	if o.stopBefore != nil && h.margin >= h.ttl-drift(h.ttl) {
		return invalid("StopBefore", "is not shorter than the granted TTL of "+inSeconds(h.ttl)+
			", less "+inSeconds(drift(h.ttl))+" for drift")
	}
	since := sent + grant.GetWaited().AsDuration()
	deadline := since + h.ttl - drift(h.ttl)
	h.limit = farFuture
	if o.maxHold != nil {
		h.limit = saturatingAdd(since, *o.maxHold)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deadline = min(deadline, h.limit)
	if now() >= h.deadline {
		return unavailable(h.request.GetResourceId(), "the lock was received after its deadline", nil)
	}
	return nil
}

// confirm moves the safe deadline. A lock whose deadline has passed unnoticed, because the process
// was suspended, is lost nevertheless.
func (h *hold) confirm(deadline time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.validForLocked() > 0 {
		h.deadline = min(deadline, h.limit)
	}
}

// lose records a loss, unless there is one already or the grant is being released.
func (h *hold) lose(lost *Error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.handles > 0 {
		h.loseLocked(lost)
	}
}

func (h *hold) loseLocked(lost *Error) {
	if h.lost == nil {
		h.lost = lost
		h.cancel(lost)
		if lost.Cause == CauseUnconfirmed {
			h.locks.conn.replace(h.link)
		}
	}
}

// lossByStream is what the end of the stream means for a lock that was granted.
func (h *hold) lossByStream(err error) *Error {
	name := h.request.GetResourceId()
	if errors.Is(err, io.EOF) {
		return lockLost(name, CauseEnded, "it was unlocked or taken over by another call", nil)
	}
	switch failure := refused(name, err); failure.Reason {
	case reasonLost:
		return failure
	case reasonShutdown:
		return lockLost(name, CauseShuttingDown, failure.Message, err)
	default:
		return lockLost(name, CauseDisconnected, "the stream broke: "+failure.Message, err)
	}
}

// validFor is how long until the work is cancelled unless the lock is confirmed. It compares with
// the clock, so that a process that was suspended sees the loss before a timer has fired.
func (h *hold) validFor() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.validForLocked()
}

func (h *hold) validForLocked() time.Duration {
	if h.lost != nil || h.handles == 0 {
		return 0
	}
	left := h.deadline - h.margin - now()
	if left <= 0 {
		h.loseLocked(h.lossByClock())
		return 0
	}
	return left
}

// lossByClock names MaxHold as the cause if the deadline comes from it. The sidecar counts MaxHold too, and
// began to count it later: the difference is within the drift allowance.
func (h *hold) lossByClock() *Error {
	name := h.request.GetResourceId()
	if h.deadline >= h.limit-drift(h.ttl) {
		return lockLost(name, CauseMaxHold, "it was held for as long as MaxHold allows", nil)
	}
	return lockLost(name, CauseUnconfirmed, "nobody has confirmed it in time", nil)
}

// loss is why the lock was lost, or nil.
func (h *hold) loss() *Error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost
}

// join adds a handle. It returns false if the grant has been released, and an error if it is lost or has
// another mode.
func (h *hold) join(mode Mode) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.handles == 0 {
		return false, nil
	}
	if held := h.request.GetMode(); held != pb.LockMode(mode) {
		return false, invalid("InMode", "is not the mode in which the same owner holds the lock")
	}
	if h.validForLocked() == 0 {
		return false, h.lost
	}
	h.handles++
	return true, nil
}

// leave removes a handle, and releases the grant with the last one. It returns the loss, if any.
func (h *hold) leave(ctx context.Context) *Error {
	h.mu.Lock()
	h.validForLocked()
	h.handles--
	last, lost := h.handles == 0, h.lost
	h.mu.Unlock()
	if !last {
		return lost
	}
	h.stopKeeper()
	if lost == nil {
		lost = h.unlock(ctx)
		h.mu.Lock()
		h.lost = lost
		h.mu.Unlock()
	}
	h.closeStream()
	<-h.received
	<-h.kept
	h.locks.conn.leave(h.link)
	return lost
}
