package e2e

import (
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
)

// The SDKs' programs pass over this daprd, unchanged, on every store.
func TestSDKs(t *testing.T) {
	folder := sockets(t)
	var served []string
	var components []component
	for kind, newComponent := range kinds {
		served = append(served, kind)
		components = append(components, newComponent(t, kind))
	}
	address, doomed := startRedis(t)
	components = append(components, userComponent(t, "redis", "down", map[string]string{"redisHost": address}))
	startLeasehold(t, folder, served)
	d := startDaprd(t, daprdOptions{
		sockets: folder, resources: resources(t, components...), env: []string{"DAPR_API_TOKEN=right"},
	})
	doomed.kill()

	for i, kind := range served {
		t.Run(kind, func(t *testing.T) {
			environment := d.sdkEnvironment(t, kind, "right")
			if i == 0 { // once is enough: the outage has a store of its own
				environment = append(environment, "LOCK_STORE_DOWN=down")
			}
			runSDKs(t, environment)
		})
	}
}

// sdkEnvironment is what points an SDK at this sidecar.
func (d *daprd) sdkEnvironment(t *testing.T, store, token string) []string {
	t.Helper()
	_, httpPort, err := net.SplitHostPort(d.httpAddress)
	if err != nil {
		t.Fatal(err)
	}
	return []string{
		"DAPR_GRPC_PORT=" + strconv.Itoa(d.grpcPort), "DAPR_HTTP_PORT=" + httpPort,
		"DAPR_API_TOKEN=" + token, "LOCK_STORE=" + store,
	}
}

func runSDKs(t *testing.T, environment []string, args ...string) {
	t.Helper()
	command := exec.Command("../../sdk/run", args...)
	command.Env = append(os.Environ(), environment...)
	output, err := command.CombinedOutput()
	t.Logf("%s", output)
	if err != nil {
		t.Error(err)
	}
}
