package e2e

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// sdksTimeout bounds one run of the programs: several times what a busy
// machine takes.
const sdksTimeout = 6 * time.Minute

// sdkKinds are the stores that the SDKs' programs run on: those that
// LEASEHOLD_BACKENDS names, or all.
func sdkKinds(t *testing.T) []string {
	t.Helper()
	named := os.Getenv("LEASEHOLD_BACKENDS")
	if named == "" {
		return slices.Sorted(maps.Keys(kinds))
	}
	asked := strings.Split(named, ",")
	for _, kind := range asked {
		if kinds[kind] == nil {
			t.Fatalf("LEASEHOLD_BACKENDS: there is no %q", kind)
		}
	}
	return asked
}

// The SDKs' programs pass unchanged on every store, over both ways in.
func TestSDKs(t *testing.T) {
	t.Parallel()
	runSDKs(t, nil, "--setup-only")

	served := sdkKinds(t)
	var components []component
	for _, kind := range served {
		components = append(components, kinds[kind](t, kind))
	}
	address, doomed := startRedis(t)
	components = append(components, userComponent(t, "redis", "down", map[string]string{"redisHost": address}))
	yaml := resources(t, components...)
	token := []string{"DAPR_API_TOKEN=right"}

	folder := sockets(t)
	startLeasehold(t, folder, served)
	throughDaprd := startDaprd(t, daprdOptions{sockets: folder, resources: yaml, env: token})
	throughSidecar := startLeaseholdSidecar(t, yaml, token)
	doomed.kill()

	for name, s := range map[string]*sidecar{"daprd": throughDaprd, "sidecar": throughSidecar} {
		for i, kind := range served {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				environment := append(s.sdkEnvironment(kind), token...)
				if i == 0 { // once is enough: the outage has a store of its own
					environment = append(environment, "LOCK_STORE_DOWN=down")
				}
				runSDKs(t, environment)
			})
		}
	}
	for _, kind := range served {
		for _, program := range []string{"alpha2", "inspection"} {
			t.Run(program+"/"+kind, func(t *testing.T) {
				t.Parallel()
				runSDKs(t, append(throughSidecar.sdkEnvironment(kind), token...), "--"+program)
			})
		}
	}
}

// sdkEnvironment is what points an SDK at this server.
func (d *sidecar) sdkEnvironment(store string) []string {
	return []string{
		"DAPR_GRPC_PORT=" + strconv.Itoa(d.grpcPort),
		"DAPR_HTTP_PORT=" + strconv.Itoa(d.httpPort),
		"LOCK_STORE=" + store,
	}
}

func runSDKs(t *testing.T, environment []string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), sdksTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, "../../sdk/run", args...)
	command.WaitDelay = time.Second // for the program that the script runs
	command.Env = append(os.Environ(), environment...)
	output, err := command.CombinedOutput()
	t.Logf("%s", output)
	if err != nil {
		t.Error(err)
	}
}
