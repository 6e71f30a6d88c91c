package e2e

import (
	"syscall"
	"testing"
)

// A store that is gone gives an error in time, with leasehold's reason. It is not a
// refusal. daprd and the front keep running.
func TestStoreBehindTheRedisFrontIsDown(t *testing.T) {
	t.Parallel()
	for kind, newStore := range restartables {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server := newStore(t)
			front := startRedisFront(t, quickToFail(server.store))
			d := startStockDaprd(t, "app", builtInRedis("locks", front.address, nil))
			expectTry(t, d.grpc, "locks", "r", "a", 60, true)
			server.kill()
			for _, a := range d.apis() {
				_, err := a.tryLock("locks", "r2", "a", 30)
				expectFailure(t, err, "failed to try acquiring lock: ERR leasehold: ", "Internal", "ERR_TRY_LOCK")
				_, err = a.unlock("locks", "r", "a")
				expectFailure(t, err, "failed to release lock: ERR leasehold: ", "Internal", "ERR_UNLOCK")
			}
		})
	}
}

// daprd starts while the store is gone, because the front itself answers.
func TestStockDaprdStartsWhileTheStoreIsDown(t *testing.T) {
	t.Parallel()
	server := restartables["redis"](t)
	front := startRedisFront(t, quickToFail(server.store))
	server.kill()
	d := startStockDaprd(t, "app", builtInRedis("locks", front.address, nil))
	_, err := d.grpc.tryLock("locks", "r", "a", 30)
	expectRefusal(t, err, "failed to try acquiring lock: ", "Internal")
	server.start()
	eventually(t, recovery, "the store is reached", func() error {
		_, err := d.grpc.tryLock("locks", "r", "a", 30)
		return err
	})
}

// A store that hangs does not hang an app. A lock whose try failed is not held once the
// store continues.
func TestStoreBehindTheRedisFrontHangs(t *testing.T) {
	t.Parallel()
	for kind, newStore := range restartables {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server := newStore(t)
			front := startRedisFront(t, quickToFail(server.store))
			d := startStockDaprd(t, "app", builtInRedis("locks", front.address, nil))
			expectTry(t, d.grpc, "locks", "held", "a", 120, true)
			server.process().suspend(t)
			_, err := d.grpc.tryLock("locks", "free", "b", 120)
			expectRefusal(t, err, "failed to try acquiring lock: ", "Internal")
			server.process().signal(syscall.SIGCONT)
			eventually(t, recovery, "the resource of the failed try is free", func() error {
				return tried(d.grpc, "locks", "free", "c", 30, true)
			})
			expectTry(t, d.http, "locks", "held", "b", 30, false)
			expectUnlock(t, d.http, "locks", "held", "a", released)
		})
	}
}

// A front that hangs does not hang an app either. It does not carry out later what has
// failed for the app.
func TestRedisFrontHangs(t *testing.T) {
	t.Parallel()
	front := startRedisFront(t, userComponent(t, "memory", "store", nil))
	d := startStockDaprd(t, "app", builtInRedis("locks", front.address, nil))
	expectTry(t, d.grpc, "locks", "held", "a", 120, true)
	front.suspend(t)
	_, err := d.grpc.tryLock("locks", "free", "b", 120)
	expectRefusal(t, err, "failed to try acquiring lock: ", "Internal")
	front.signal(syscall.SIGCONT)
	eventually(t, recovery, "the resource of the failed try is free", func() error {
		return tried(d.grpc, "locks", "free", "c", 30, true)
	})
	expectTry(t, d.http, "locks", "held", "b", 30, false)
	expectUnlock(t, d.http, "locks", "held", "a", released)
}

// If the front is away at daprd's start, daprd ends, or runs without the store if the
// component allows it.
func TestStockDaprdStartsWithoutTheFront(t *testing.T) {
	t.Parallel()
	front := startRedisFront(t, userComponent(t, "memory", "store", nil))
	front.kill()
	locks := builtInRedis("locks", front.address, nil)
	t.Run("it ends", func(t *testing.T) {
		t.Parallel()
		launchDaprd(t, stockOptions(t, "app", locks)).exitsWith("error connecting to Redis")
	})
	t.Run("it does without", func(t *testing.T) {
		t.Parallel()
		locks.Spec.IgnoreErrors = true
		d := startStockDaprd(t, "app", locks)
		_, err := d.grpc.tryLock("locks", "r", "a", 30)
		expectRefusal(t, err, "lock store is not configured", "FailedPrecondition")
	})
}
