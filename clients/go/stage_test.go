package leasehold_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold/clients/go"
	"github.com/leasehold/leasehold/clients/go/internal/stage"
)

// patience limits everything that is polled or waited for.
const patience = 30 * time.Second

// shared has one stage for each backend, for the tests that leave it as it is.
var shared struct {
	sync.Mutex
	stages map[string]*stage.Stage
}

// theStage is a stage whose failures fail the test.
type theStage struct{ *stage.Stage }

func backends() []string {
	if chosen := os.Getenv("LEASEHOLD_BACKENDS"); chosen != "" {
		return strings.Split(chosen, ",")
	}
	return []string{"memory", "redis", "etcd"}
}

// onEach runs a test on every backend, with a stage that it shares with others.
func onEach(t *testing.T, test func(*testing.T, theStage)) {
	t.Parallel()
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			test(t, sharedStage(t, backend))
		})
	}
}

// aloneOnEach runs a test on every backend, with a stage of its own.
func aloneOnEach(t *testing.T, test func(*testing.T, theStage)) {
	t.Parallel()
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			test(t, ownStage(t, backend))
		})
	}
}

func ownStage(t *testing.T, backend string, environment ...string) theStage {
	t.Helper()
	s, err := stage.Start(backend, environment...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return theStage{s}
}

func sharedStage(t *testing.T, backend string) theStage {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.stages[backend] == nil {
		s, err := stage.Start(backend)
		if err != nil {
			t.Fatal(err)
		}
		if shared.stages == nil {
			shared.stages = map[string]*stage.Stage{}
		}
		shared.stages[backend] = s
	}
	return theStage{shared.stages[backend]}
}

func (s theStage) do(t *testing.T, command string) {
	t.Helper()
	if err := s.Do(command); err != nil {
		t.Fatal(err)
	}
}

func (s theStage) client(t *testing.T, options ...leasehold.ClientOption) *leasehold.Locks {
	t.Helper()
	return clientOf(t, append([]leasehold.ClientOption{leasehold.WithEndpoint(s.Address())}, options...)...)
}

// proxied is a client behind the proxy.
func (s theStage) proxied(t *testing.T) *leasehold.Locks {
	t.Helper()
	return clientOf(t, leasehold.WithEndpoint(s.ProxyAddress()))
}

func clientOf(t *testing.T, options ...leasehold.ClientOption) *leasehold.Locks {
	t.Helper()
	locks, err := leasehold.New(stage.Store, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close() })
	return locks
}

func (s theStage) inspect(t *testing.T, resource string) stage.LockState {
	t.Helper()
	state, err := s.Inspect(resource)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func (s theStage) force(t *testing.T, resource string) {
	t.Helper()
	if err := s.Force(resource); err != nil {
		t.Fatal(err)
	}
}

// awaitWaiters waits until this many callers wait for a lock.
func (s theStage) awaitWaiters(t *testing.T, resource string, count int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d wait for %s", count, resource), func() bool {
		return s.inspect(t, resource).Waiters == count
	})
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}
