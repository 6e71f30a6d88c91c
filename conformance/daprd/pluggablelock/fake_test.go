package pluggablelock

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/dapr/components-contrib/lock"
	"github.com/dapr/components-contrib/metadata"
	components "github.com/dapr/dapr/pkg/proto/components/v1"
	"github.com/dapr/kit/logger"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"leasehold/conformance/daprd/lockpb"
)

// fakeComponent answers as a test sets it, and records what it was sent.
type fakeComponent struct {
	lockpb.UnimplementedLockStoreServer

	mu          sync.Mutex
	initialized bool
	inits       []map[string]string
	tries       []*lockpb.LockRequest
	unlocks     []*lockpb.UnlockRequest
	// featuresError, if set, is the error of Features.
	featuresError error
	// answer decides calls once initialised; nil grants everything.
	answer func(ctx context.Context) error
}

func (f *fakeComponent) Init(_ context.Context, req *lockpb.LockStoreInitRequest) (*lockpb.LockStoreInitResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.initialized = true
	f.inits = append(f.inits, req.GetMetadata().GetProperties())
	return &lockpb.LockStoreInitResponse{}, nil
}

func (f *fakeComponent) Features(context.Context, *components.FeaturesRequest) (*components.FeaturesResponse, error) {
	if f.featuresError != nil {
		return nil, f.featuresError
	}
	return &components.FeaturesResponse{Features: []string{"FENCING"}}, nil
}

func (f *fakeComponent) Ping(context.Context, *components.PingRequest) (*components.PingResponse, error) {
	return &components.PingResponse{}, nil
}

func (f *fakeComponent) TryLock(ctx context.Context, req *lockpb.LockRequest) (*lockpb.LockResponse, error) {
	f.mu.Lock()
	f.tries = append(f.tries, req)
	f.mu.Unlock()
	return &lockpb.LockResponse{LockId: req.GetLockId()}, f.decide(ctx)
}

func (f *fakeComponent) Unlock(ctx context.Context, req *lockpb.UnlockRequest) (*lockpb.UnlockResponse, error) {
	f.mu.Lock()
	f.unlocks = append(f.unlocks, req)
	f.mu.Unlock()
	return &lockpb.UnlockResponse{}, f.decide(ctx)
}

func (f *fakeComponent) decide(ctx context.Context) error {
	f.mu.Lock()
	initialized, answer := f.initialized, f.answer
	f.mu.Unlock()
	switch {
	case !initialized:
		return reasonError(codes.FailedPrecondition, reasonNotInitialized, nil)
	case answer != nil:
		return answer(ctx)
	}
	return nil
}

// forget drops the component's instances, as a restart does.
func (f *fakeComponent) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.initialized = false
}

func (f *fakeComponent) answerWith(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = func(context.Context) error { return err }
}

func reasonError(code codes.Code, reason string, metadata map[string]string) error {
	s, err := status.New(code, "an error of the test").WithDetails(&errdetails.ErrorInfo{
		Reason: reason, Domain: errorDomain, Metadata: metadata,
	})
	if err != nil {
		panic(err)
	}
	return s.Err()
}

// startStore serves the fake on a socket and returns a store initialised over
// it with these properties.
func startStore(t *testing.T, fake *fakeComponent, properties map[string]string) *store {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "fake.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	lockpb.RegisterLockStoreServer(server, fake)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)

	s := newStore(logger.NewLogger("test"), func(_ context.Context, _ string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
		return grpc.NewClient("unix://"+socket, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := s.InitLockStore(ctx, lock.Metadata{Base: metadata.Base{Name: "locks", Properties: properties}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}
