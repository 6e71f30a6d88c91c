package e2e

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

type daprdOptions struct {
	// stock is whether the connector is left out: the lock stores are Dapr's own.
	stock bool
	// appID is "app" if empty.
	appID string
	// resources is the folder of the component YAML.
	resources string
	// sockets is the folder of the component sockets.
	sockets string
	// httpPort and grpcPort are free ones if zero.
	httpPort, grpcPort int
	args               []string
	env                []string
}

// startDaprd starts the sidecar and returns once it serves.
func startDaprd(t *testing.T, options daprdOptions) *sidecar {
	t.Helper()
	d := launchDaprd(t, options)
	d.waitReady()
	return d
}

// launchDaprd starts the sidecar without waiting.
func launchDaprd(t *testing.T, options daprdOptions) *sidecar {
	t.Helper()
	if options.appID == "" {
		options.appID = "app"
	}
	if options.httpPort == 0 {
		options.httpPort, options.grpcPort = freePort(t), freePort(t)
	}
	httpPort, grpcPort := options.httpPort, options.grpcPort
	process := start(t, "daprd-"+options.appID,
		append(options.env, "DAPR_COMPONENTS_SOCKETS_FOLDER="+options.sockets),
		daprdBinary(t, options.stock),
		append([]string{
			"--app-id", options.appID,
			"--resources-path", options.resources,
			"--dapr-listen-addresses", "127.0.0.1",
			"--dapr-http-port", strconv.Itoa(httpPort),
			"--dapr-grpc-port", strconv.Itoa(grpcPort),
			"--dapr-internal-grpc-port", strconv.Itoa(freePort(t)),
			"--enable-metrics=false",
		}, options.args...)...)
	return newSidecar(t, process, httpPort, grpcPort)
}

func daprdBinary(t *testing.T, stock bool) string {
	t.Helper()
	if stock {
		return binary(t, "DAPRD_STOCK_BIN", "../../../target/daprd/daprd-stock")
	}
	return binary(t, "DAPRD_BIN", "../../../target/daprd/daprd")
}

// reload sends SIGHUP, at which daprd starts anew inside its process: it
// discovers the sockets and reads the YAML again.
func (d *sidecar) reload() {
	d.t.Helper()
	lives := 0
	eventually(d.t, readyTimeout, "daprd has started", func() error {
		// It is healthy a little earlier.
		if lives = d.lives(); lives == 0 {
			return fails("it has not finished")
		}
		return nil
	})
	d.signal(syscall.SIGHUP)
	eventually(d.t, readyTimeout, "daprd starts anew", func() error {
		if d.lives() == lives {
			return fails("it has not started anew")
		}
		return d.healthy()
	})
}

// lives counts how often daprd has finished starting.
func (d *sidecar) lives() int {
	return strings.Count(d.logText(), "dapr initialized. Status: Running")
}

// Regression: --version printed "edge", and each log line had ver=unknown.
func TestDaprdReportsItsVersion(t *testing.T) {
	t.Parallel()
	daprd := daprdBinary(t, false)
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", "github.com/dapr/dapr").Output()
	if err != nil {
		t.Fatal(err)
	}
	version := strings.TrimPrefix(strings.TrimSpace(string(module)), "v")
	output, err := exec.Command(daprd, "--version").Output()
	if err != nil || strings.TrimSpace(string(output)) != version {
		t.Errorf("--version printed %q (%v), want %s", output, err, version)
	}
	output, err = exec.Command(daprd, "--build-info").Output()
	if err != nil || !strings.Contains(string(output), "Version: "+version+"\nGit Commit: ") {
		t.Errorf("--build-info printed %q (%v)", output, err)
	}
}
