package leasehold

import (
	"context"
	"time"

	"github.com/leasehold/leasehold/clients/go/internal/pb"
)

// answerTimeMax limits the wait for an answer to CheckLocks.
const answerTimeMax = 5 * time.Second

// keep asks for how long the lock is valid, until it is lost or ctx ends.
func (h *hold) keep(ctx context.Context) {
	defer close(h.kept)
	interval := h.ttl / 6
	next := now() + interval
	for {
		left := h.validFor()
		if left == 0 || !sleep(ctx, min(left, next-now())) {
			return
		}
		asked := now()
		if asked < next {
			continue
		}
		check, err := h.ask(ctx, min(interval, answerTimeMax, left))
		switch {
		case err != nil:
			next = asked + h.ttl/60
		case check.GetValidFor() == nil:
			h.lose(h.lossByCheck(check))
			return
		default:
			h.confirm(asked + check.GetValidFor().AsDuration())
			next = asked + interval
		}
	}
}

func (h *hold) ask(ctx context.Context, timeout time.Duration) (*pb.LockCheck, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return h.checkLocks(ctx)
}

func (h *hold) lossByCheck(check *pb.LockCheck) *Error {
	cause := CauseEnded
	if check.GetReason() == reasonLost && check.GetCause() != "" {
		cause = Cause(check.GetCause())
	}
	return lockLost(h.request.GetResourceId(), cause, "the sidecar answers "+check.GetReason(), nil)
}

// sleep returns false if ctx ended first.
func sleep(ctx context.Context, duration time.Duration) bool {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
