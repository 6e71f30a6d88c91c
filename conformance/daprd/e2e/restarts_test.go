package e2e

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// recovery is how long daprd may fail calls once the component is back: the
// connector's longest reconnect delay, and what a busy machine adds.
const recovery = 10 * time.Second

// leasehold is killed and comes back. daprd does not send Init again, so one
// of two must: leasehold by its own YAML, or the connector. The locks are in
// Redis, where they belong to their owners all along.
func TestLeaseholdRestarts(t *testing.T) {
	for _, own := range []bool{false, true} {
		name := "initialised by the connector"
		if own {
			name = "initialised by its own YAML"
		}
		t.Run(name, func(t *testing.T) {
			address, _ := startRedis(t)
			folder := sockets(t)
			yaml := resources(t, userComponent(t, "redis", "locks", map[string]string{"redisHost": address}))
			var args []string
			if own {
				args = []string{"--resources-path", yaml}
			}
			leasehold := startLeasehold(t, folder, []string{"redis"}, args...)
			d := startDaprd(t, daprdOptions{sockets: folder, resources: yaml})
			expectTry(t, d.grpc, "locks", "r", "a", 60, true)

			leasehold.kill() // its socket stays behind
			if _, err := d.grpc.tryLock("locks", "r", "b", 30); err == nil {
				t.Error("a try was answered without leasehold")
			}
			startLeasehold(t, folder, []string{"redis"}, args...)

			eventually(t, recovery, "daprd reaches the new leasehold", func() error {
				return tried(d.grpc, "locks", "r", "b", 30, false)
			})
			expectUnlock(t, d.http, "locks", "r", "b", belongsToOthers)
			expectUnlock(t, d.http, "locks", "r", "a", released)
		})
	}
}

// Locks in memory end with their process, and the store is usable again.
func TestLeaseholdRestartsWithMemory(t *testing.T) {
	folder := sockets(t)
	leasehold := startLeasehold(t, folder, []string{"memory"})
	d := startDaprd(t, daprdOptions{sockets: folder, resources: resources(t, userComponent(t, "memory", "locks", nil))})
	expectTry(t, d.grpc, "locks", "r", "a", 60, true)
	leasehold.kill()
	startLeasehold(t, folder, []string{"memory"})
	eventually(t, recovery, "the resource is free", func() error {
		return tried(d.grpc, "locks", "r", "b", 30, true)
	})
	expectUnlock(t, d.grpc, "locks", "r", "a", belongsToOthers)
}

// A drained leasehold takes its sockets with it.
func TestLeaseholdStops(t *testing.T) {
	folder := sockets(t)
	leasehold := startLeasehold(t, folder, []string{"memory"})
	d := startDaprd(t, daprdOptions{sockets: folder, resources: resources(t, userComponent(t, "memory", "locks", nil))})
	expectTry(t, d.grpc, "locks", "r", "a", 60, true)
	leasehold.stop()
	if code := leasehold.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("leasehold exited with %d", code)
	}
	if _, err := os.Stat(socketOf(folder, "memory")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
	if err := d.healthy(); err != nil {
		t.Errorf("daprd did not survive it: %v", err)
	}
}

// A stopped leasehold hangs no app: daprd sets no deadline, the connector does.
func TestLeaseholdIsSuspended(t *testing.T) {
	folder := sockets(t)
	leasehold := startLeasehold(t, folder, []string{"memory"})
	d := startDaprd(t, daprdOptions{sockets: folder, resources: resources(t, userComponent(t, "memory", "locks", nil))})
	expectTry(t, d.grpc, "locks", "r", "a", 60, true)

	leasehold.suspend(t)
	start := time.Now()
	_, err := d.grpc.tryLock("locks", "free", "b", 60)
	expectRefusal(t, err, "failed to try acquiring lock", "Internal")
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("the call hung for %v", took)
	}
	leasehold.signal(syscall.SIGCONT)

	// The caller that was told "failed" holds nothing: its call was cancelled.
	eventually(t, recovery, "the resource of the cancelled try is free", func() error {
		return tried(d.grpc, "locks", "free", "c", 30, true)
	})
	expectTry(t, d.http, "locks", "r", "b", 30, false)
	expectUnlock(t, d.http, "locks", "r", "a", released)
}

// daprd waits for sockets only at its start: a component that is late needs a
// reload, and component YAML of its type before that stops daprd.
func TestLeaseholdStartsLate(t *testing.T) {
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
	folder := sockets(t)
	startLeasehold(t, folder, []string{"memory"}).kill()
	if _, err := os.Stat(socketOf(folder, "memory")); err != nil {
		t.Fatalf("the crash left no socket behind: %v", err)
	}
	startLeasehold(t, folder, []string{"memory"})
	d := startDaprd(t, daprdOptions{sockets: folder, resources: resources(t, userComponent(t, "memory", "locks", nil))})
	expectTry(t, d.grpc, "locks", "r", "a", 30, true)
}

// What docs/dapr.md warns of, so that the warning goes when it ceases to hold:
// any component's stale socket keeps daprd from starting.
func TestStaleSocketHangsDaprd(t *testing.T) {
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
		if d.healthy() == nil {
			t.Fatal("daprd started: say so in docs/dapr.md")
		}
	}
	if err := os.Remove(socketOf(folder, "stale")); err != nil {
		t.Fatal(err)
	}
}

// The locks are the owners', not daprd's.
func TestDaprdRestartsWhileLocksAreHeld(t *testing.T) {
	folder := sockets(t)
	startLeasehold(t, folder, []string{"memory"})
	options := daprdOptions{sockets: folder, resources: resources(t, userComponent(t, "memory", "locks", nil))}
	first := startDaprd(t, options)
	expectTry(t, first.grpc, "locks", "r", "a", 60, true)
	first.kill()
	second := startDaprd(t, options)
	expectTry(t, second.grpc, "locks", "r", "b", 30, false)
	expectUnlock(t, second.grpc, "locks", "r", "b", belongsToOthers)
	expectUnlock(t, second.http, "locks", "r", "a", released)
}

// A backend that is gone is an error in time, not a hang, and no refusal.
func TestBackendIsDown(t *testing.T) {
	address, redis := startRedis(t)
	folder := sockets(t)
	startLeasehold(t, folder, []string{"redis"})
	d := startDaprd(t, daprdOptions{sockets: folder, resources: resources(t,
		userComponent(t, "redis", "locks", map[string]string{"redisHost": address}))})
	expectTry(t, d.grpc, "locks", "r", "a", 60, true)
	redis.kill()
	for protocol, a := range d.apis() {
		start := time.Now()
		_, err := a.tryLock("locks", "r2", "a", 30)
		expectRefusal(t, err, "failed to try acquiring lock: ", "Internal", "ERR_TRY_LOCK")
		_, err = a.unlock("locks", "r", "a")
		expectRefusal(t, err, "failed to release lock: ", "Internal", "ERR_UNLOCK")
		if took := time.Since(start); took > 14*time.Second {
			t.Errorf("%s: two calls took %v", protocol, took)
		}
	}
}
