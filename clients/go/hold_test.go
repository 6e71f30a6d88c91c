package leasehold

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/leasehold/leasehold/clients/go/internal/pb"
)

func grantedHold(t *testing.T, sent time.Duration, ttl time.Duration, maxHold *time.Duration) *hold {
	t.Helper()
	unused := &link{}
	h := &hold{handles: 1, link: unused, locks: &Locks{conn: &connection{current: unused}}}
	h.ctx, h.cancel = context.WithCancelCause(t.Context())
	h.granted(&pb.LockAcquired{Ttl: durationpb.New(ttl)}, sent, &options{maxHold: maxHold})
	return h
}

func TestAnAnswerDoesNotExceedMaxHold(t *testing.T) {
	t.Parallel()
	limit := time.Hour
	h := grantedHold(t, now(), time.Minute, &limit)
	h.confirm(now() + 2*time.Hour)
	if valid := h.validFor(); valid > limit {
		t.Errorf("it is valid for %v", valid)
	}
}

func TestAnAnswerRevivesNoLockWhoseDeadlineHasPassed(t *testing.T) {
	t.Parallel()
	h := grantedHold(t, now()-time.Hour, time.Minute, nil) // the clock was not read since
	h.confirm(now() + time.Hour)
	if valid := h.validFor(); valid != 0 || h.loss().Cause != CauseUnconfirmed {
		t.Errorf("it is valid for %v, lost with %v", valid, h.loss())
	}
}
