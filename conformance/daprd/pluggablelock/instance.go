package pluggablelock

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	components "github.com/dapr/dapr/pkg/proto/components/v1"
	"golang.org/x/sync/singleflight"
	"google.golang.org/grpc/status"

	"leasehold/conformance/daprd/lockpb"
)

// instance is the initialisation of the component under this component's name. It
// can send Init again, because daprd itself sends Init only once, but a component
// may restart at any time.
type instance struct {
	client     lockpb.LockStoreClient
	properties map[string]string
	// timeout bounds a repeated Init, which outlives the call that began it.
	timeout time.Duration

	// generation counts the Inits that succeeded, so that of many calls
	// refused at once only one repeats it.
	generation atomic.Uint64
	// repeats holds the Init under way, whose result all that wait for it
	// share: sent one after the other, failing Inits would outlast the calls.
	repeats singleflight.Group
}

func newInstance(client lockpb.LockStoreClient, properties map[string]string, timeout time.Duration) *instance {
	return &instance{client: client, properties: properties, timeout: timeout}
}

// init sends the component its properties.
func (i *instance) init(ctx context.Context) error {
	_, err := i.client.Init(ctx, &lockpb.LockStoreInitRequest{
		Metadata: &components.MetadataRequest{Properties: i.properties},
	})
	if err == nil {
		i.generation.Add(1)
	}
	return err
}

// call makes a call, and once more after Init if the component has forgotten
// this instance. A refused call did nothing, so repeating it is safe.
func (i *instance) call(ctx context.Context, method func(context.Context) error) error {
	seen := i.generation.Load()
	err := method(ctx)
	if reasonOf(err) != reasonNotInitialized {
		return err
	}
	if err := i.initAfter(ctx, seen); err != nil {
		return err
	}
	return method(ctx)
}

// initAfter sends Init unless another call has done so since generation seen,
// and waits for it no longer than ctx allows. Init itself goes on when a caller
// has left: others may wait for it, too.
func (i *instance) initAfter(ctx context.Context, seen uint64) error {
	repeated := i.repeats.DoChan(strconv.FormatUint(seen, 10), func() (any, error) {
		if i.generation.Load() != seen {
			return nil, nil
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), i.timeout)
		defer cancel()
		return nil, i.init(ctx)
	})
	select {
	case result := <-repeated:
		return result.Err
	case <-ctx.Done():
		ended := status.FromContextError(ctx.Err())
		return status.Errorf(ended.Code(), "the component needs Init again, which has not ended yet: %s", ended.Message())
	}
}
