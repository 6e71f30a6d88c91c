package leasehold_test

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold/leasehold/clients/go"
)

const (
	// lossTTL is the TTL of locks that are to be lost.
	lossTTL = 9 * time.Second
	// lossStop: the client gives the lock up this long before its TTL ends, so that a busy
	// machine may notice the silence late.
	lossStop = 4 * time.Second
)

// work is a Do in the background, whose work waits for the end of its context.
type work struct {
	lock   chan *leasehold.Lock // gets the lock when the work has begun
	ended  chan struct{}        // closed when the work has ended
	result chan error           // what Do returned
}

func start(t *testing.T, locks *leasehold.Locks, name string, options ...leasehold.Option) *work {
	t.Helper()
	w := &work{make(chan *leasehold.Lock, 1), make(chan struct{}), make(chan error, 1)}
	go func() {
		w.result <- locks.Do(t.Context(), name, func(ctx context.Context, lock *leasehold.Lock) error {
			w.lock <- lock
			<-ctx.Done()
			time.Sleep(50 * time.Millisecond) // the work takes a while to stop
			close(w.ended)
			return ctx.Err()
		}, options...)
	}()
	return w
}

// begun waits until the work holds its lock.
func (w *work) begun(t *testing.T) *leasehold.Lock {
	t.Helper()
	select {
	case lock := <-w.lock:
		return lock
	case err := <-w.result:
		t.Fatalf("the work did not begin: %v", err)
		return nil
	}
}

// lost waits for Do, which must report a loss of this cause, after the work has ended.
func (w *work) lost(t *testing.T, cause leasehold.Cause) {
	t.Helper()
	select {
	case err := <-w.result:
		select {
		case <-w.ended:
		default:
			t.Error("it was reported before the work had ended")
		}
		if !errors.Is(err, leasehold.ErrLockLost) || errors.Is(err, context.Canceled) {
			t.Fatalf("Do returned %v", err)
		}
		if lost := refusal(t, err); lost.Cause != cause || lost.Reason != "LOCK_LOST" {
			t.Errorf("it was lost with %v, not %s", lost, cause)
		}
	case <-time.After(patience):
		t.Fatal("the work was not cancelled")
	}
}

func TestMaxHoldEndsTheLock(t *testing.T) {
	onEach(t, func(t *testing.T, s theStage) {
		locks := s.client(t)
		for _, margin := range []time.Duration{0, 100 * time.Millisecond} { // with 0 the sidecar may report it first
			w := start(t, locks, fresh(t), leasehold.MaxHold(3*time.Second), leasehold.StopBefore(margin))
			w.begun(t)
			w.lost(t, leasehold.CauseMaxHold)
		}
	})
}

func TestMaxHoldEndsALockOfAShortTTL(t *testing.T) {
	onEach(t, func(t *testing.T, s theStage) {
		// Before the first answer to CheckLocks, and after some.
		for limit, ttl := range map[time.Duration]time.Duration{
			3 * time.Second: 20 * time.Second, 2 * lossTTL / 5: lossTTL, 3 * lossTTL / 2: lossTTL,
		} {
			t.Run(limit.String(), func(t *testing.T) {
				t.Parallel()
				w := start(t, s.client(t), fresh(t), leasehold.MaxHold(limit), leasehold.TTL(ttl))
				if valid := w.begun(t).ValidFor(); valid > limit-min(limit, ttl)/10 {
					t.Errorf("a lock that is held for %v at most is valid for %v", limit, valid)
				}
				w.lost(t, leasehold.CauseMaxHold)
			})
		}
	})
}

func TestAForcedUnlockCancelsTheWork(t *testing.T) {
	onEach(t, func(t *testing.T, s theStage) {
		w := start(t, s.client(t), fresh(t))
		lock := w.begun(t)
		s.force(t, lock.Resource())
		w.lost(t, leasehold.CauseForced)
		if cause := refusal(t, context.Cause(lock.Context())).Cause; cause != leasehold.CauseForced {
			t.Errorf("the cause of the context is %s", cause)
		}
		if lost := refusal(t, lock.Check()); lost.Cause != leasehold.CauseForced || lock.ValidFor() != 0 {
			t.Errorf("Check returned %v", lost)
		}
	})
}

func TestAKilledSidecarCancelsTheWork(t *testing.T) {
	aloneOnEach(t, func(t *testing.T, s theStage) {
		w := start(t, s.client(t), fresh(t))
		w.begun(t)
		s.do(t, "kill")
		w.lost(t, leasehold.CauseDisconnected)
	})
}

func TestAStoppedSidecarCancelsTheWork(t *testing.T) {
	aloneOnEach(t, func(t *testing.T, s theStage) {
		w := start(t, s.client(t), fresh(t))
		w.begun(t)
		s.do(t, "stop")
		w.lost(t, leasehold.CauseShuttingDown)
	})
}

func TestADarkConnectionIsReplaced(t *testing.T) {
	aloneOnEach(t, func(t *testing.T, s theStage) {
		locks := s.proxied(t)
		long := start(t, locks, fresh(t), leasehold.TTL(time.Minute))
		long.begun(t)
		short := start(t, locks, fresh(t), leasehold.TTL(lossTTL), leasehold.StopBefore(lossStop))
		short.begun(t)
		s.do(t, "vanish")
		short.lost(t, leasehold.CauseUnconfirmed)
		if _, err := locks.Lock(t.Context(), fresh(t), leasehold.Wait(0)); err != nil {
			t.Errorf("the next lock: %v", err)
		}
		long.lost(t, leasehold.CauseDisconnected) // by the pings
	})
}

