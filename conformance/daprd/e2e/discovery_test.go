package e2e

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// daprd waits for sockets only at its start: a component that is late needs a
// reload, and component YAML of its type before that stops daprd.
func TestLeaseholdStartsLate(t *testing.T) {
	t.Parallel()
	folder := sockets(t)
	yaml := t.TempDir()
	d := startDaprd(t, daprdOptions{sockets: folder, resources: yaml})
	_, err := d.grpc.tryLock("locks", "r", "a", 30)
	expectRefusal(t, err, "lock store is not configured", "FailedPrecondition")
	startLeasehold(t, folder, []string{"memory"})
	// Not before the socket is known: hot reload stops daprd at a type that
	// it cannot find.
	d.reload()
	write(t, yaml+"/locks.yaml", userComponent(t, "memory", "locks", nil))
	eventually(t, 15*time.Second, "the store loads", func() error {
		_, err := d.http.tryLock("locks", "r", "a", 30)
		return err
	})
}

// A socket that a crash left behind hangs daprd's discovery. leasehold puts a
// live one in its place.
func TestStaleSocketIsReplaced(t *testing.T) {
	t.Parallel()
	folder := sockets(t)
	startLeasehold(t, folder, []string{"memory"}).kill()
	if _, err := os.Stat(socketOf(folder, "memory")); err != nil {
		t.Fatalf("the crash left no socket behind: %v", err)
	}
	startLeasehold(t, folder, []string{"memory"})
	d := startDaprd(t, daprdOptions{sockets: folder, resources: resources(t, userComponent(t, "memory", "locks", nil))})
	expectTry(t, d.grpc, "locks", "r", "a", 30, true)
}

// This is the case that docs/dapr.md warns of. If it fails, remove the warning. Any
// component's stale socket keeps daprd from starting. With a live server in its
// place daprd starts, so nothing else is the cause here.
func TestStaleSocketHangsDaprd(t *testing.T) {
	t.Parallel()
	folder := sockets(t)
	startLeasehold(t, folder, []string{"memory"})
	listener, err := net.Listen("unix", socketOf(folder, "stale"))
	if err != nil {
		t.Fatal(err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = listener.Close()
	d := launchDaprd(t, daprdOptions{sockets: folder, resources: resources(t, userComponent(t, "memory", "locks", nil))})
	for until := time.Now().Add(3 * time.Second); time.Now().Before(until); time.Sleep(pollInterval) {
		if !d.running() {
			t.Fatal("daprd exited: update docs/dapr.md")
		}
		if d.healthy() == nil {
			t.Fatal("daprd started: update docs/dapr.md")
		}
	}
	startLeasehold(t, folder, []string{"memory=stale"})
	d.waitReady()
	expectTry(t, d.grpc, "locks", "r", "a", 30, true)
}

// A type that no socket serves stops daprd, with a message that names it: at
// its start, and when hot reload brings it.
func TestUnknownTypeStopsDaprd(t *testing.T) {
	t.Parallel()
	const message = "couldn't find lock store lock.nowhere/v1"
	nowhere := func() component { return userComponent(t, "memory", "nowhere", nil).ofType("lock.nowhere") }
	t.Run("at its start", func(t *testing.T) {
		folder := sockets(t)
		startLeasehold(t, folder, []string{"memory"})
		launchDaprd(t, daprdOptions{sockets: folder, resources: resources(t, nowhere())}).exitsWith(message)
	})
	t.Run("when hot reload brings it", func(t *testing.T) {
		folder := sockets(t)
		startLeasehold(t, folder, []string{"memory"})
		yaml := resources(t, userComponent(t, "memory", "locks", nil))
		d := startDaprd(t, daprdOptions{sockets: folder, resources: yaml})
		write(t, filepath.Join(yaml, "nowhere.yaml"), nowhere())
		d.exitsWith(message)
	})
}
