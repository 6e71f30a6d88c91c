package e2e

import (
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	common "github.com/dapr/dapr/pkg/proto/common/v1"
	runtime "github.com/dapr/dapr/pkg/proto/runtime/v1"
)

// plainComponent is a component that daprd implements.
func plainComponent(name, kind string) component {
	c := component{APIVersion: "dapr.io/v1alpha1", Kind: "Component"}
	c.Metadata.Name, c.Spec.Type, c.Spec.Version = name, kind, "v1"
	return c
}

const password = "from-daprds-secret-store"

// front is a real daprd with state, secrets and pub/sub, and leasehold's
// sidecar in front of it, whose store needs a secret that only daprd has.
type front struct {
	*sidecar
	behind  *sidecar
	options daprdOptions
}

func startFront(t *testing.T) *front {
	t.Helper()
	address, _ := startRedis(t)
	if reply, err := redisCommand(address, "CONFIG", "SET", "requirepass", password); err != nil || reply != "+OK" {
		t.Fatalf("set Redis's password: %q, %v", reply, err)
	}
	options := daprdOptions{
		sockets: sockets(t),
		resources: resources(t,
			plainComponent("state-memory", "state.in-memory"),
			plainComponent("state-redis", "state.redis").withRedis(address),
			plainComponent("pubsub", "pubsub.in-memory"),
			plainComponent("secrets", "secretstores.local.env")),
		env:      []string{"REDIS_PASSWORD=" + password},
		httpPort: freePort(t),
		grpcPort: freePort(t),
	}
	behind := startDaprd(t, options)
	yaml := t.TempDir()
	locks := userComponent(t, "redis", "locks", nil)
	locks.Spec.Metadata = nil
	write(t, filepath.Join(yaml, "locks.yaml"), locks.withRedis(address))
	s := startLeaseholdSidecar(t, yaml, nil,
		"--daprd-http-endpoint", behind.httpAddress,
		"--daprd-grpc-endpoint", "127.0.0.1:"+strconv.Itoa(behind.grpcPort))
	return &front{sidecar: s, behind: behind, options: options}
}

// withRedis adds the address, and a password from the secret store.
func (c component) withRedis(address string) component {
	c.Spec.Metadata = append(c.Spec.Metadata,
		metadataItem{Name: "redisHost", Value: address},
		metadataItem{Name: "redisPassword", SecretKeyRef: &secretKeyRef{Name: "REDIS_PASSWORD", Key: "REDIS_PASSWORD"}})
	c.Auth = &auth{SecretStore: "secrets"}
	return c
}

// waitForLocks returns once the store has its secret and is ready.
func (f *front) waitForLocks() {
	f.t.Helper()
	eventually(f.t, readyTimeout, "the lock store is ready", func() error {
		_, err := f.grpc.unlock("locks", "nothing", "nobody")
		return err
	})
}

// The SDKs' programs: locks by leasehold, over a Redis whose password comes
// from daprd's secret store; state, secrets, pub/sub, metadata and health by daprd.
func TestSDKsThroughTheSidecarInFrontOfDaprd(t *testing.T) {
	t.Parallel()
	runSDKs(t, nil, "--setup-only")
	f := startFront(t)
	f.waitForLocks()
	runSDKs(t, append(f.sdkEnvironment("locks"),
		"DAPR_APP_ID=app",
		"STATE_STORES=state-memory,state-redis",
		"SECRET_STORE=secrets", "SECRET_KEY=REDIS_PASSWORD", "SECRET_VALUE="+password,
		"PUBSUB=pubsub",
	), "--passthrough")
	if !f.behind.running() {
		t.Fatal("daprd exited")
	}
	for _, program := range []string{"--alpha2", "--inspection"} {
		runSDKs(t, f.sdkEnvironment("locks"), program, "python", "go")
	}
}

// What an SDK waits for at its start is the whole of Dapr's API, so the health
// it sees is daprd's. leasehold's locks do not depend on it.
func TestHealthThroughTheSidecarIsDaprds(t *testing.T) {
	t.Parallel()
	f := startFront(t)
	f.waitForLocks()
	paths := []string{"/v1.0/healthz", "/v1.0/healthz/outbound"}
	for _, path := range paths {
		if status, body := get(t, f.sidecar, path); status != http.StatusNoContent {
			t.Errorf("while daprd is up %s answers %d %s", path, status, body)
		}
	}
	f.behind.kill()
	for _, path := range paths {
		eventually(t, recovery, path+" reports that daprd is down", func() error {
			status, body := get(t, f.sidecar, path)
			if status != http.StatusServiceUnavailable || !strings.Contains(body, "ERR_DAPRD_UNREACHABLE") {
				return fails("it answers %d %s", status, body)
			}
			return nil
		})
	}
	expectTry(t, f.grpc, "locks", "r", "a", 60, true)
	expectTry(t, f.http, "locks", "r", "b", 60, false)
	expectUnlock(t, f.http, "locks", "r", "a", released)

	startDaprd(t, f.options)
	eventually(t, recovery, "the health is good again", f.healthy)
}

// The state is the same over each protocol and server.
func TestSidecarInFrontOfDaprdPassesTheRestOn(t *testing.T) {
	t.Parallel()
	f := startFront(t)
	_, err := f.client.SaveState(t.Context(), &runtime.SaveStateRequest{
		StoreName: "state-memory", States: []*common.StateItem{{Key: "k", Value: []byte(`"v"`)}},
	})
	if err != nil {
		t.Fatalf("save state: %v", err)
	}
	for name, s := range map[string]*sidecar{"the sidecar": f.sidecar, "daprd": f.behind} {
		if status, got := get(t, s, "/v1.0/state/state-memory/k"); status != http.StatusOK || got != `"v"` {
			t.Errorf("%s returned the state as %d %s", name, status, got)
		}
	}
}

func get(t *testing.T, s *sidecar, path string) (status int, body string) {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second}
	response, err := client.Get("http://" + s.httpAddress + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}