func TestASuspendedSidecarCancelsTheWorkBeforeTheDeadline(t *testing.T) {
	aloneOnEach(t, func(t *testing.T, s theStage) {
		w := start(t, s.client(t), fresh(t), leasehold.TTL(lossTTL), leasehold.StopBefore(lossStop))
		lock := w.begun(t)
		suspended := suspendLater(t, s, lock, "suspend")
		w.lost(t, leasehold.CauseUnconfirmed)
		if took := time.Since(suspended); took >= lossTTL {
			t.Errorf("the work ended %v after the suspension", took)
		}
	})
}

func TestACutOffSidecarCancelsTheWorkBeforeTheDeadline(t *testing.T) {
	aloneOnEach(t, func(t *testing.T, s theStage) {
		w := start(t, s.proxied(t), fresh(t), leasehold.TTL(lossTTL), leasehold.StopBefore(lossStop))
		lock := w.begun(t)
		stalled := suspendLater(t, s, lock, "stall")
		w.lost(t, leasehold.CauseUnconfirmed)
		if took := time.Since(stalled); took >= lossTTL {
			t.Errorf("the work ended %v after it was cut off", took)
		}
	})
}

// suspendLater does the command once a CheckLocks has moved the deadline.
func suspendLater(t *testing.T, s theStage, lock *leasehold.Lock, command string) time.Time {
	t.Helper()
	before := lock.ValidFor()
	eventually(t, "the lock is confirmed", func() bool {
		valid := lock.ValidFor()
		confirmed := valid > before
		before = valid
		return confirmed
	})
	if err := lock.Check(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	s.do(t, command)
	return began
}

func TestACutConnectionCancelsTheWork(t *testing.T) {
	aloneOnEach(t, func(t *testing.T, s theStage) {
		w := start(t, s.proxied(t), fresh(t))
		w.begun(t)
		s.do(t, "cut")
		w.lost(t, leasehold.CauseDisconnected)
	})
}

func TestAStallThatPassesKeepsTheLock(t *testing.T) {
	aloneOnEach(t, func(t *testing.T, s theStage) {
		const ttl = 12 * time.Second
		lock := take(t, s.proxied(t), fresh(t), leasehold.TTL(ttl))
		suspendLater(t, s, lock, "stall")
		// By now a question has failed: an answer must come within a sixth of the TTL.
		eventually(t, "half of the TTL has passed", func() bool { return lock.ValidFor() < ttl/2 })
		s.do(t, "heal")
		eventually(t, "the lock is confirmed", func() bool { return lock.ValidFor() > ttl/2 })
		unlock(t, lock)
	})
}

func TestWorkThatBlocksSeesTheLossByCheck(t *testing.T) {
	onEach(t, func(t *testing.T, s theStage) {
		locks, name := s.client(t), fresh(t)
		blocked := make(chan *leasehold.Lock, 1)
		unblock, result := make(chan struct{}), make(chan error, 1)
		go func() {
			result <- locks.Do(t.Context(), name, func(_ context.Context, lock *leasehold.Lock) error {
				blocked <- lock
				<-unblock // a call without a context
				return lock.Check()
			})
		}()
		lock := <-blocked
		s.force(t, name)
		eventually(t, "the loss is noticed", func() bool { return lock.ValidFor() == 0 })
		select {
		case err := <-result:
			t.Fatalf("it was reported before the work had ended: %v", err)
		default:
		}
		close(unblock)
		if err := <-result; refusal(t, err).Cause != leasehold.CauseForced {
			t.Errorf("Do returned %v", err)
		}
	})
}

func TestASuspendedProcessSeesTheLossByCheck(t *testing.T) {
	onEach(t, func(t *testing.T, s theStage) {
		name := fresh(t)
		h := startHolder(t, s, name, 6*time.Second)
		if err := h.process.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		time.Sleep(7 * time.Second) // the deadline passes, and the sidecar still renews the lock
		// The line waits in its input, so that the child may answer it before any timer has fired.
		if _, err := h.input.Write([]byte("check\n")); err != nil {
			t.Fatal(err)
		}
		if err := h.process.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if said := h.line(t); !strings.Contains(said, "LOCK_LOST (unconfirmed)") {
			t.Errorf("the first check returned %s", said)
		}
		if state := s.inspect(t, name); len(state.Grants) != 1 {
			t.Error("the sidecar has not renewed the lock")
		}
		time.Sleep(3 * time.Second) // more than one answer to CheckLocks
		if _, err := h.input.Write([]byte("check\n")); err != nil {
			t.Fatal(err)
		}
		if said := h.line(t); !strings.Contains(said, "LOCK_LOST (unconfirmed)") {
			t.Errorf("a later check returned %s", said)
		}
	})
}

func TestAKilledProcessFreesTheLock(t *testing.T) {
	onEach(t, func(t *testing.T, s theStage) {
		name := fresh(t)
		h := startHolder(t, s, name, time.Hour)
		next := make(chan error, 1)
		go func() {
			next <- s.client(t).Do(t.Context(), name, func(context.Context, *leasehold.Lock) error { return nil }, leasehold.Wait(patience))
		}()
		s.awaitWaiters(t, name, 1)
		if err := h.process.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := <-next; err != nil {
			t.Errorf("the next in line: %v", err)
		}
	})
}
