package main

import (
	lockredis "github.com/dapr/components-contrib/lock/redis"
	pubsubinmemory "github.com/dapr/components-contrib/pubsub/in-memory"
	"github.com/dapr/components-contrib/secretstores/local/env"
	"github.com/dapr/components-contrib/secretstores/local/file"
	stateinmemory "github.com/dapr/components-contrib/state/in-memory"
	stateredis "github.com/dapr/components-contrib/state/redis"
	"github.com/dapr/dapr/pkg/components/lock"
	"github.com/dapr/dapr/pkg/components/nameresolution"
	"github.com/dapr/dapr/pkg/components/pubsub"
	"github.com/dapr/dapr/pkg/components/secretstores"
	"github.com/dapr/dapr/pkg/components/state"
	"github.com/dapr/dapr/pkg/runtime/registry"
	"github.com/dapr/kit/logger"
)

// contribLog is what components log through, under the name that daprd uses.
var contribLog = logger.NewLogger("dapr.contrib")

// registerComponents links in what the tests and a small deployment need, and
// nothing else: every further component costs modules, build time and size.
//
// The built-in lock.redis stays under its usual type, for migrations. A socket
// called redis.sock takes its place, since discovery runs later and the last
// registration of a type wins.
func registerComponents() *registry.Options {
	registerConnector()
	lock.DefaultRegistry.RegisterComponent(lockredis.NewStandaloneRedisLock, "redis")
	state.DefaultRegistry.RegisterComponent(stateinmemory.NewInMemoryStateStore, "in-memory")
	state.DefaultRegistry.RegisterComponent(stateredis.NewRedisStateStore, "redis")
	pubsub.DefaultRegistry.RegisterComponent(pubsubinmemory.New, "in-memory")
	secretstores.DefaultRegistry.RegisterComponent(env.NewEnvSecretStore, "local.env")
	secretstores.DefaultRegistry.RegisterComponent(file.NewLocalSecretStore, "local.file")
	nameresolution.DefaultRegistry.RegisterComponent(newNoResolver, "mdns")

	lock.DefaultRegistry.Logger = contribLog
	state.DefaultRegistry.Logger = contribLog
	pubsub.DefaultRegistry.Logger = contribLog
	secretstores.DefaultRegistry.Logger = contribLog
	nameresolution.DefaultRegistry.Logger = contribLog

	return registry.NewOptions()
}
