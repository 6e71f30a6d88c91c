package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/clients/go"
	"github.com/leasehold/leasehold/clients/go/internal/stage"
)

// fresh is the name of a lock that no other test uses.
func fresh(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("%s-%d", strings.ReplaceAll(t.Name(), "/", "-"), time.Now().UnixNano())
}

func take(t *testing.T, locks *leasehold.Locks, name string, options ...leasehold.Option) *leasehold.Lock {
	t.Helper()
	lock, err := locks.Lock(t.Context(), name, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Unlock() })
	return lock
}

func try(t *testing.T, locks *leasehold.Locks, name string, options ...leasehold.Option) *leasehold.Lock {
	t.Helper()
	lock, err := locks.TryLock(t.Context(), name, options...)
	if err != nil {
		t.Fatal(err)
	}
	if lock != nil {
		t.Cleanup(func() { _ = lock.Unlock() })
	}
	return lock
}

func unlock(t *testing.T, lock *leasehold.Lock) {
	t.Helper()
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
}

func refusal(t *testing.T, err error) *leasehold.Error {
	t.Helper()
	var refused *leasehold.Error
	if !errors.As(err, &refused) {
		t.Fatalf("%v is not a *leasehold.Error", err)
	}
	return refused
}

func TestALockIsTakenAndReleased(t *testing.T) {
	onEach(t, func(t *testing.T, s theStage) {
		locks, name := s.client(t), fresh(t)
		lock := take(t, locks, name, leasehold.TTL(10*time.Second))
		if lock.Token() <= 0 || lock.Resource() != name || lock.LockID() == "" || lock.GrantID() == "" || lock.Store() != stage.Store {
			t.Errorf("the handle is %+v", lock)
		}
		if valid := lock.ValidFor(); valid <= 0 || valid > 10*time.Second {
			t.Errorf("it is valid for %v", valid)
		}
		if err := errors.Join(lock.Check(), lock.Context().Err()); err != nil {
			t.Error(err)
		}
		unlock(t, lock)
		if lock.ValidFor() != 0 || !errors.Is(lock.Check(), leasehold.ErrLockLost) {
			t.Errorf("after Unlock, Check returned %v", lock.Check())
		}
		if cause := refusal(t, context.Cause(lock.Context())).Cause; cause != leasehold.CauseEnded {
			t.Errorf("its context ended with %v", cause)
		}
		next := try(t, s.client(t), name)
		if next == nil {
			t.Fatal("nobody else gets it")
		}
		if next.Token() <= lock.Token() {
			t.Errorf("the next token is %d after %d", next.Token(), lock.Token())
		}
	})
}

func TestATryOfAHeldLockGivesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, s theStage) {
		locks, name := s.client(t), fresh(t)
		take(t, locks, name)
		if lock := try(t, locks, name); lock != nil {
			t.Errorf("a try got %v", lock.LockID())
		}
		held, err := locks.TryDo(t.Context(), name, func(context.Context, *leasehold.Lock) error {
			t.Error("the work was done")
			return nil
		})
		if held || err != nil {
			t.Errorf("TryDo: %v %v", held, err)
		}
	})
}

func TestALockWaitsForItsTurn(t *testing.T) {
	onEach(t, func(t *testing.T, s theStage) {
		locks, name := s.client(t), fresh(t)
		first := take(t, locks, name)
		taken := make(chan error, 1)
		go func() {
			taken <- locks.Do(t.Context(), name, func(_ context.Context, second *leasehold.Lock) error {
				if second.Token() <= first.Token() {
					return fmt.Errorf("the second token is %d after %d", second.Token(), first.Token())
				}
				return nil
			}, leasehold.Wait(patience))
		}()
		s.awaitWaiters(t, name, 1)
		unlock(t, first)
		if err := <-taken; err != nil {
			t.Error(err)
		}
	})
}

