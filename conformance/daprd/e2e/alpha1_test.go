package e2e

import (
	"testing"
	"time"
)

// kinds are the lock stores of leasehold, each with component YAML for a new
// backend of its own.
var kinds = map[string]func(t *testing.T, name string) component{
	"memory": func(t *testing.T, name string) component {
		return userComponent(t, "memory", name, nil)
	},
	"redis": func(t *testing.T, name string) component {
		address, _ := startRedis(t)
		return userComponent(t, "redis", name, map[string]string{"redisHost": address})
	},
	"etcd": func(t *testing.T, name string) component {
		return userComponent(t, "etcd", name, map[string]string{"endpoints": startEtcd(t).address})
	},
}

// Every store answers alpha1 alike, over both protocols.
func TestAlpha1(t *testing.T) {
	t.Parallel()
	for kind, newComponent := range kinds {
		t.Run(kind, func(t *testing.T) {
			folder := sockets(t)
			startLeasehold(t, folder, []string{kind})
			d := startDaprd(t, daprdOptions{
				sockets:   folder,
				resources: resources(t, newComponent(t, "locks")),
			})
			for protocol, a := range d.apis() {
				t.Run(protocol, func(t *testing.T) {
					t.Run("life", func(t *testing.T) { testLife(t, a, protocol) })
					t.Run("expiry", func(t *testing.T) { testExpiry(t, a, protocol) })
					t.Run("bad input", func(t *testing.T) { testBadInput(t, a) })
					t.Run("long name", func(t *testing.T) { testLongName(t, a, "INVALID_REQUEST") })
				})
			}
		})
	}
}

func testLife(t *testing.T, a api, resource string) {
	expectTry(t, a, "locks", resource, "a", 30, true)
	expectTry(t, a, "locks", resource, "b", 30, false)
	expectTry(t, a, "locks", resource, "a", 30, false)
	expectTry(t, a, "locks", resource+"-other", "b", 30, true)
	expectUnlock(t, a, "locks", resource, "b", belongsToOthers)
	expectTry(t, a, "locks", resource, "b", 30, false)
	expectUnlock(t, a, "locks", resource, "a", released)
	expectUnlock(t, a, "locks", resource, "a", doesNotExist)
	expectTry(t, a, "locks", resource, "b", 30, true)
	expectUnlock(t, a, "locks", resource, "b", released)
	expectUnlock(t, a, "locks", resource+"-other", "b", released)
}

func testExpiry(t *testing.T, a api, resource string) {
	const expiry = 2 * time.Second
	resource += "-expiry"
	start := time.Now()
	expectTry(t, a, "locks", resource, "a", int32(expiry/time.Second), true)
	eventually(t, expiry+5*time.Second, "the lock ends", func() error {
		return tried(a, "locks", resource, "b", 30, true)
	})
	if held := time.Since(start); held < expiry {
		t.Errorf("the lock ended after %v", held)
	}
	expectUnlock(t, a, "locks", resource, "a", belongsToOthers)
	expectUnlock(t, a, "locks", resource, "b", released)
}

func testBadInput(t *testing.T, a api) {
	try := func(store, resource, owner string, expirySeconds int32) error {
		_, err := a.tryLock(store, resource, owner, expirySeconds)
		return err
	}
	malformed := []string{"InvalidArgument", "ERR_MALFORMED_REQUEST"}
	expectRefusal(t, try("locks", "r", "a", 0), "ExpiryInSeconds is not positive in lock store locks", malformed...)
	expectRefusal(t, try("locks", "", "a", 30), "ResourceId is empty in lock store locks", malformed...)
	expectRefusal(t, try("locks", "r", "", 30), "LockOwner is empty in lock store locks", malformed...)
	expectRefusal(t, try("nowhere", "r", "a", 30), "lock store nowhere not found", "InvalidArgument", "ERR_LOCK_STORE_NOT_FOUND")
	expectRefusal(t, try("locks", "a||b", "a", 30), "can't contain '||'", "Internal", "ERR_TRY_LOCK")
	_, err := a.unlock("nowhere", "r", "a")
	expectRefusal(t, err, "lock store nowhere not found", "InvalidArgument", "ERR_LOCK_STORE_NOT_FOUND")
}

// What only leasehold refuses: daprd's prefix counts too.
func testLongName(t *testing.T, a api, message string) {
	long := make([]byte, 1024)
	for i := range long {
		long[i] = 'r'
	}
	_, err := a.tryLock("locks", string(long), "a", 30)
	expectRefusal(t, err, message, "Internal", "ERR_TRY_LOCK")
}
