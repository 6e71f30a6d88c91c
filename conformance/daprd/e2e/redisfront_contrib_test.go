package e2e

import (
	"testing"

	lockredis "github.com/dapr/components-contrib/lock/redis"
	contribtest "github.com/dapr/components-contrib/tests/conformance/lock"
	"github.com/dapr/kit/logger"
)

// The built-in store passes Dapr's own conformance test for lock stores on a front,
// with the metadata that Dapr runs it with.
func TestDaprsConformanceTestForLockStores(t *testing.T) {
	t.Parallel()
	for name, startServer := range redisServers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, err := contribtest.NewTestConfig("redis.v7", nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			properties := map[string]string{"redisHost": startServer(t), "redisPassword": ""}
			store := lockredis.NewStandaloneRedisLock(logger.NewLogger("conformance"))
			contribtest.ConformanceTests(t, properties, store, config)
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
