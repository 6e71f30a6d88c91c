package pluggablelock

import (
	"context"
	"sync"

	components "github.com/dapr/dapr/pkg/proto/components/v1"

	"leasehold/conformance/daprd/lockpb"
)

// instance is what the component should know under this component's name. It
// can tell the component again, since daprd itself sends Init only once,
// whereas a component may restart at any time.
type instance struct {
	client     lockpb.LockStoreClient
	properties map[string]string

	mu sync.Mutex
	// generation counts the Inits that succeeded, so that of many calls
	// refused at once only one repeats it.
	generation uint64
}

func newInstance(client lockpb.LockStoreClient, properties map[string]string) *instance {
	return &instance{client: client, properties: properties}
}

// init tells the component its properties.
func (i *instance) init(ctx context.Context) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.initLocked(ctx)
}

func (i *instance) initLocked(ctx context.Context) error {
	_, err := i.client.Init(ctx, &lockpb.LockStoreInitRequest{
		Metadata: &components.MetadataRequest{Properties: i.properties},
	})
	if err == nil {
		i.generation++
	}
	return err
}

// call makes a call, and once more after Init if the component has forgotten
// this instance. A refused call did nothing, so repeating it is safe.
func (i *instance) call(ctx context.Context, method func(context.Context) error) error {
	seen := i.currentGeneration()
	err := method(ctx)
	if reasonOf(err) != reasonNotInitialized {
		return err
	}
	if err := i.initAfter(ctx, seen); err != nil {
		return err
	}
	return method(ctx)
}

func (i *instance) currentGeneration() uint64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.generation
}

// initAfter sends Init unless another call has done so since generation seen.
func (i *instance) initAfter(ctx context.Context, seen uint64) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.generation != seen {
		return nil
	}
	return i.initLocked(ctx)
}
