// Package pluggablelock is the connector that Dapr's runtime lacks: with it,
// a lock store on a component socket loads from component YAML as a state
// store or a pub/sub does.
package pluggablelock

import (
	"github.com/dapr/components-contrib/lock"
	locks "github.com/dapr/dapr/pkg/components/lock"
	"github.com/dapr/dapr/pkg/components/pluggable"
	"github.com/dapr/kit/logger"

	"leasehold/conformance/daprd/lockpb"
)

// Register makes discovery offer every socket that serves LockStore as a lock
// store: NAME.sock becomes the type lock.NAME. It must be called before the runtime
// starts. Discovery calls back at each start and SIGHUP.
func Register(registry *locks.Registry) {
	service := lockpb.LockStore_ServiceDesc.ServiceName
	pluggable.AddServiceDiscoveryCallback(service, func(name string, dial pluggable.GRPCConnectionDialer) {
		registry.RegisterComponent(func(log logger.Logger) lock.Store {
			return newStore(log, dial)
		}, name)
	})
}
