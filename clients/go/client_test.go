package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasehold/leasehold/clients/go"
	"github.com/leasehold/leasehold/clients/go/internal/stage"
)

// shortWork holds a lock until a CheckLocks has confirmed it, so that all three calls are made.
func shortWork(t *testing.T, locks *leasehold.Locks) error {
	t.Helper()
	return locks.Do(t.Context(), fresh(t), func(_ context.Context, lock *leasehold.Lock) error {
		for before := lock.ValidFor(); ; time.Sleep(10 * time.Millisecond) {
			valid := lock.ValidFor()
			if valid == 0 || valid > before {
				return lock.Check()
			}
			before = valid
		}
	}, leasehold.TTL(4*time.Second))
}

// This one is not parallel: it changes the environment.
func TestTheAddressAndTokenComeFromTheEnvironment(t *testing.T) {
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			t.Setenv("DAPR_API_TOKEN", "a-secret") // the sidecar expects it, too
			s := ownStage(t, backend)
			for _, variables := range [][2]string{
				{"", strconv.Itoa(s.GRPCPort)},
				{s.Address(), "1"}, // the endpoint takes precedence
				{"http://" + s.Address(), "1"},
			} {
				t.Setenv("DAPR_GRPC_ENDPOINT", variables[0])
				t.Setenv("DAPR_GRPC_PORT", variables[1])
				if err := shortWork(t, clientOf(t)); err != nil {
					t.Errorf("%v: %v", variables, err)
				}
			}
			if err := shortWork(t, clientOf(t, leasehold.WithAPIToken("another"))); refusal(t, err).Reason != "UNAUTHENTICATED" {
				t.Errorf("another token: %v", err)
			}
			t.Setenv("DAPR_API_TOKEN", "another")
			if err := shortWork(t, clientOf(t, leasehold.WithAPIToken("a-secret"))); err != nil {
				t.Errorf("a token that was given to the client: %v", err)
			}
		})
	}
}

