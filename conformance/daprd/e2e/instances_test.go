package e2e

import "testing"

// The key prefix is daprd's: the backend's keys show it.
func TestKeyPrefixes(t *testing.T) {
	t.Parallel()
	address, _ := startRedis(t)
	folder := sockets(t)
	startLeasehold(t, folder, []string{"redis"})
	prefixes := map[string]string{ // keyPrefix → the key of resource r in Redis
		"":      "lock||App1||r",
		"appid": "lock||App1||r",
		"name":  "lock||by-name||r",
		"none":  "lock||r",
		"TEAM":  "lock||team||r",
	}
	stores := map[string]string{"": "by-default", "appid": "by-appid", "name": "by-name", "none": "by-none", "TEAM": "by-team"}
	var components []component
	for prefix, store := range stores {
		metadata := map[string]string{"redisHost": address}
		if prefix != "" {
			metadata["keyPrefix"] = prefix
		}
		components = append(components, userComponent(t, "redis", store, metadata))
	}
	d := startDaprd(t, daprdOptions{appID: "App1", sockets: folder, resources: resources(t, components...)})
	for prefix, store := range stores {
		expectTry(t, d.grpc, store, "r", "owner-"+store, 30, true)
		if got, want := redisGet(t, address, prefixes[prefix]), "owner-"+store; got != want {
			t.Errorf("with keyPrefix %q the key %q is %q, not %q", prefix, prefixes[prefix], got, want)
		}
		expectUnlock(t, d.http, store, "r", "owner-"+store, released)
	}
}

// Instances of one type share a socket, not their locks, unless they share the
// backend and the prefix.
func TestTwoInstancesOfOneType(t *testing.T) {
	t.Parallel()
	folder := sockets(t)
	startLeasehold(t, folder, []string{"memory"})
	d := startDaprd(t, daprdOptions{sockets: folder, resources: resources(t,
		userComponent(t, "memory", "first", nil),
		userComponent(t, "memory", "second", nil),
	)})
	expectTry(t, d.grpc, "first", "r", "a", 30, true)
	expectTry(t, d.grpc, "second", "r", "b", 30, true)
	expectUnlock(t, d.grpc, "second", "r", "a", belongsToOthers)
	expectUnlock(t, d.grpc, "first", "r", "a", released)
	expectUnlock(t, d.grpc, "second", "r", "b", released)
}

// Two apps whose stores share a backend share locks under keyPrefix name.
func TestTwoSidecarsShareABackend(t *testing.T) {
	t.Parallel()
	address, _ := startRedis(t)
	folder := sockets(t)
	startLeasehold(t, folder, []string{"redis"})
	components := resources(t, userComponent(t, "redis", "locks", map[string]string{"redisHost": address, "keyPrefix": "name"}))
	first := startDaprd(t, daprdOptions{appID: "one", sockets: folder, resources: components})
	second := startDaprd(t, daprdOptions{appID: "two", sockets: folder, resources: components})
	expectTry(t, first.grpc, "locks", "r", "a", 30, true)
	expectTry(t, second.http, "locks", "r", "b", 30, false)
	expectUnlock(t, second.grpc, "locks", "r", "b", belongsToOthers)
	expectUnlock(t, first.http, "locks", "r", "a", released)
	expectTry(t, second.http, "locks", "r", "b", 30, true)
}

func TestScopes(t *testing.T) {
	t.Parallel()
	folder := sockets(t)
	startLeasehold(t, folder, []string{"memory"})
	d := startDaprd(t, daprdOptions{appID: "mine", sockets: folder, resources: resources(t,
		userComponent(t, "memory", "ours", nil).scopedTo("mine", "other"),
		userComponent(t, "memory", "theirs", nil).scopedTo("other"),
	)})
	expectTry(t, d.grpc, "ours", "r", "a", 30, true)
	_, err := d.http.tryLock("theirs", "r", "a", 30)
	expectRefusal(t, err, "lock store theirs not found", "ERR_LOCK_STORE_NOT_FOUND")
}