func TestAWaitEndsAtItsLimit(t *testing.T) {
	onEach(t, func(t *testing.T, s theStage) {
		locks, name := s.client(t), fresh(t)
		take(t, locks, name)
		_, err := locks.Lock(t.Context(), name, leasehold.Wait(300*time.Millisecond))
		if !errors.Is(err, leasehold.ErrNotAcquired) || refusal(t, err).Reason != "WAIT_DEADLINE" {
			t.Errorf("it ended with %v", err)
		}
		if want := fmt.Sprintf("leasehold: WAIT_DEADLINE: the lock %q was not acquired within 0.3 s", name); err.Error() != want {
			t.Errorf("it ended with %v", err)
		}
		if errors.Is(err, leasehold.ErrLockLost) {
			t.Error("it matches ErrLockLost too")
		}
	})
}

func TestATryThatMayNotWaitNamesTheHolder(t *testing.T) {
	onEach(t, func(t *testing.T, s theStage) {
		locks, name := s.client(t), fresh(t)
		take(t, locks, name, leasehold.Label("first"))
		_, err := locks.Lock(t.Context(), name, leasehold.Wait(0))
		if !errors.Is(err, leasehold.ErrNotAcquired) {
			t.Fatalf("it was refused with %v", err)
		}
		refused := refusal(t, err)
		if refused.Reason != "RESOURCE_LOCKED" || !strings.HasPrefix(refused.Holder, "app/") || !strings.HasSuffix(refused.Holder, "/first") {
			t.Errorf("it was refused with %+v", refused)
		}
		if refused.Message != fmt.Sprintf("the lock %q is held by %s", name, refused.Holder) {
			t.Errorf("it was refused with %v", err)
		}
	})
}

func TestTheLabelIsSeenByInspection(t *testing.T) {
	onEach(t, func(t *testing.T, s theStage) {
		lock := take(t, s.client(t), fresh(t), leasehold.Label("nightly-import"))
		state := s.inspect(t, lock.Resource())
		if len(state.Grants) != 1 || !strings.HasSuffix(state.Grants[0].Holder, "/nightly-import") ||
			state.Grants[0].GrantID != lock.GrantID() {
			t.Errorf("inspection returned %+v", state)
		}
	})
}

func TestNamespacesAreApart(t *testing.T) {
	onEach(t, func(t *testing.T, s theStage) {
		locks, name := s.client(t), fresh(t)
		eu := take(t, locks, name, leasehold.Namespace("shop", "eu"))
		us := try(t, locks, name, leasehold.Namespace("shop", "us"))
		none := try(t, locks, name)
		if us == nil || none == nil {
			t.Fatal("one namespace keeps the others out")
		}
		if try(t, locks, name, leasehold.Namespace("shop", "eu")) != nil {
			t.Error("it is held twice in one namespace")
		}
		for _, lock := range []*leasehold.Lock{eu, us, none} {
			unlock(t, lock)
		}
		if try(t, locks, name, leasehold.Namespace("shop", "eu")) == nil {
			t.Error("it was not unlocked in its namespace")
		}
	})
}

func TestReadersShareALock(t *testing.T) {
	onEach(t, func(t *testing.T, s theStage) {
		locks, name := s.client(t), fresh(t)
		take(t, locks, name, leasehold.InMode(leasehold.Shared))
		if try(t, locks, name, leasehold.InMode(leasehold.Shared)) == nil {
			t.Error("a second reader is refused")
		}
		if try(t, locks, name) != nil {
			t.Error("a writer got the lock of a reader")
		}
	})
}

func TestACancelledWaitLeavesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, s theStage) {
		locks, name := s.client(t), fresh(t)
		first := take(t, locks, name)
		ctx, cancel := context.WithCancel(t.Context())
		waits := make(chan error, 1)
		go func() {
			_, err := locks.Lock(ctx, name)
			waits <- err
		}()
		s.awaitWaiters(t, name, 1)
		next := make(chan error, 1)
		go func() {
			next <- locks.Do(t.Context(), name, func(context.Context, *leasehold.Lock) error { return nil }, leasehold.Wait(patience))
		}()
		s.awaitWaiters(t, name, 2)
		cancel()
		if err := <-waits; !errors.Is(err, context.Canceled) {
			t.Errorf("the cancelled wait ended with %v", err)
		}
		s.awaitWaiters(t, name, 1)
		unlock(t, first)
		if err := <-next; err != nil {
			t.Errorf("the next in line: %v", err)
		}
		if state := s.inspect(t, name); len(state.Grants) != 0 || state.Waiters != 0 {
			t.Errorf("left over: %+v", state)
		}
	})
}