func TestAChannelOfTheCallerIsUsedAndLeftOpen(t *testing.T) {
	onEach(t, func(t *testing.T, s theStage) {
		conn, err := grpc.NewClient(s.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		for range 2 { // the second client finds it open
			locks, err := leasehold.New(stage.Store, leasehold.WithConn(conn))
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(shortWork(t, locks), locks.Close()); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestAClosedClientEndsItsLocksAndWaits(t *testing.T) {
	onEach(t, func(t *testing.T, s theStage) {
		conn, err := grpc.NewClient(s.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		for _, locks := range []*leasehold.Locks{s.client(t), clientOf(t, leasehold.WithConn(conn))} {
			name := fresh(t)
			w := start(t, locks, name)
			w.begun(t)
			waited := make(chan error, 1)
			go func() {
				_, err := locks.Lock(t.Context(), name)
				waited <- err
			}()
			s.awaitWaiters(t, name, 1)
			if err := locks.Close(); err != nil {
				t.Fatal(err)
			}
			w.lost(t, leasehold.CauseDisconnected)
			_, later := locks.TryLock(t.Context(), name)
			for _, err := range []error{<-waited, later} {
				if refused := refusal(t, err); refused.Reason != "CANCELLED" || refused.Message != "the client is closed" {
					t.Errorf("it is refused with %v", err)
				}
			}
			if _, err := s.client(t).Lock(t.Context(), name, leasehold.Wait(patience)); err != nil {
				t.Errorf("the next in line: %v", err)
			}
		}
	})
}

func TestASidecarThatIsGoneIsUnavailable(t *testing.T) {
	t.Parallel()
	conn, err := grpc.NewClient("127.0.0.1:1", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for message, option := range map[string]leasehold.ClientOption{
		`no sidecar at 127.0.0.1:1: connection refused; start "leasehold sidecar", or give WithEndpoint another address`:      leasehold.WithEndpoint("127.0.0.1:1"),
		`no sidecar: connection refused; start "leasehold sidecar", or check the address of the connection given by WithConn`: leasehold.WithConn(conn),
	} {
		err := shortWork(t, clientOf(t, option))
		if refused := refusal(t, err); refused.Reason != "UNAVAILABLE" || refused.Message != message || errors.Is(err, leasehold.ErrNotAcquired) {
			t.Errorf("it is refused with %v", err)
		}
	}
}

func TestAnHTTPPortIsNamed(t *testing.T) {
	onEach(t, func(t *testing.T, s theStage) {
		address := fmt.Sprintf("127.0.0.1:%d", s.HTTPPort)
		refused := refusal(t, shortWork(t, clientOf(t, leasehold.WithEndpoint(address))))
		if !strings.HasPrefix(refused.Message, address+" is the sidecar's HTTP port; ") || !strings.Contains(refused.Message, "DAPR_GRPC_PORT") {
			t.Errorf("it is refused with %v", refused)
		}
	})
}

// This one is not parallel: it changes the environment.
func TestTheAddressOfTheEnvironmentIsCheckedAndNamed(t *testing.T) {
	for _, bad := range [][2]string{
		{"DAPR_GRPC_PORT", "abc"}, {"DAPR_GRPC_PORT", "0"}, {"DAPR_GRPC_PORT", "65536"},
		{"DAPR_GRPC_ENDPOINT", "127.0.0.1"}, {"DAPR_GRPC_ENDPOINT", "127.0.0.1:abc"},
	} {
		t.Setenv("DAPR_GRPC_ENDPOINT", "")
		t.Setenv(bad[0], bad[1])
		_, err := leasehold.New(stage.Store)
		if refused := refusal(t, err); refused.Reason != "INVALID_REQUEST" || !strings.HasPrefix(refused.Message, bad[0]+" ") {
			t.Errorf("%v is refused with %v", bad, err)
		}
		if err := shortWork(t, clientOf(t, leasehold.WithEndpoint("127.0.0.1:1"))); refusal(t, err).Reason != "UNAVAILABLE" {
			t.Errorf("%v is used in spite of WithEndpoint: %v", bad, err)
		}
	}
	t.Setenv("DAPR_GRPC_ENDPOINT", "")
	t.Setenv("DAPR_GRPC_PORT", "1")
	const message = `no sidecar at 127.0.0.1:1: connection refused; start "leasehold sidecar", or set DAPR_GRPC_ENDPOINT or DAPR_GRPC_PORT`
	if err := shortWork(t, clientOf(t)); refusal(t, err).Message != message {
		t.Errorf("it is refused with %v", err)
	}
}

func TestABadAddressIsNamed(t *testing.T) {
	t.Parallel()
	for _, endpoint := range []string{"", "127.0.0.1", "ftp://host:1", "http://", "http://host:1/path", "host:", "host:abc", "http://host:0"} {
		_, err := leasehold.New(stage.Store, leasehold.WithEndpoint(endpoint))
		if refused := refusal(t, err); refused.Reason != "INVALID_REQUEST" || !strings.HasPrefix(refused.Message, "endpoint") {
			t.Errorf("%q is refused with %v", endpoint, err)
		}
	}
	if _, err := leasehold.New(""); refusal(t, err).Reason != "INVALID_REQUEST" {
		t.Errorf("a store without a name is refused with %v", err)
	}
	for _, endpoint := range []string{"host:1", "http://host", "http://host:1/", "https://host", "[::1]:1", "http://[::1]", "unix:/a/b"} {
		locks, err := leasehold.New(stage.Store, leasehold.WithEndpoint(endpoint))
		if err != nil {
			t.Errorf("%q is refused with %v", endpoint, err)
			continue
		}
		_ = locks.Close()
	}
}

func ExampleLocks_Do() {
	locks, err := leasehold.New("lockstore")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = locks.Close() }()
	err = locks.Do(context.Background(), "order-1", func(ctx context.Context, lock *leasehold.Lock) error {
		return nil // charge(ctx, order, lock.Token())
	}, leasehold.Wait(10*time.Second), leasehold.Label("invoice run"))
	switch {
	case errors.Is(err, leasehold.ErrNotAcquired):
		fmt.Println("somebody else holds the lock")
	case errors.Is(err, leasehold.ErrLockLost):
		fmt.Println("stopped in the middle")
	}
}
