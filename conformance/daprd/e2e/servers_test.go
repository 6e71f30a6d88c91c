package e2e

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// startRedis starts an empty Redis for this test.
func startRedis(t *testing.T) (address string, redis *process) {
	t.Helper()
	port := freePort(t)
	address = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	return address, startRedisIn(t, t.TempDir(), port)
}

// startRedisIn starts it with the data that SAVE left in folder.
func startRedisIn(t *testing.T, folder string, port int) *process {
	t.Helper()
	redis := start(t, "redis", nil, "redis-server", "--port", strconv.Itoa(port), "--bind", "127.0.0.1",
		"--save", "", "--appendonly", "no", "--dir", folder)
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	eventually(t, readyTimeout, "Redis answers", func() error {
		if reply, err := redisCommand(address, "PING"); err != nil || reply != "+PONG" {
			return fails("%q, %v", reply, err)
		}
		return nil
	})
	return redis
}

// sockets makes a component socket folder, short enough for a socket's path.
func sockets(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "lh")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}

// startLeasehold serves these stores (as --store takes them) in folder, and
// returns once their sockets accept connections.
func startLeasehold(t *testing.T, folder string, stores []string, args ...string) *process {
	t.Helper()
	arguments := []string{"serve", "--socket-folder", folder}
	for _, store := range stores {
		arguments = append(arguments, "--store", store)
	}
	leasehold := start(t, "leasehold", nil, leaseholdBinary(t), append(arguments, args...)...)
	for _, store := range stores {
		waitForSocket(t, leasehold, socketOf(folder, store))
	}
	return leasehold
}

// startLeaseholdSidecar serves the Dapr API over the stores of this YAML.
func startLeaseholdSidecar(t *testing.T, resources string, env []string, args ...string) *sidecar {
	t.Helper()
	httpPort, grpcPort := freePort(t), freePort(t)
	process := start(t, "leasehold-sidecar", env, leaseholdBinary(t), append([]string{
		"sidecar", "--app-id", "app", "--resources-path", resources,
		"--dapr-listen-addresses", "127.0.0.1",
		"--dapr-http-port", strconv.Itoa(httpPort),
		"--dapr-grpc-port", strconv.Itoa(grpcPort),
	}, args...)...)
	s := newSidecar(t, process, httpPort, grpcPort)
	s.waitReady()
	return s
}

func leaseholdBinary(t *testing.T) string {
	t.Helper()
	return binary(t, "LEASEHOLD_BIN", "../../../target/debug/leasehold")
}

func waitForSocket(t *testing.T, server *process, socket string) {
	t.Helper()
	eventually(t, readyTimeout, "a socket of "+server.name+" accepts connections", func() error {
		if !server.running() {
			t.Fatalf("%s exited", server.name)
		}
		conn, err := net.DialTimeout("unix", socket, time.Second)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
}

// socketOf is where `--store KIND[=NAME]` listens.
func socketOf(folder, store string) string {
	name := store
	for i, c := range store {
		if c == '=' {
			name = store[i+1:]
		}
	}
	return filepath.Join(folder, name+".sock")
}

// etcd is a single etcd for this test, which can be started again with its
// data.
type etcd struct {
	// address is host:port, as clients need it.
	address          string
	peerURL, dataDir string
	process          *process
}

// startEtcd starts an empty one.
func startEtcd(t *testing.T) *etcd {
	t.Helper()
	e := &etcd{
		address: net.JoinHostPort("127.0.0.1", strconv.Itoa(freePort(t))),
		peerURL: "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(freePort(t))),
		dataDir: t.TempDir(),
	}
	e.start(t)
	return e
}

func (e *etcd) start(t *testing.T) {
	t.Helper()
	client := "http://" + e.address
	e.process = start(t, "etcd", nil, "etcd", "--name", "e2e", "--data-dir", e.dataDir,
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", e.peerURL, "--initial-advertise-peer-urls", e.peerURL,
		"--initial-cluster", "e2e="+e.peerURL)
	eventually(t, readyTimeout, "etcd is healthy", func() error {
		response, err := http.Get(client + "/health")
		if err != nil {
			return err
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fails("status %d", response.StatusCode)
		}
		return nil
	})
}
