package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasehold/leasehold/clients/go"
)

var errOfWork = errors.New("the error of the work")

func TestAnUnlockIsIdempotent(t *testing.T) {
	onEach(t, func(t *testing.T, s theStage) {
		locks, name := s.client(t), fresh(t)
		lock := take(t, locks, name)
		unlock(t, lock)
		next := try(t, locks, name)
		if next == nil {
			t.Fatal("it was not unlocked")
		}
		unlock(t, lock)
		if err := next.Check(); err != nil || try(t, locks, name) != nil {
			t.Errorf("a second unlock ended the lock of the next: %v", err)
		}
		err := locks.Do(t.Context(), fresh(t), func(ctx context.Context, lock *leasehold.Lock) error {
			unlock(t, lock)
			return ctx.Err() // work that goes on without the lock is not cancelled
		})
		if err != nil {
			t.Errorf("work that unlocks: %v", err)
		}
	})
}

func TestWhatAnUnlockLeavesIsNotLostAgain(t *testing.T) {
	onEach(t, func(t *testing.T, s theStage) {
		locks, name := s.client(t), fresh(t)
		err := locks.Do(t.Context(), name, func(ctx context.Context, outer *leasehold.Lock) error {
			inner, err := locks.Lock(ctx, name, leasehold.Reentrant())
			if err != nil {
				return err
			}
			unlock(t, outer)
			s.force(t, name)
			<-inner.Context().Done()
			if lost := refusal(t, inner.Unlock()); lost.Cause != leasehold.CauseForced {
				t.Errorf("the inner lock was lost with %v", lost)
			}
			if lost := refusal(t, outer.Check()); lost.Cause != leasehold.CauseEnded || outer.ValidFor() != 0 {
				t.Errorf("Check of the outer handle returned %v", lost)
			}
			// This context has no lock any more, so another mode is no conflict.
			shared, err := locks.Lock(ctx, name, leasehold.Reentrant(), leasehold.InMode(leasehold.Shared))
			if err != nil {
				return err
			}
			return errors.Join(shared.Unlock(), ctx.Err())
		}, leasehold.Reentrant())
		if err != nil {
			t.Errorf("Do returned %v", err)
		}
	})
}

func TestAnUnlockIsNotCancelledWithItsCaller(t *testing.T) {
	onEach(t, func(t *testing.T, s theStage) {
		locks, name := s.client(t), fresh(t)
		ctx, cancel := context.WithCancel(t.Context())
		err := locks.Do(ctx, name, func(ctx context.Context, lock *leasehold.Lock) error {
			cancel()
			<-ctx.Done()
			for range 20 { // long enough for the end of a stream to be noticed
				time.Sleep(10 * time.Millisecond)
				if err := lock.Check(); err != nil {
					t.Fatalf("the lock ended with its caller: %v", err)
				}
			}
			return ctx.Err()
		})
		if !errors.Is(err, context.Canceled) || errors.Is(err, leasehold.ErrLockLost) {
			t.Errorf("Do returned %v", err)
		}
		if try(t, locks, name) == nil {
			t.Error("it was not unlocked")
		}
		if _, err := locks.Lock(ctx, name); !errors.Is(err, context.Canceled) {
			t.Errorf("a lock under a cancelled context: %v", err)
		}
	})
}

func TestTheErrorOfTheWorkWins(t *testing.T) {
	onEach(t, func(t *testing.T, s theStage) {
		locks, name := s.client(t), fresh(t)
		fail := func(own func(context.Context) error) error {
			return locks.Do(t.Context(), name, func(ctx context.Context, _ *leasehold.Lock) error {
				s.force(t, name)
				<-ctx.Done()
				return own(ctx)
			})
		}
		err := fail(func(ctx context.Context) error { return fmt.Errorf("%w: %w", errOfWork, ctx.Err()) })
		if !errors.Is(err, errOfWork) || !errors.Is(err, leasehold.ErrLockLost) || refusal(t, err).Cause != leasehold.CauseForced {
			t.Errorf("Do returned %v", err)
		}
		for _, reported := range []func(context.Context) error{
			context.Context.Err, context.Cause,
			func(ctx context.Context) error {
				return fmt.Errorf("row 5: %w", errors.Join(ctx.Err(), context.Cause(ctx)))
			},
			func(context.Context) error { return status.Error(codes.Canceled, "the call was cancelled") },
			func(ctx context.Context) error {
				_, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Address())
				return err
			},
			func(context.Context) error { return nil },
		} {
			err := fail(reported)
			if _, alone := err.(*leasehold.Error); !alone || !errors.Is(err, leasehold.ErrLockLost) {
				t.Errorf("Do returned %v for work that was cancelled", err)
			}
		}
	})
}

func TestAFailedUnlockDoesNotHideTheErrorOfTheWork(t *testing.T) {
	aloneOnEach(t, func(t *testing.T, s theStage) {
		err := s.client(t).Do(t.Context(), fresh(t), func(context.Context, *leasehold.Lock) error {
			s.do(t, "suspend")
			return errOfWork
		})
		if err != errOfWork {
			t.Errorf("Do returned %v", err)
		}
		s.do(t, "resume")
	})
}

