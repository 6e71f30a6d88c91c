package e2e

import (
	"testing"
	"time"
)

// During a migration Dapr's built-in lock.redis and leasehold's lock the same
// resources in the same Redis, and must exclude each other both ways.
func TestMigrationFromTheBuiltInRedisStore(t *testing.T) {
	t.Parallel()
	address, _ := startRedis(t)
	folder := sockets(t)
	startLeasehold(t, folder, []string{"redis=leasehold-redis"})
	metadata := map[string]string{"redisHost": address, "keyPrefix": "none"}
	d := startDaprd(t, daprdOptions{sockets: folder, resources: resources(t,
		userComponent(t, "redis", "built-in", metadata),
		userComponent(t, "redis", "leasehold", metadata).ofType("lock.leasehold-redis"),
	)})

	for _, direction := range []struct{ first, second string }{
		{"built-in", "leasehold"},
		{"leasehold", "built-in"},
	} {
		t.Run(direction.first+" before "+direction.second, func(t *testing.T) {
			resource := "r-" + direction.first
			expectTry(t, d.grpc, direction.first, resource, "a", 60, true)
			expectTry(t, d.grpc, direction.second, resource, "b", 60, false)
			expectUnlock(t, d.grpc, direction.second, resource, "b", belongsToOthers)
			expectTry(t, d.http, direction.second, resource, "b", 60, false)
			// The owner's name is the proof of ownership in both.
			expectUnlock(t, d.http, direction.second, resource, "a", released)
			expectUnlock(t, d.grpc, direction.first, resource, "a", doesNotExist)
			expectTry(t, d.grpc, direction.second, resource, "b", 60, true)
			expectUnlock(t, d.grpc, direction.second, resource, "b", released)
		})
		t.Run(direction.second+" respects the expiry of "+direction.first, func(t *testing.T) {
			const expiry = 2 * time.Second
			resource := "e-" + direction.first
			start := time.Now()
			expectTry(t, d.grpc, direction.first, resource, "a", int32(expiry/time.Second), true)
			eventually(t, expiry+5*time.Second, "the lock ends", func() error {
				return tried(d.grpc, direction.second, resource, "b", 60, true)
			})
			if held := time.Since(start); held < expiry {
				t.Errorf("the lock ended after %v", held)
			}
			expectTry(t, d.grpc, direction.first, resource, "a", 60, false)
			expectUnlock(t, d.grpc, direction.first, resource, "a", belongsToOthers)
			expectUnlock(t, d.grpc, direction.second, resource, "b", released)
		})
	}
}

// A socket called redis.sock takes the place of the built-in store.
func TestRedisSocketReplacesTheBuiltIn(t *testing.T) {
	t.Parallel()
	address, _ := startRedis(t)
	folder := sockets(t)
	leasehold := startLeasehold(t, folder, []string{"redis"})
	d := startDaprd(t, daprdOptions{sockets: folder, resources: resources(t,
		userComponent(t, "redis", "locks", map[string]string{"redisHost": address, "keyPrefix": "none"}))})
	expectTry(t, d.grpc, "locks", "r", "a", 60, true)
	if got := redisGet(t, address, "lock||r"); got != "a" {
		t.Errorf("the key is %q, not the owner's name", got)
	}
	leasehold.kill()
	if _, err := d.grpc.tryLock("locks", "r2", "a", 60); err == nil {
		t.Error("the store answered without leasehold: it is the built-in one")
	}
}