func TestABadOptionIsNamed(t *testing.T) {
	onEach(t, func(t *testing.T, s theStage) {
		locks, name := s.client(t), fresh(t)
		for option, chosen := range map[string]leasehold.Option{
			"Wait":       leasehold.Wait(-time.Second),
			"TTL":        leasehold.TTL(0),
			"MaxHold":    leasehold.MaxHold(-1),
			"StopBefore": leasehold.StopBefore(-1),
			"InMode":     leasehold.InMode(7),
			// This one is checked by the sidecar.
			"label": leasehold.Label(strings.Repeat("x", 129)),
		} {
			_, err := locks.Lock(t.Context(), name, chosen)
			if refused := refusal(t, err); refused.Reason != "INVALID_REQUEST" || !strings.HasPrefix(refused.Message, option) {
				t.Errorf("a bad %s is refused with %v", option, err)
			}
		}
		for beginning, chosen := range map[string][]leasehold.Option{
			"StopBefore is not shorter than MaxHold":                    {leasehold.StopBefore(time.Second), leasehold.MaxHold(time.Second)},
			"StopBefore is not shorter than the granted TTL of 120 s, ": {leasehold.StopBefore(113980 * time.Millisecond), leasehold.TTL(2 * time.Minute)},
		} {
			_, err := locks.Lock(t.Context(), name, chosen...)
			if refused := refusal(t, err); refused.Reason != "INVALID_REQUEST" || !strings.HasPrefix(refused.Message, beginning) {
				t.Errorf("a StopBefore that leaves no time is refused with %v", err)
			}
		}
		take(t, locks, name, leasehold.Wait(patience)) // it was released at once
		if err := locks.Do(t.Context(), name, nil); refusal(t, err).Message != "work is nil" || refusal(t, err).Reason != "INVALID_REQUEST" {
			t.Errorf("Do without work: %v", err)
		}
		if _, err := locks.TryDo(t.Context(), name, nil); refusal(t, err).Message != "work is nil" {
			t.Errorf("TryDo without work: %v", err)
		}
		_, err := locks.Lock(t.Context(), "")
		if refused := refusal(t, err); refused.Reason != "INVALID_REQUEST" || !strings.HasPrefix(refused.Message, "name") {
			t.Errorf("an empty name is refused with %v", err)
		}
		_, err = locks.TryLock(t.Context(), name, leasehold.Wait(time.Second))
		if refused := refusal(t, err); refused.Reason != "INVALID_REQUEST" || !strings.HasPrefix(refused.Message, "Wait") {
			t.Errorf("a try that waits is refused with %v", err)
		}
	})
}

func TestTheLongestDurationsAreLimits(t *testing.T) {
	onEach(t, func(t *testing.T, s theStage) {
		const longest = time.Duration(math.MaxInt64)
		lock := take(t, s.client(t), fresh(t), leasehold.Wait(longest), leasehold.MaxHold(longest))
		if err := lock.Check(); err != nil {
			t.Error(err)
		}
		unlock(t, lock)
	})
}

func TestARepeatedRequestIDFindsItsGrant(t *testing.T) {
	onEach(t, func(t *testing.T, s theStage) {
		locks, name := s.client(t), fresh(t)
		first := take(t, locks, name, leasehold.RequestID("secret-"+name))
		second := take(t, locks, name, leasehold.RequestID("secret-"+name))
		if first.Token() != second.Token() {
			t.Errorf("the tokens are %d and %d", first.Token(), second.Token())
		}
		<-first.Context().Done()
		if lost := refusal(t, first.Unlock()); lost.Cause != leasehold.CauseEnded {
			t.Errorf("the first was lost with %v", lost)
		}
		if err := second.Check(); err != nil {
			t.Error(err)
		}
		unlock(t, second)
	})
}
