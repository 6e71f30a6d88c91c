package e2e

import (
	"bytes"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	common "github.com/dapr/dapr/pkg/proto/common/v1"
	runtime "github.com/dapr/dapr/pkg/proto/runtime/v1"
)

// plainComponent is a component of daprd's own.
func plainComponent(name, kind string) component {
	c := component{APIVersion: "dapr.io/v1alpha1", Kind: "Component"}
	c.Metadata.Name, c.Spec.Type, c.Spec.Version = name, kind, "v1"
	return c
}

// startFront starts a real daprd with state and secrets, and leasehold's
// sidecar in front of it, whose store needs a secret that only daprd knows.
func startFront(t *testing.T) (front *sidecar, redisAddress string) {
	t.Helper()
	const password = "told-by-daprd"
	address, _ := startRedis(t)
	if reply, err := redisCommand(address, "CONFIG", "SET", "requirepass", password); err != nil || reply != "+OK" {
		t.Fatalf("set Redis's password: %q, %v", reply, err)
	}
	behind := startDaprd(t, daprdOptions{
		sockets: sockets(t),
		resources: resources(t,
			plainComponent("state", "state.in-memory"), plainComponent("secrets", "secretstores.local.env")),
		env: []string{"REDIS_PASSWORD=" + password},
	})
	yaml := t.TempDir()
	locks := userComponent(t, "redis", "locks", map[string]string{"redisHost": address})
	locks.Spec.Metadata = append(locks.Spec.Metadata, metadataItem{
		Name: "redisPassword", SecretKeyRef: &secretKeyRef{Name: "REDIS_PASSWORD", Key: "REDIS_PASSWORD"},
	})
	locks.Auth = &auth{SecretStore: "secrets"}
	write(t, filepath.Join(yaml, "locks.yaml"), locks)
	front = startLeaseholdSidecar(t, yaml, nil,
		"--daprd-http-endpoint", behind.httpAddress,
		"--daprd-grpc-endpoint", "127.0.0.1:"+strconv.Itoa(behind.grpcPort))
	return front, address
}

// leasehold serves the locks, over a Redis whose password daprd's secret store
// told it.
func TestSidecarInFrontOfDaprdServesLocks(t *testing.T) {
	front, _ := startFront(t)
	for protocol, a := range front.apis() {
		eventually(t, readyTimeout, "the store is ready", func() error {
			return tried(a, "locks", protocol, "a", 60, true)
		})
		expectTry(t, a, "locks", protocol, "b", 60, false)
		expectUnlock(t, a, "locks", protocol, "b", belongsToOthers)
		expectUnlock(t, a, "locks", protocol, "a", released)
	}
}

// All else is daprd's: state, secrets, metadata, health.
func TestSidecarInFrontOfDaprdPassesTheRestOn(t *testing.T) {
	front, _ := startFront(t)
	_, err := front.client.SaveState(t.Context(), &runtime.SaveStateRequest{
		StoreName: "state", States: []*common.StateItem{{Key: "k", Value: []byte(`"v"`)}},
	})
	if err != nil {
		t.Fatalf("save state: %v", err)
	}
	if got := get(t, front, "/v1.0/state/state/k"); got != `"v"` {
		t.Errorf("state over HTTP is %s", got)
	}
	if got := get(t, front, "/v1.0/secrets/secrets/REDIS_PASSWORD"); got != `{"REDIS_PASSWORD":"told-by-daprd"}` {
		t.Errorf("the secret over HTTP is %s", got)
	}
	metadata, err := front.client.GetMetadata(t.Context(), &runtime.GetMetadataRequest{})
	if err != nil || metadata.GetId() != "app" {
		t.Errorf("the metadata is %v, %v", metadata, err)
	}
}

func get(t *testing.T, s *sidecar, path string) string {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second}
	response, err := client.Get("http://" + s.httpAddress + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("GET %s answered %d %s, %v", path, response.StatusCode, body, err)
	}
	return string(bytes.TrimSpace(body))
}
