// Package locks is leasehold.v1.Locks over the connection of Dapr's Go SDK, and
// what the checks of both of leasehold's services share.
package locks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/dapr/go-sdk/client"
	"github.com/google/uuid"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "leasehold/conformance/sdk/go/leaseholdv1"
)

const (
	// CallTimeout bounds a unary call.
	CallTimeout = 10 * time.Second
	// StreamTimeout bounds a stream.
	StreamTimeout = time.Minute
	// waitsMax: how many waits are tried; one must end with WAIT_DEADLINE.
	waitsMax = 5
)

// Fresh is the name of a resource that nobody else uses.
func Fresh() string { return "go-" + uuid.NewString() }

// Store is leasehold.v1.Locks with one store's name filled in.
type Store struct {
	Name  string
	locks pb.LocksClient
}

// NewStore is the store that LOCK_STORE names.
func NewStore(c client.Client) Store {
	s := Store{"locks", pb.NewLocksClient(c.GrpcClientConn())}
	if name := os.Getenv("LOCK_STORE"); name != "" {
		s.Name = name
	}
	return s
}

// Call makes a call under its own deadline.
func Call[Q, A any](method func(context.Context, Q, ...grpc.CallOption) (A, error), request Q) (A, error) {
	return callWithin(CallTimeout, method, request)
}

func callWithin[Q, A any](
	timeout time.Duration, method func(context.Context, Q, ...grpc.CallOption) (A, error), request Q,
) (A, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return method(ctx, request)
}

// Lock fills in the store's name, unless the request has one.
func (s Store) Lock(timeout time.Duration, request *pb.LockRequest) (*pb.LockResponse, error) {
	if request.StoreName == "" {
		request.StoreName = s.Name
	}
	return callWithin(timeout, s.locks.Lock, request)
}

// Try locks without waiting.
func (s Store) Try(request *pb.LockRequest) (*pb.LockResponse, error) {
	request.Immediate = true
	return s.Lock(CallTimeout, request)
}

// TryLock is Try of a resource, on the usual terms.
func (s Store) TryLock(resource string) (*pb.LockResponse, error) {
	return s.Try(&pb.LockRequest{ResourceId: resource})
}

// Renew returns the TTL that was granted.
func (s Store) Renew(request *pb.RenewLockRequest) (time.Duration, error) {
	request.StoreName = s.Name
	response, err := Call(s.locks.RenewLock, request)
	return response.GetTtl().AsDuration(), err
}

// Unlock ends a grant by its lock ID.
func (s Store) Unlock(resource, lockID string, namespace ...string) error {
	_, err := Call(s.locks.Unlock, &pb.UnlockRequest{
		StoreName: s.Name, ResourceId: resource, LockId: lockID, Namespace: namespace,
	})
	return err
}

// Force ends all grants of a resource, or the one with grantID.
func (s Store) Force(resource, grantID string) error {
	_, err := Call(s.locks.ForceUnlock, &pb.ForceUnlockRequest{
		StoreName: s.Name, ResourceId: resource, GrantId: grantID, Reason: "a check of the SDKs",
	})
	return err
}

// Check asks about locks, in any store.
func (s Store) Check(refs ...*pb.LockRef) ([]*pb.LockCheck, error) {
	response, err := Call(s.locks.CheckLocks, &pb.CheckLocksRequest{Locks: refs})
	return response.GetLocks(), err
}

// KeepAlive opens a stream of renewals.
func (s Store) KeepAlive(ctx context.Context) (pb.Locks_LockKeepAliveClient, error) {
	return s.locks.LockKeepAlive(ctx)
}

// EventuallyLocks tries until the resource is free.
func (s Store) EventuallyLocks(resource string, limit time.Duration) (*pb.LockResponse, error) {
	deadline := time.Now().Add(limit)
	for {
		grant, err := s.TryLock(resource)
		if err == nil || time.Now().After(deadline) {
			return grant, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Info is the google.rpc.ErrorInfo of a refusal; without one it is empty.
func Info(err error) *errdetails.ErrorInfo {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info
		}
	}
	return nil
}

// Refused is nil if err is a refusal with that code, reason and cause.
func Refused(err error, code codes.Code, reason, cause string) error {
	if err == nil {
		return errors.New("it was answered instead of refused")
	}
	info := Info(err)
	if status.Code(err) == code && info.GetReason() == reason && info.GetMetadata()["cause"] == cause {
		return nil
	}
	return fmt.Errorf("it was refused with %w %v, not as %v %s %s", err, info, code, reason, cause)
}

// WaitDeadline is nil if a wait ends with WAIT_DEADLINE. On a busy machine the client may end a call
// before the answer arrives, or its outcome is unknown.
func WaitDeadline(wait func() (*pb.LockResponse, error)) error {
	var wrong error
	for range waitsMax {
		_, err := wait()
		wrong = Refused(err, codes.DeadlineExceeded, "WAIT_DEADLINE", "")
		late := Refused(err, codes.DeadlineExceeded, "", "") == nil
		unknown := Refused(err, codes.Unknown, "OUTCOME_UNKNOWN", "") == nil
		if !late && !unknown {
			break
		}
	}
	return wrong
}
