package e2e

import "testing"

// The front is killed and comes back: what was locked belongs to its owners throughout.
func TestRedisFrontRestarts(t *testing.T) {
	t.Parallel()
	for kind := range restartables {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			front := startRedisFront(t, kinds[kind](t, "store"))
			d := startStockDaprd(t, "app", builtInRedis("locks", front.address, nil))
			expectTry(t, d.grpc, "locks", "r", "a", 60, true)

			front.kill()
			_, err := d.grpc.tryLock("locks", "r", "b", 30)
			expectRefusal(t, err, "failed to try acquiring lock: ", "Internal")
			_, err = d.http.unlock("locks", "r", "a")
			expectRefusal(t, err, "failed to release lock: ", "ERR_UNLOCK")

			front.start(t)
			eventually(t, recovery, "daprd reaches the new front", func() error {
				return tried(d.grpc, "locks", "r", "b", 30, false)
			})
			expectUnlock(t, d.http, "locks", "r", "b", belongsToOthers)
			expectUnlock(t, d.http, "locks", "r", "a", released)
			expectUnlock(t, d.grpc, "locks", "r", "a", doesNotExist)
		})
	}
}

// Locks in memory end with the front, and the store is usable again.
func TestRedisFrontRestartsWithMemory(t *testing.T) {
	t.Parallel()
	front := startRedisFront(t, userComponent(t, "memory", "store", nil))
	d := startStockDaprd(t, "app", builtInRedis("locks", front.address, nil))
	expectTry(t, d.grpc, "locks", "r", "a", 60, true)
	front.kill()
	front.start(t)
	eventually(t, recovery, "the resource is free", func() error {
		return tried(d.grpc, "locks", "r", "b", 30, true)
	})
	expectUnlock(t, d.grpc, "locks", "r", "a", belongsToOthers)
}

// An operator stops the front: it ends by itself, though daprd keeps its connections,
// and daprd goes on without it.
func TestRedisFrontStops(t *testing.T) {
	t.Parallel()
	front := startRedisFront(t, userComponent(t, "memory", "store", nil))
	d := startStockDaprd(t, "app", builtInRedis("locks", front.address, nil))
	expectTry(t, d.grpc, "locks", "r", "a", 60, true)
	front.stop()
	if code := front.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the front exited with %d", code)
	}
	eventually(t, recovery, "daprd survives it", d.healthy)
}

// The locks are the owners', not daprd's.
func TestStockDaprdRestartsWhileLocksAreHeld(t *testing.T) {
	t.Parallel()
	for name, startServer := range redisServers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locks := builtInRedis("locks", startServer(t), nil)
			first := startStockDaprd(t, "app", locks)
			expectTry(t, first.grpc, "locks", "r", "a", 60, true)
			first.kill()
			second := startStockDaprd(t, "app", locks)
			expectTry(t, second.grpc, "locks", "r", "b", 30, false)
			expectUnlock(t, second.grpc, "locks", "r", "b", belongsToOthers)
			expectUnlock(t, second.http, "locks", "r", "a", released)
		})
	}
}

// The store's server is killed and comes back with its data: daprd and the front stay
// up meanwhile, and what was locked stays locked.
func TestStoreBehindTheRedisFrontRestarts(t *testing.T) {
	t.Parallel()
	for kind, newStore := range restartables {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server := newStore(t)
			front := startRedisFront(t, quickToFail(server.store))
			d := startStockDaprd(t, "app", builtInRedis("locks", front.address, nil))
			expectTry(t, d.grpc, "locks", "r", "a", 120, true)

			server.kill()
			for _, a := range d.apis() {
				_, err := a.tryLock("locks", "r", "b", 30)
				expectRefusal(t, err, "failed to try acquiring lock: ", "Internal", "ERR_TRY_LOCK")
			}
			server.start()

			eventually(t, recovery, "the lock stands", func() error {
				return tried(d.grpc, "locks", "r", "b", 30, false)
			})
			expectUnlock(t, d.http, "locks", "r", "b", belongsToOthers)
			expectUnlock(t, d.http, "locks", "r", "a", released)
			expectTry(t, d.grpc, "locks", "r", "b", 30, true)
			expectUnlock(t, d.grpc, "locks", "r", "b", released)
			if !front.running() {
				t.Error("the front exited")
			}
		})
	}
}
