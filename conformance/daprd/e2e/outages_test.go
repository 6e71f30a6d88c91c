package e2e

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// A backend that is gone gives an error in time. It is neither a refusal nor a hang,
// which would end at the test's own deadline, with another code.
func TestBackendIsDown(t *testing.T) {
	t.Parallel()
	address, redis := startRedis(t)
	folder := sockets(t)
	startLeasehold(t, folder, []string{"redis"})
	d := startDaprd(t, daprdOptions{sockets: folder, resources: resources(t,
		userComponent(t, "redis", "locks", map[string]string{"redisHost": address}))})
	expectTry(t, d.grpc, "locks", "r", "a", 60, true)
	redis.kill()
	for _, a := range d.apis() {
		_, err := a.tryLock("locks", "r2", "a", 30)
		expectFailure(t, err, "failed to try acquiring lock: ", "Internal", "ERR_TRY_LOCK")
		_, err = a.unlock("locks", "r", "a")
		expectFailure(t, err, "failed to release lock: ", "Internal", "ERR_UNLOCK")
	}
}

// etcd is killed and comes back with its data: what was locked stays locked.
func TestEtcdRestarts(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	folder := sockets(t)
	startLeasehold(t, folder, []string{"etcd"})
	d := startDaprd(t, daprdOptions{sockets: folder, resources: resources(t,
		userComponent(t, "etcd", "locks", map[string]string{"endpoints": etcd.address}))})
	expectTry(t, d.grpc, "locks", "r", "a", 120, true)

	etcd.process.kill()
	_, err := d.grpc.tryLock("locks", "r", "b", 30)
	expectFailure(t, err, "failed to try acquiring lock: ", "Internal")
	etcd.start(t)

	eventually(t, recovery, "the lock stands", func() error {
		return tried(d.grpc, "locks", "r", "b", 30, false)
	})
	expectUnlock(t, d.http, "locks", "r", "b", belongsToOthers)
	expectUnlock(t, d.http, "locks", "r", "a", released)
	expectTry(t, d.grpc, "locks", "r", "b", 30, true)
	expectUnlock(t, d.grpc, "locks", "r", "b", released)
}

// A stopped leasehold hangs no app: daprd sets no deadline, the connector does.
func TestLeaseholdIsSuspendedDuringATry(t *testing.T) {
	t.Parallel()
	folder := sockets(t)
	leasehold := startLeasehold(t, folder, []string{"memory"})
	d := startDaprd(t, daprdOptions{sockets: folder, resources: resources(t, userComponent(t, "memory", "locks", nil))})
	expectTry(t, d.grpc, "locks", "r", "a", 60, true)

	leasehold.suspend(t)
	_, err := d.grpc.tryLock("locks", "free", "b", 60)
	// The error of the connector's own deadline has no reason from leasehold.
	expectRefusal(t, err, "failed to try acquiring lock: rpc error: code = DeadlineExceeded", "Internal")
	// gRPC's writer sends the cancellation after the call has failed. If leasehold answers before
	// it arrives, the grant counts as received.
	time.Sleep(time.Second)
	leasehold.signal(syscall.SIGCONT)

	// The caller whose try failed holds nothing: its call was cancelled.
	eventually(t, recovery, "the resource of the cancelled try is free", func() error {
		return tried(d.grpc, "locks", "free", "c", 30, true)
	})
	expectTry(t, d.http, "locks", "r", "b", 30, false)
	expectUnlock(t, d.http, "locks", "r", "a", released)
}

// An unlock without an answer may have happened or not. Repeated, it is answered,
// and the resource is free.
func TestLeaseholdIsSuspendedDuringAnUnlock(t *testing.T) {
	t.Parallel()
	for kind, newComponent := range kinds {
		t.Run(kind, func(t *testing.T) {
			folder := sockets(t)
			leasehold := startLeasehold(t, folder, []string{kind})
			d := startDaprd(t, daprdOptions{sockets: folder, resources: resources(t, newComponent(t, "locks"))})
			expectTry(t, d.grpc, "locks", "r", "a", 120, true)

			leasehold.suspend(t)
			_, err := d.http.unlock("locks", "r", "a")
			expectRefusal(t, err, "failed to release lock: ", "ERR_UNLOCK")
			leasehold.signal(syscall.SIGCONT)

			eventually(t, recovery, "the unlock is answered", func() error {
				status, err := d.http.unlock("locks", "r", "a")
				if err == nil && status != released && status != doesNotExist {
					t.Fatalf("the repeated unlock answered %d", status)
				}
				return err
			})
			expectTry(t, d.grpc, "locks", "r", "b", 30, true)
			expectUnlock(t, d.grpc, "locks", "r", "b", released)
		})
	}
}

// expectFailure checks the error of a backend that is down: Dapr's text, then
// leasehold's reason. A call may have happened if its connection ended.
func expectFailure(t *testing.T, err error, words string, codes ...string) {
	t.Helper()
	expectRefusal(t, err, words, codes...)
	for _, reason := range []string{"STORE_UNAVAILABLE", "OUTCOME_UNKNOWN"} {
		if err != nil && strings.Contains(err.Error(), words+reason+": ") {
			return
		}
	}
	t.Errorf("no reason follows the text: %v", err)
}
