package pluggablelock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dapr/components-contrib/lock"
	"github.com/dapr/dapr/pkg/components/pluggable"
	components "github.com/dapr/dapr/pkg/proto/components/v1"
	"github.com/dapr/kit/logger"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/protobuf/types/known/durationpb"

	"leasehold/conformance/daprd/lockpb"
)

// reconnectDelayMax bounds how long calls go on failing after the component
// has come back. gRPC's own limit is two minutes, meant for remote servers.
const reconnectDelayMax = time.Second

// store is one component instance, reached over its socket.
type store struct {
	log  logger.Logger
	dial pluggable.GRPCConnectionDialer

	// The rest is set by InitLockStore, before daprd makes any call.
	name     string
	conn     *grpc.ClientConn
	instance *instance
	features []string
	timeout  time.Duration
}

func newStore(log logger.Logger, dial pluggable.GRPCConnectionDialer) *store {
	return &store{log: log, dial: dial}
}

// InitLockStore connects and sends Init, within ctx, which daprd ends at the
// component's initTimeout.
func (s *store) InitLockStore(ctx context.Context, metadata lock.Metadata) error {
	timeout, err := callTimeout(metadata.Properties)
	if err != nil {
		return err
	}
	// The dialer blocks until connected, so ctx is what keeps a dead socket
	// from hanging the sidecar's start.
	conn, err := s.dial(ctx, metadata.Name, grpc.WithConnectParams(grpc.ConnectParams{
		Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: reconnectDelayMax},
	}))
	if err != nil {
		return fmt.Errorf("connect to the lock component: %w", err)
	}
	instance := newInstance(lockpb.NewLockStoreClient(conn), metadata.Properties, timeout)
	if err := instance.init(ctx); err != nil {
		return errors.Join(explain(err), conn.Close())
	}
	features, err := instance.client.Features(ctx, &components.FeaturesRequest{})
	if err != nil {
		// They are for people: no call depends on them.
		s.log.Warnf("the features of lock store %s are not known: %v", metadata.Name, explain(err))
	}
	s.name, s.conn, s.instance, s.features, s.timeout = metadata.Name, conn, instance, features.GetFeatures(), timeout
	s.log.Infof("lock store %s is ready, with features %v", metadata.Name, s.features)
	return nil
}

// TryLock requests a grant for the owner. A held lock is not an error.
func (s *store) TryLock(ctx context.Context, req *lock.TryLockRequest) (*lock.TryLockResponse, error) {
	request := &lockpb.LockRequest{
		ResourceId: req.ResourceID,
		LockId:     req.LockOwner,
		Ttl:        durationpb.New(time.Duration(req.ExpiryInSeconds) * time.Second),
		Metadata:   req.Metadata,
	}
	err := s.call(ctx, func(ctx context.Context) error {
		_, err := s.instance.client.TryLock(ctx, request)
		return err
	})
	return tryLockResult(err)
}

// Unlock ends the owner's grant.
func (s *store) Unlock(ctx context.Context, req *lock.UnlockRequest) (*lock.UnlockResponse, error) {
	request := &lockpb.UnlockRequest{
		ResourceId: req.ResourceID,
		LockId:     req.LockOwner,
		Metadata:   req.Metadata,
	}
	err := s.call(ctx, func(ctx context.Context) error {
		_, err := s.instance.client.Unlock(ctx, request)
		return err
	})
	return unlockResult(err)
}

// Ping checks that the component answers. It does not need Init.
func (s *store) Ping(ctx context.Context) error {
	if s.instance == nil {
		return errNotReady
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	_, err := s.instance.client.Ping(ctx, &components.PingRequest{})
	return explain(err)
}

// Close drops the connection, which ends the calls in flight. The component
// protocol has no Close of its own: locks stay with their owners.
func (s *store) Close() error {
	if s.conn == nil {
		return nil
	}
	s.log.Infof("lock store %s is closed", s.name)
	return s.conn.Close()
}

// call makes one call under the deadline that daprd does not set: without it a
// component that hangs would hang the app.
func (s *store) call(ctx context.Context, method func(context.Context) error) error {
	if s.instance == nil {
		return errNotReady
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.instance.call(ctx, method)
}

var errNotReady = errors.New("the lock store was used before InitLockStore succeeded")
