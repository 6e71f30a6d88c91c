package e2e

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	runtime "github.com/dapr/dapr/pkg/proto/runtime/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// daprd is a running sidecar with its two APIs.
type daprd struct {
	*process
	httpAddress string
	grpcPort    int
	grpc, http  api
}

type daprdOptions struct {
	// appID is "app" if empty.
	appID string
	// resources is the folder of the component YAML.
	resources string
	// sockets is the folder of the component sockets.
	sockets string
	args    []string
	env     []string
}

// startDaprd starts the sidecar and returns once it serves.
func startDaprd(t *testing.T, options daprdOptions) *daprd {
	t.Helper()
	d := launchDaprd(t, options)
	d.waitReady()
	return d
}

// launchDaprd starts the sidecar without waiting.
func launchDaprd(t *testing.T, options daprdOptions) *daprd {
	t.Helper()
	if options.appID == "" {
		options.appID = "app"
	}
	httpPort, grpcPort := freePort(t), freePort(t)
	process := start(t, "daprd-"+options.appID,
		append(options.env, "DAPR_COMPONENTS_SOCKETS_FOLDER="+options.sockets),
		binary(t, "DAPRD_BIN", "../../../target/daprd/daprd"),
		append([]string{
			"--app-id", options.appID,
			"--resources-path", options.resources,
			"--dapr-listen-addresses", "127.0.0.1",
			"--dapr-http-port", strconv.Itoa(httpPort),
			"--dapr-grpc-port", strconv.Itoa(grpcPort),
			"--dapr-internal-grpc-port", strconv.Itoa(freePort(t)),
			"--enable-metrics=false",
		}, options.args...)...)
	conn, err := grpc.NewClient(net.JoinHostPort("127.0.0.1", strconv.Itoa(grpcPort)),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(httpPort))
	return &daprd{
		process:     process,
		httpAddress: address,
		grpcPort:    grpcPort,
		grpc:        grpcAPI{runtime.NewDaprClient(conn)},
		http:        httpAPI{"http://" + address},
	}
}

func (d *daprd) waitReady() {
	d.t.Helper()
	eventually(d.t, readyTimeout, "daprd is ready", func() error {
		if !d.running() {
			d.t.Fatal("daprd exited")
		}
		return d.healthy()
	})
}

func (d *daprd) healthy() error {
	client := http.Client{Timeout: time.Second}
	response, err := client.Get("http://" + d.httpAddress + "/v1.0/healthz/outbound")
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusNoContent {
		return fmt.Errorf("healthz answered %d", response.StatusCode)
	}
	return nil
}

// reload sends SIGHUP, at which daprd starts anew inside its process: it
// discovers the sockets and reads the YAML again.
func (d *daprd) reload() {
	d.t.Helper()
	lives := d.lives()
	d.signal(syscall.SIGHUP)
	eventually(d.t, readyTimeout, "daprd starts anew", func() error {
		if d.lives() == lives {
			return fails("still the old one")
		}
		return d.healthy()
	})
}

// apis are both ways into the same daprd.
func (d *daprd) apis() map[string]api {
	return map[string]api{"grpc": d.grpc, "http": d.http}
}

// lives counts how often daprd has finished starting.
func (d *daprd) lives() int {
	return strings.Count(d.logText(), "dapr initialized. Status: Running")
}
