package pluggablelock

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dapr/components-contrib/lock"
	"github.com/dapr/kit/logger"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var (
	tryRequest    = &lock.TryLockRequest{ResourceID: "lock||app||r", LockOwner: "me", ExpiryInSeconds: 7}
	unlockRequest = &lock.UnlockRequest{ResourceID: "lock||app||r", LockOwner: "me"}
)

func TestInitSendsThePropertiesUnchanged(t *testing.T) {
	fake := &fakeComponent{}
	s := startStore(t, fake, map[string]string{"redisHost": "h:1", "KeyPrefix": "none"})
	if len(fake.inits) != 1 || fake.inits[0]["redisHost"] != "h:1" || fake.inits[0]["KeyPrefix"] != "none" {
		t.Errorf("Init carried %v", fake.inits)
	}
	if len(s.features) != 1 || s.features[0] != "FENCING" {
		t.Errorf("features are %v", s.features)
	}
}

// Regression: a component whose Features failed was not loaded.
func TestInitSucceedsWithoutFeatures(t *testing.T) {
	fake := &fakeComponent{featuresError: status.Error(codes.Unimplemented, "unknown method Features")}
	s := startStore(t, fake, nil)
	if len(s.features) != 0 {
		t.Errorf("features are %v", s.features)
	}
	if response, err := s.TryLock(t.Context(), tryRequest); err != nil || !response.Success {
		t.Errorf("TryLock answered %v, %v", response, err)
	}
}

func TestTryLockPassesOwnerAndExpiry(t *testing.T) {
	fake := &fakeComponent{}
	s := startStore(t, fake, nil)
	response, err := s.TryLock(t.Context(), tryRequest)
	if err != nil || !response.Success {
		t.Fatalf("TryLock answered %v, %v", response, err)
	}
	sent := fake.tries[0]
	if sent.GetResourceId() != "lock||app||r" || sent.GetLockId() != "me" || sent.GetTtl().AsDuration() != 7*time.Second {
		t.Errorf("TryLock sent %v", sent)
	}
}

func TestTryLockOfAHeldResourceIsNoError(t *testing.T) {
	fake := &fakeComponent{}
	s := startStore(t, fake, nil)
	fake.answerWith(reasonError(codes.Aborted, reasonResourceLocked, nil))
	response, err := s.TryLock(t.Context(), tryRequest)
	if err != nil || response.Success {
		t.Errorf("TryLock answered %v, %v", response, err)
	}
}

func TestTryLockFailureNamesTheReasonAndKeepsTheCode(t *testing.T) {
	fake := &fakeComponent{}
	s := startStore(t, fake, nil)
	fake.answerWith(reasonError(codes.Unavailable, "STORE_UNAVAILABLE", nil))
	_, err := s.TryLock(t.Context(), tryRequest)
	if err == nil || !strings.Contains(err.Error(), "STORE_UNAVAILABLE") || status.Code(err) != codes.Unavailable {
		t.Errorf("TryLock failed with %v", err)
	}
}

func TestAbortedWithoutAReasonIsAFailure(t *testing.T) {
	fake := &fakeComponent{}
	s := startStore(t, fake, nil)
	fake.answerWith(status.Error(codes.Aborted, "for another reason"))
	if response, err := s.TryLock(t.Context(), tryRequest); err == nil {
		t.Errorf("TryLock answered %v", response)
	}
}

func TestUnlockStatuses(t *testing.T) {
	notFound := func(held string) error {
		return reasonError(codes.NotFound, reasonLockNotFound, map[string]string{"held": held})
	}
	cases := []struct {
		name   string
		answer error
		status lock.Status
		fails  bool
	}{
		{"released", nil, lock.Success, false},
		{"free", notFound("false"), lock.LockDoesNotExist, false},
		{"somebody else's", notFound("true"), lock.LockBelongsToOthers, false},
		{"unreachable", reasonError(codes.Unavailable, "STORE_UNAVAILABLE", nil), lock.InternalError, true},
		{"not found for another reason", status.Error(codes.NotFound, "a route"), lock.InternalError, true},
	}
	fake := &fakeComponent{}
	s := startStore(t, fake, nil)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			fake.answerWith(c.answer)
			response, err := s.Unlock(t.Context(), unlockRequest)
			if response.Status != c.status || (err != nil) != c.fails {
				t.Errorf("Unlock answered %v, %v", response, err)
			}
		})
	}
	if sent := fake.unlocks[0]; sent.GetLockId() != "me" || sent.GetForce() {
		t.Errorf("Unlock sent %v", sent)
	}
}

func TestAComponentThatHangsDoesNotHangTheApp(t *testing.T) {
	fake := &fakeComponent{}
	s := startStore(t, fake, map[string]string{"operationTimeout": "100ms"})
	s.timeout = 100 * time.Millisecond
	released := make(chan struct{})
	fake.answer = func(ctx context.Context) error {
		<-ctx.Done()
		close(released)
		return ctx.Err()
	}
	_, err := s.TryLock(t.Context(), tryRequest)
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("TryLock failed with %v", err)
	}
	select {
	case <-released:
	case <-time.After(5 * time.Second):
		t.Error("the component did not see that the caller has left")
	}
}

func TestCallTimeoutFollowsTheComponents(t *testing.T) {
	for value, want := range map[string]time.Duration{"": 7 * time.Second, "30s": 32 * time.Second} {
		properties := map[string]string{}
		if value != "" {
			properties["OperationTimeout"] = value
		}
		if got, err := callTimeout(properties); err != nil || got != want {
			t.Errorf("callTimeout(%v) is %v, %v", properties, got, err)
		}
	}
	for _, value := range []string{"5", "-1s", "0s", "soon"} {
		_, err := callTimeout(map[string]string{"operationTimeout": value})
		if err == nil || !strings.Contains(err.Error(), "operationTimeout") {
			t.Errorf("callTimeout with %q gave %v", value, err)
		}
	}
}

func TestPingAndCloseWithoutInit(t *testing.T) {
	s := newStore(logger.NewLogger("test"), nil)
	if err := s.Ping(t.Context()); err == nil {
		t.Error("Ping succeeded without a connection")
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close failed with %v", err)
	}
}

func TestPingReachesTheComponent(t *testing.T) {
	fake := &fakeComponent{}
	s := startStore(t, fake, nil)
	fake.forget()
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("Ping failed with %v", err)
	}
}

func TestCloseEndsTheCallsInFlight(t *testing.T) {
	fake := &fakeComponent{}
	s := startStore(t, fake, nil)
	entered := make(chan struct{})
	fake.answer = func(ctx context.Context) error {
		close(entered)
		<-ctx.Done()
		return ctx.Err()
	}
	failed := make(chan error, 1)
	go func() {
		_, err := s.TryLock(t.Context(), tryRequest)
		failed <- err
	}()
	<-entered
	if err := s.Close(); err != nil {
		t.Errorf("Close failed with %v", err)
	}
	if err := <-failed; status.Code(err) != codes.Canceled {
		t.Errorf("TryLock failed with %v", err)
	}
	if _, err := s.TryLock(t.Context(), tryRequest); err == nil {
		t.Error("TryLock was answered after Close")
	}
}
