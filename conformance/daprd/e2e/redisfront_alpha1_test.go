package e2e

import "testing"

// Stock daprd answers alpha1 on a front as it does on Redis, over both protocols.
func TestAlpha1OnStockDaprd(t *testing.T) {
	t.Parallel()
	for name, startServer := range redisServers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := startStockDaprd(t, "app", builtInRedis("locks", startServer(t), nil))
			for protocol, a := range d.apis() {
				t.Run(protocol, func(t *testing.T) {
					t.Parallel()
					t.Run("life", func(t *testing.T) { testLife(t, a, protocol) })
					t.Run("expiry", func(t *testing.T) { testExpiry(t, a, protocol) })
					t.Run("bad input", func(t *testing.T) { testBadInput(t, a) })
					if name != redisItself {
						t.Run("long name", func(t *testing.T) { testLongName(t, a, "ERR leasehold: ") })
					}
				})
			}
		})
	}
}

// daprd makes the key, and the front passes it to its store unchanged. On Redis the
// store's key has daprd's name, and the owner as its value, as with the built-in store.
func TestKeyPrefixesOfStockDaprd(t *testing.T) {
	t.Parallel()
	backend, _ := startRedis(t)
	front := startRedisFront(t, userComponent(t, "redis", "store", map[string]string{"redisHost": backend}))
	keys := map[string]string{ // keyPrefix → the key of resource r
		"":          "lock||App1||r",
		"appid":     "lock||App1||r",
		"name":      "lock||by-name||r",
		"none":      "lock||r",
		"namespace": "lock||namespace||r", // not a strategy of locks, so a text like any other
	}
	var components []component
	for prefix := range keys {
		metadata := map[string]string{}
		if prefix != "" {
			metadata["keyPrefix"] = prefix
		}
		components = append(components, builtInRedis("by-"+prefix, front.address, metadata))
	}
	d := startStockDaprd(t, "App1", components...)
	for prefix, key := range keys {
		store := "by-" + prefix
		expectTry(t, d.grpc, store, "r", "owner-"+store, 30, true)
		for name, address := range map[string]string{"the backend": backend, "the front": front.address} {
			if got, want := redisGet(t, address, key), "owner-"+store; got != want {
				t.Errorf("with keyPrefix %q the key %q is %q in %s, not %q", prefix, key, got, name, want)
			}
		}
		expectUnlock(t, d.http, store, "r", "owner-"+store, released)
	}
}

// Two apps share a lock under keyPrefix name, each with its own daprd.
func TestTwoStockDaprdsShareALock(t *testing.T) {
	t.Parallel()
	for name, startServer := range redisServers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locks := builtInRedis("locks", startServer(t), map[string]string{"keyPrefix": "name"})
			first, second := startStockDaprd(t, "one", locks), startStockDaprd(t, "two", locks)
			expectTry(t, first.grpc, "locks", "r", "a", 60, true)
			expectTry(t, second.http, "locks", "r", "b", 60, false)
			expectTry(t, second.grpc, "locks", "r", "a", 60, false)
			expectUnlock(t, second.grpc, "locks", "r", "b", belongsToOthers)
			expectUnlock(t, first.http, "locks", "r", "a", released)
			expectTry(t, second.http, "locks", "r", "b", 60, true)
			expectUnlock(t, first.grpc, "locks", "r", "a", belongsToOthers)
			expectUnlock(t, second.grpc, "locks", "r", "b", released)
		})
	}
}

// The SDKs' programs pass unchanged through stock daprd on every store.
func TestSDKsThroughStockDaprd(t *testing.T) {
	t.Parallel()
	runSDKs(t, nil, "--setup-only")
	token := []string{"DAPR_API_TOKEN=right"}
	gone, doomed := startRedis(t)
	down := startRedisFront(t, quickToFail(userComponent(t, "redis", "store", map[string]string{"redisHost": gone})))
	components := []component{builtInRedis("down", down.address, nil)}
	served := sdkKinds(t)
	for _, kind := range served {
		components = append(components, builtInRedis(kind, startRedisFront(t, kinds[kind](t, "store")).address, nil))
	}
	options := stockOptions(t, "app", components...)
	options.env = token
	d := startDaprd(t, options)
	doomed.kill()
	for i, kind := range served {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			environment := append(d.sdkEnvironment(kind), token...)
			if i == 0 { // once is enough: the outage has a store of its own
				environment = append(environment, "LOCK_STORE_DOWN=down")
			}
			runSDKs(t, environment)
		})
	}
}
