package e2e

import (
	"maps"
	"slices"
	"testing"
)

// startStockDaprd starts a daprd without the connector, over these components.
func startStockDaprd(t *testing.T, appID string, components ...component) *sidecar {
	t.Helper()
	return startDaprd(t, stockOptions(t, appID, components...))
}

func stockOptions(t *testing.T, appID string, components ...component) daprdOptions {
	t.Helper()
	return daprdOptions{stock: true, appID: appID, sockets: sockets(t), resources: resources(t, components...)}
}

// builtInRedis is a component of Dapr's own lock.redis, with these metadata items
// besides the address.
func builtInRedis(name, address string, metadata map[string]string) component {
	c := plainComponent(name, "lock.redis")
	c.Spec.Metadata = []metadataItem{{Name: "redisHost", Value: address}}
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		c.Spec.Metadata = append(c.Spec.Metadata, metadataItem{Name: key, Value: metadata[key]})
	}
	return c
}

// The stock build must not have the connector: a component socket adds no type, and
// none replaces the built-in lock.redis.
func TestStockDaprdLoadsNoPluggableLockStores(t *testing.T) {
	t.Parallel()
	address, _ := startRedis(t)
	folder := sockets(t)
	startLeasehold(t, folder, []string{"redis", "memory"})
	options := stockOptions(t, "app", builtInRedis("locks", address, nil))
	options.sockets = folder
	d := startDaprd(t, options)
	expectTry(t, d.grpc, "locks", "r", "a", 60, true)

	options = stockOptions(t, "app", userComponent(t, "memory", "locks", nil))
	options.sockets = folder
	launchDaprd(t, options).exitsWith("couldn't find lock store lock.memory/v1")
}
