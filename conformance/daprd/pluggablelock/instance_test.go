package pluggablelock

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leasehold/conformance/daprd/lockpb"
)

func TestACallAfterTheComponentsRestartSendsInitAgain(t *testing.T) {
	fake := &fakeComponent{}
	s := startStore(t, fake, map[string]string{"redisHost": "h:1"})
	fake.forget()
	response, err := s.TryLock(t.Context(), tryRequest)
	if err != nil || !response.Success {
		t.Fatalf("TryLock answered %v, %v", response, err)
	}
	if len(fake.inits) != 2 || fake.inits[1]["redisHost"] != "h:1" {
		t.Errorf("Init carried %v", fake.inits)
	}
}

func TestManyCallsAfterARestartSendInitOnce(t *testing.T) {
	fake := &fakeComponent{}
	s := startStore(t, fake, nil)
	fake.forget()
	var callers sync.WaitGroup
	for range 50 {
		callers.Go(func() {
			if _, err := s.TryLock(t.Context(), tryRequest); err != nil {
				t.Errorf("TryLock failed with %v", err)
			}
		})
	}
	callers.Wait()
	if len(fake.inits) != 2 {
		t.Errorf("Init was sent %d times", len(fake.inits))
	}
}

// The tests below run on their own clock (testing/synctest), so that their
// deadlines are exact: the component is in the same process.

const testTimeout = 7 * time.Second

// forgetful is a component that has no instance until an Init succeeds.
type forgetful struct {
	lockpb.LockStoreClient
	mu          sync.Mutex
	initialized bool
	inits       int
	answerInit  func(ctx context.Context) error
}

func (f *forgetful) Init(ctx context.Context, _ *lockpb.LockStoreInitRequest, _ ...grpc.CallOption) (*lockpb.LockStoreInitResponse, error) {
	f.mu.Lock()
	f.inits++
	f.mu.Unlock()
	if err := f.answerInit(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.initialized = true
	return &lockpb.LockStoreInitResponse{}, nil
}

// method is any call of the component.
func (f *forgetful) method(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.initialized {
		return reasonError(codes.FailedPrecondition, reasonNotInitialized, nil)
	}
	return nil
}

// callWithin makes a call under a deadline, and returns how it ended and when.
func (f *forgetful) callWithin(i *instance, limit time.Duration) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	start := time.Now()
	err = i.call(ctx, f.method)
	return time.Since(start), err
}

func hangs(ctx context.Context) error {
	<-ctx.Done()
	return status.FromContextError(ctx.Err()).Err()
}

// Sent one after the other, the last of them would fail past its deadline, and
// without the reason.
func TestCallsShareOneFailingInit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		component := &forgetful{answerInit: func(context.Context) error {
			time.Sleep(4 * time.Second)
			return reasonError(codes.Unavailable, "STORE_UNAVAILABLE", nil)
		}}
		i := newInstance(component, nil, testTimeout)
		var calls sync.WaitGroup
		for range 20 {
			calls.Go(func() {
				took, err := component.callWithin(i, testTimeout)
				if reasonOf(err) != "STORE_UNAVAILABLE" || took != 4*time.Second {
					t.Errorf("a call failed after %v with %v", took, err)
				}
			})
		}
		calls.Wait()
		if component.inits != 1 {
			t.Errorf("Init was sent %d times", component.inits)
		}
		// The failure is not kept: the next call tries again.
		component.answerInit = func(context.Context) error { return nil }
		if _, err := component.callWithin(i, testTimeout); err != nil {
			t.Errorf("once Init succeeds a call failed with %v", err)
		}
	})
}

func TestAHangingInitHoldsNoCallPastItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		component := &forgetful{answerInit: hangs}
		i := newInstance(component, nil, testTimeout)
		var calls sync.WaitGroup
		for _, limit := range []time.Duration{time.Second, 3 * time.Second, testTimeout} {
			calls.Go(func() {
				took, err := component.callWithin(i, limit)
				if status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "Init") && limit != testTimeout {
					t.Errorf("a call failed with %v", err)
				}
				if took != limit {
					t.Errorf("a call with %v failed after %v", limit, took)
				}
			})
		}
		calls.Wait()
	})
}

func TestInitIsSentAgainAfterOneThatHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		component := &forgetful{answerInit: hangs}
		i := newInstance(component, nil, testTimeout)
		if _, err := component.callWithin(i, testTimeout); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("a call failed with %v", err)
		}
		synctest.Wait()
		component.answerInit = func(context.Context) error { return nil }
		if _, err := component.callWithin(i, testTimeout); err != nil {
			t.Errorf("a call failed with %v", err)
		}
	})
}

// Others may wait for the same Init.
func TestInitOutlivesTheCallThatBeganIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		component := &forgetful{answerInit: func(ctx context.Context) error {
			select {
			case <-time.After(2 * time.Second):
				return nil
			case <-ctx.Done():
				return hangs(ctx)
			}
		}}
		i := newInstance(component, nil, testTimeout)
		left := make(chan error, 1)
		go func() {
			_, err := component.callWithin(i, time.Second)
			left <- err
		}()
		synctest.Wait()
		if took, err := component.callWithin(i, testTimeout); err != nil || took != 2*time.Second {
			t.Errorf("the call that stayed ended after %v with %v", took, err)
		}
		if err := <-left; status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("the call that left ended with %v", err)
		}
		if component.inits != 1 {
			t.Errorf("Init was sent %d times", component.inits)
		}
	})
}

// Its refusal was on the way while another call repeated Init.
func TestACallRefusedBeforeAnInitThatSucceededSendsNone(t *testing.T) {
	component := &forgetful{answerInit: func(context.Context) error { return nil }}
	i := newInstance(component, nil, testTimeout)
	seen := i.generation.Load()
	for range 2 {
		if err := i.initAfter(t.Context(), seen); err != nil {
			t.Fatal(err)
		}
	}
	if component.inits != 1 {
		t.Errorf("Init was sent %d times", component.inits)
	}
}
