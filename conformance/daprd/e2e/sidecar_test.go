package e2e

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	runtime "github.com/dapr/dapr/pkg/proto/runtime/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// sidecar is a running server of the Dapr API: daprd, or leasehold's sidecar.
type sidecar struct {
	*process
	httpAddress        string
	httpPort, grpcPort int
	// client is the whole of Dapr's gRPC API; grpc and http are its locks.
	client     runtime.DaprClient
	grpc, http api
}

func newSidecar(t *testing.T, process *process, httpPort, grpcPort int) *sidecar {
	t.Helper()
	conn, err := grpc.NewClient(net.JoinHostPort("127.0.0.1", strconv.Itoa(grpcPort)),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	client := runtime.NewDaprClient(conn)
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(httpPort))
	return &sidecar{
		process:     process,
		httpAddress: address,
		httpPort:    httpPort,
		grpcPort:    grpcPort,
		client:      client,
		grpc:        grpcAPI{client},
		http:        httpAPI{"http://" + address},
	}
}

func (d *sidecar) waitReady() {
	d.t.Helper()
	eventually(d.t, readyTimeout, d.name+" is ready", func() error {
		if !d.running() {
			d.t.Fatalf("%s exited", d.name)
		}
		return d.healthy()
	})
}

func (d *sidecar) healthy() error {
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

// exitsWith waits until the sidecar ends by itself, with a failure whose text is in its log.
func (d *sidecar) exitsWith(message string) {
	d.t.Helper()
	select {
	case <-d.exited:
	case <-time.After(readyTimeout):
		d.t.Fatalf("%s runs on", d.name)
	}
	if code := d.cmd.ProcessState.ExitCode(); code <= 0 {
		d.t.Errorf("%s exited with %d", d.name, code)
	}
	if !strings.Contains(d.logText(), message) {
		d.t.Errorf("%s did not log %q", d.name, message)
	}
}

// apis are both ways into the same server.
func (d *sidecar) apis() map[string]api {
	return map[string]api{"grpc": d.grpc, "http": d.http}
}
