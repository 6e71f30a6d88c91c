package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/leasehold/leasehold/clients/go"
	"github.com/leasehold/leasehold/clients/go/fence"
	"github.com/leasehold/leasehold/clients/go/internal/stage"
)

const stateStore = "statestore"

// daprd is the URL of a daprd with a state store in its memory.
var daprd = sync.OnceValues(func() (string, error) {
	binary := os.Getenv("DAPRD")
	if binary == "" {
		binary = "../../../../target/daprd/daprd"
	}
	if _, err := os.Stat(binary); err != nil {
		return "", fmt.Errorf("%w: conformance/daprd/build builds a daprd: %w", errMissing, err)
	}
	path, err := folder("daprd")
	if err != nil {
		return "", err
	}
	component := "apiVersion: dapr.io/v1alpha1\nkind: Component\nmetadata: { name: " + stateStore +
		" }\nspec: { type: state.in-memory, version: v1, metadata: [] }\n"
	if err := os.WriteFile(filepath.Join(path, "state.yaml"), []byte(component), 0o600); err != nil {
		return "", err
	}
	// Below those that the system gives to connections: one could take it before daprd listens there.
	var ports []int
	for _, port := range rand.Perm(768) {
		port += 32_000
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = listener.Close()
			ports = append(ports, port)
		}
		if len(ports) == 3 {
			break
		}
	}
	if len(ports) < 3 {
		return "", errors.New("no free port")
	}
	arguments := []string{
		"--app-id", "fences", "--resources-path", path, "--dapr-listen-addresses", "127.0.0.1", "--log-level", "fatal",
		"--enable-metrics=false", "--dapr-graceful-shutdown-seconds", "1",
	}
	for i, flag := range []string{"http", "grpc", "internal-grpc"} {
		arguments = append(arguments, fmt.Sprintf("--dapr-%s-port=%d", flag, ports[i]))
	}
	return fmt.Sprintf("http://127.0.0.1:%d", ports[0]), server(nil, "TERM", binary, arguments...)
})

func TestAStaleTokenIsRefusedByDaprState(t *testing.T) {
	endpoint, err := daprd()
	skipMissing(t, err)
	if err != nil {
		t.Fatal(err)
	}
	awaitDaprd(t, endpoint)
	state := &fence.State{Store: stateStore, Endpoint: endpoint}
	onEach(t, func(t *testing.T, s *stage.Stage, locks *leasehold.Locks) {
		newAccount := func() account {
			key := fresh(t)
			guarded := func(holder fence.Holder, balance int) error {
				return state.Update(context.Background(), holder, key, func(json.RawMessage) (any, error) { return balance, nil })
			}
			return account{guarded: guarded, read: func(t *testing.T) (balance int) {
				t.Helper()
				stored, err := state.Load(t.Context(), key)
				if err != nil || stored == nil {
					return 100 // nobody has saved it
				}
				if err := json.Unmarshal(stored.Value, &balance); err != nil {
					t.Fatal(err)
				}
				return balance
			}}
		}
		staleWriterLoses(t, s, locks, newAccount())

		plain := newAccount()
		key := fresh(t)
		plain.read = func(t *testing.T) (balance int) {
			t.Helper()
			balance = 100
			if text := request(t, http.MethodGet, endpoint+"/v1.0/state/"+stateStore+"/"+key, ""); len(text) > 0 {
				if err := json.Unmarshal(text, &balance); err != nil {
					t.Fatal(err)
				}
			}
			return balance
		}
		plain.write = func(t *testing.T, balance int) {
			t.Helper()
			request(t, http.MethodPost, endpoint+"/v1.0/state/"+stateStore, fmt.Sprintf(`[{"key":%q,"value":%d}]`, key, balance))
		}
		staleWriterWins(t, s, locks, plain)
	})
}

func awaitDaprd(t *testing.T, endpoint string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		response, err := http.Get(endpoint + "/v1.0/healthz/outbound")
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusNoContent {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("daprd does not answer: %v", err)
		}
	}
}

func request(t *testing.T, method, address, body string) []byte {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, address, bytes.NewBufferString(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= 300 {
		t.Fatalf("%s: %s %s %v", address, response.Status, text, err)
	}
	return text
}