func TestALossThatTheWorkIgnoresIsReported(t *testing.T) {
	onEach(t, func(t *testing.T, s theStage) {
		locks, name := s.client(t), fresh(t)
		err := locks.Do(t.Context(), name, func(ctx context.Context, lock *leasehold.Lock) error {
			s.force(t, name)
			<-ctx.Done()
			if err := lock.Unlock(); !errors.Is(err, leasehold.ErrLockLost) {
				t.Errorf("Unlock returned %v", err)
			}
			return nil
		})
		if !errors.Is(err, leasehold.ErrLockLost) {
			t.Errorf("Do returned %v", err)
		}
	})
}

func TestWorkThatPanicsReleasesTheLock(t *testing.T) {
	onEach(t, func(t *testing.T, s theStage) {
		locks, name := s.client(t), fresh(t)
		func() {
			defer func() {
				if value := recover(); value != "panic of the work" {
					t.Errorf("the panic was %v", value)
				}
			}()
			_ = locks.Do(t.Context(), name, func(context.Context, *leasehold.Lock) error { panic("panic of the work") })
		}()
		next := try(t, locks, name)
		if next == nil {
			t.Fatal("it was not unlocked by the panic")
		}
		unlock(t, next)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = locks.Do(t.Context(), name, func(context.Context, *leasehold.Lock) error {
				runtime.Goexit()
				return nil
			})
		}()
		<-ended
		if try(t, locks, name) == nil {
			t.Error("it was not unlocked by Goexit")
		}
	})
}

func TestTheContextEndsWithTheWork(t *testing.T) {
	onEach(t, func(t *testing.T, s theStage) {
		var kept context.Context
		err := s.client(t).Do(t.Context(), fresh(t), func(ctx context.Context, _ *leasehold.Lock) error {
			kept = ctx
			return nil
		})
		if err != nil || kept.Err() == nil {
			t.Errorf("the error of the context is %v, that of Do %v", kept.Err(), err)
		}
	})
}

func TestAReentrantLockCounts(t *testing.T) {
	onEach(t, func(t *testing.T, s theStage) {
		locks, name := s.client(t), fresh(t)
		err := locks.Do(t.Context(), name, func(ctx context.Context, outer *leasehold.Lock) error {
			err := locks.Do(ctx, name, func(ctx context.Context, inner *leasehold.Lock) error {
				if inner.Token() != outer.Token() || inner.LockID() != outer.LockID() {
					t.Errorf("the inner lock is %d, the outer %d", inner.Token(), outer.Token())
				}
				_, err := locks.Lock(ctx, name, leasehold.Reentrant(), leasehold.InMode(leasehold.Shared))
				if refused := refusal(t, err); refused.Reason != "INVALID_REQUEST" || !strings.HasPrefix(refused.Message, "InMode") {
					t.Errorf("another mode is refused with %v", err)
				}
				return nil
			}, leasehold.Reentrant(), leasehold.TTL(time.Hour))
			if try(t, locks, name) != nil {
				t.Error("the inner end released it")
			}
			if another := try(t, s.client(t), name, leasehold.Reentrant()); another != nil {
				t.Error("another owner got it")
			}
			return errors.Join(err, outer.Check(), ctx.Err())
		}, leasehold.Reentrant())
		if err != nil {
			t.Error(err)
		}
		if try(t, locks, name) == nil {
			t.Error("the outer end did not release it")
		}
	})
}

func TestAReentrantLockIsLostForAll(t *testing.T) {
	onEach(t, func(t *testing.T, s theStage) {
		locks, name := s.client(t), fresh(t)
		err := locks.Do(t.Context(), name, func(ctx context.Context, _ *leasehold.Lock) error {
			inner := locks.Do(context.WithoutCancel(ctx), name, func(ctx context.Context, _ *leasehold.Lock) error {
				s.force(t, name)
				<-ctx.Done()
				return ctx.Err()
			}, leasehold.Reentrant())
			if !errors.Is(inner, leasehold.ErrLockLost) {
				t.Errorf("the inner Do returned %v", inner)
			}
			again := locks.Do(ctx, name, func(context.Context, *leasehold.Lock) error { return nil }, leasehold.Reentrant())
			if !errors.Is(again, leasehold.ErrLockLost) {
				t.Errorf("a Do after the loss returned %v", again)
			}
			return inner
		}, leasehold.Reentrant())
		if lost, alone := err.(*leasehold.Error); !alone || lost.Cause != leasehold.CauseForced {
			t.Errorf("the outer Do returned %v", err)
		}
	})
}

func TestALockIsNotReentrantByDefault(t *testing.T) {
	onEach(t, func(t *testing.T, s theStage) {
		locks, name := s.client(t), fresh(t)
		none := func(context.Context, *leasehold.Lock) error { return nil }
		for _, options := range [][]leasehold.Option{nil, {leasehold.Reentrant()}} {
			err := locks.Do(t.Context(), name, func(ctx context.Context, _ *leasehold.Lock) error {
				return locks.Do(ctx, name, none, leasehold.Wait(200*time.Millisecond))
			}, options...)
			if !errors.Is(err, leasehold.ErrNotAcquired) {
				t.Errorf("the inner lock: %v", err)
			}
		}
	})
}
