package e2e

import (
	"net"
	"strconv"
	"testing"
	"time"
)

// redisFront is `leasehold redis-front` over one store.
type redisFront struct {
	*process
	// address is host:port, as redisHost needs it.
	address   string
	arguments []string
}

// startRedisFront serves the store of this YAML, and returns once the front accepts
// connections.
func startRedisFront(t *testing.T, store component, args ...string) *redisFront {
	t.Helper()
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(freePort(t)))
	f := &redisFront{address: address, arguments: append([]string{
		"redis-front", "--store", store.Metadata.Name, "--resources-path", resources(t, store), "--listen", address,
	}, args...)}
	f.start(t)
	return f
}

// start starts the front, also again after its end, at the same address.
func (f *redisFront) start(t *testing.T) {
	t.Helper()
	f.process = start(t, "redis-front", nil, leaseholdBinary(t), f.arguments...)
	eventually(t, readyTimeout, "the front accepts connections", func() error {
		if !f.running() {
			t.Fatal("the front exited")
		}
		conn, err := net.DialTimeout("tcp", f.address, time.Second)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
}

// redisItself is the reference among the servers below: stock daprd must do on a front
// what it does there.
const redisItself = "Redis itself"

// redisServers are what redisHost may point to, each with a new backend of its own.
func redisServers() map[string]func(t *testing.T) (address string) {
	servers := map[string]func(t *testing.T) string{
		redisItself: func(t *testing.T) string {
			address, _ := startRedis(t)
			return address
		},
	}
	for kind, newComponent := range kinds {
		servers["front on "+kind] = func(t *testing.T) string {
			return startRedisFront(t, newComponent(t, "store")).address
		}
	}
	return servers
}

// quickToFail bounds the store's calls below the 3 s that lock.redis waits for a reply, so
// that it gets the reason of a failed call, instead of repeating it after each timeout.
func quickToFail(store component) component {
	store.Spec.Metadata = append(store.Spec.Metadata, metadataItem{Name: "operationTimeout", Value: "1s"})
	return store
}

// restartable is a store's server that keeps its data over a restart.
type restartable struct {
	store component
	kill  func()
	start func()
	// process is the running one.
	process func() *process
}

// restartables are the stores that have a server.
var restartables = map[string]func(t *testing.T) restartable{
	"redis": func(t *testing.T) restartable {
		port, folder := freePort(t), t.TempDir()
		redis := startRedisIn(t, folder, port)
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		return restartable{
			store: userComponent(t, "redis", "store", map[string]string{"redisHost": address}),
			kill: func() {
				if reply, err := redisCommand(address, "SAVE"); err != nil || reply != "+OK" {
					t.Fatalf("save Redis's data: %q, %v", reply, err)
				}
				redis.kill()
			},
			start:   func() { redis = startRedisIn(t, folder, port) },
			process: func() *process { return redis },
		}
	},
	"etcd": func(t *testing.T) restartable {
		etcd := startEtcd(t)
		return restartable{
			store:   userComponent(t, "etcd", "store", map[string]string{"endpoints": etcd.address}),
			kill:    func() { etcd.process.kill() },
			start:   func() { etcd.start(t) },
			process: func() *process { return etcd.process },
		}
	},
}
