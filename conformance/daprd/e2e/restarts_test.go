package e2e

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"leasehold/conformance/daprd/lockpb"
)

// recovery is how long daprd may fail calls once the component is back: the
// connector's longest reconnect delay, and what a busy machine adds.
const recovery = 10 * time.Second

// leasehold is killed and comes back. daprd does not send Init again. Either of
// two others is enough: leasehold's own YAML, or the connector. The locks are in
// the backend, where they belong to their owners throughout.
func TestLeaseholdRestarts(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"redis", "etcd"} {
		for name, own := range map[string]bool{"initialised by the connector": false, "initialised by its own YAML": true} {
			t.Run(kind+" "+name, func(t *testing.T) {
				folder := sockets(t)
				yaml := resources(t, kinds[kind](t, "locks"))
				var args []string
				if own {
					args = []string{"--resources-path", yaml}
				}
				leasehold := startLeasehold(t, folder, []string{kind}, args...)
				d := startDaprd(t, daprdOptions{sockets: folder, resources: yaml})
				expectTry(t, d.grpc, "locks", "r", "a", 60, true)

				leasehold.kill() // its socket stays behind
				if _, err := d.grpc.tryLock("locks", "r", "b", 30); err == nil {
					t.Error("a try was answered without leasehold")
				}
				startLeasehold(t, folder, []string{kind}, args...)
				// Nobody has sent it Init yet: daprd has made no call.
				want := "NOT_INITIALIZED"
				if own {
					want = "RESOURCE_LOCKED"
				}
				eventually(t, recovery, "the new leasehold answers "+want, func() error {
					if got := reasonOfATry(t, socketOf(folder, kind), "locks", "lock||app||r"); got != want {
						return fails("a try was refused with %q", got)
					}
					return nil
				})

				eventually(t, recovery, "daprd reaches the new leasehold", func() error {
					return tried(d.grpc, "locks", "r", "b", 30, false)
				})
				expectUnlock(t, d.http, "locks", "r", "b", belongsToOthers)
				expectUnlock(t, d.http, "locks", "r", "a", released)
			})
		}
	}
}

// reasonOfATry calls the component directly, without daprd, and returns the reason
// of its refusal.
func reasonOfATry(t *testing.T, socket, instance, resource string) string {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), callLimit)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "x-component-instance", instance)
	_, err = lockpb.NewLockStoreClient(conn).TryLock(ctx, &lockpb.LockRequest{ResourceId: resource})
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}

// Locks in memory end with their process, and the store is usable again.
func TestLeaseholdRestartsWithMemory(t *testing.T) {
	t.Parallel()
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

// A drained leasehold removes its sockets.
func TestLeaseholdStops(t *testing.T) {
	t.Parallel()
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
	eventually(t, recovery, "daprd survives it", d.healthy)
}

// The locks are the owners', not daprd's.
func TestDaprdRestartsWhileLocksAreHeld(t *testing.T) {
	t.Parallel()
	for kind, newComponent := range kinds {
		t.Run(kind, func(t *testing.T) {
			folder := sockets(t)
			startLeasehold(t, folder, []string{kind})
			options := daprdOptions{sockets: folder, resources: resources(t, newComponent(t, "locks"))}
			first := startDaprd(t, options)
			expectTry(t, first.grpc, "locks", "r", "a", 60, true)
			first.kill()
			second := startDaprd(t, options)
			expectTry(t, second.grpc, "locks", "r", "b", 30, false)
			expectUnlock(t, second.grpc, "locks", "r", "b", belongsToOthers)
			expectUnlock(t, second.http, "locks", "r", "a", released)
		})
	}
}
