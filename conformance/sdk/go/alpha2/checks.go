package main

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"leasehold/conformance/sdk/go/internal/locks"
	pb "leasehold/conformance/sdk/go/leaseholdv1"
)

func lockAndUnlock(s locks.Store) error {
	resource := locks.Fresh()
	grant, err := s.Try(&pb.LockRequest{
		ResourceId: resource, Ttl: durationpb.New(20 * time.Second),
	})
	if err != nil {
		return err
	}
	if grant.LockId == "" || grant.FencingToken <= 0 || grant.Ttl.AsDuration() < 20*time.Second {
		return fmt.Errorf("granted %v", grant)
	}
	_, err = s.TryLock(resource)
	if err := locks.Refused(err, codes.Aborted, "RESOURCE_LOCKED", ""); err != nil {
		return err
	}
	if err := s.Unlock(resource, grant.LockId); err != nil {
		return err
	}
	if err := locks.Refused(s.Unlock(resource, grant.LockId), codes.NotFound, "LOCK_NOT_FOUND", ""); err != nil {
		return err
	}
	again, err := s.TryLock(resource)
	if err != nil {
		return err
	}
	if again.FencingToken <= grant.FencingToken {
		return fmt.Errorf("token %d after %d", again.FencingToken, grant.FencingToken)
	}
	return s.Unlock(resource, again.LockId)
}

func waiting(s locks.Store) error {
	resource := locks.Fresh()
	first, err := s.TryLock(resource)
	if err != nil {
		return err
	}
	if err := locks.WaitDeadline(func() (*pb.LockResponse, error) {
		return s.Lock(time.Second, &pb.LockRequest{ResourceId: resource})
	}); err != nil {
		return err
	}
	released := make(chan error, 1)
	// Long enough for the next call to be in the queue by then.
	time.AfterFunc(3*time.Second, func() { released <- s.Unlock(resource, first.LockId) })
	second, err := s.Lock(locks.CallTimeout, &pb.LockRequest{ResourceId: resource})
	if err := errors.Join(err, <-released); err != nil {
		return err
	}
	if second.Waited.AsDuration() < 200*time.Millisecond || second.FencingToken <= first.FencingToken {
		return fmt.Errorf("granted %v after %v", second, first)
	}
	return s.Unlock(resource, second.LockId)
}

func renewal(s locks.Store) error {
	resource := locks.Fresh()
	grant, err := s.Try(&pb.LockRequest{
		ResourceId: resource, Ttl: durationpb.New(6 * time.Second),
	})
	if err != nil {
		return err
	}
	return stillHeldAfter(s, resource, grant)
}

func ownRenewal(s locks.Store) error {
	resource := locks.Fresh()
	request := func(ttl time.Duration) *pb.LockRequest {
		return &pb.LockRequest{ResourceId: resource, NoRenewal: true, Ttl: durationpb.New(ttl)}
	}
	grant, err := s.Try(request(6 * time.Second))
	if err != nil {
		return err
	}
	ttl, err := s.Renew(&pb.RenewLockRequest{
		ResourceId: resource, LockId: grant.LockId, Ttl: durationpb.New(20 * time.Second),
	})
	if err != nil || ttl < 20*time.Second {
		return fmt.Errorf("renewed for %v, %w", ttl, err)
	}
	if err := stillHeldAfter(s, resource, grant); err != nil {
		return err
	}
	if _, err := s.Try(request(2 * time.Second)); err != nil {
		return err
	}
	next, err := s.EventuallyLocks(resource, 10*time.Second)
	if err != nil {
		return err
	}
	return s.Unlock(resource, next.LockId)
}

// stillHeldAfter unlocks a grant that has outlived its first TTL.
func stillHeldAfter(s locks.Store, resource string, grant *pb.LockResponse) error {
	time.Sleep(grant.Ttl.AsDuration() + 2*time.Second)
	_, err := s.TryLock(resource)
	if err := locks.Refused(err, codes.Aborted, "RESOURCE_LOCKED", ""); err != nil {
		return err
	}
	return s.Unlock(resource, grant.LockId)
}

func streamIsTheLock(s locks.Store) error {
	resource := locks.Fresh()
	h, err := s.Stream(&pb.LockRequest{ResourceId: resource})
	if err != nil {
		return err
	}
	if h.Grant.FencingToken <= 0 {
		return fmt.Errorf("granted %v", h.Grant)
	}
	_, err = s.TryLock(resource)
	if err := locks.Refused(err, codes.Aborted, "RESOURCE_LOCKED", ""); err != nil {
		return err
	}
	h.Release()
	next, err := s.EventuallyLocks(resource, 5*time.Second)
	if err != nil {
		return err
	}
	return s.Unlock(resource, next.LockId)
}

func unlockEndsTheStream(s locks.Store) error {
	resource := locks.Fresh()
	h, err := s.Stream(&pb.LockRequest{ResourceId: resource})
	if err != nil {
		return err
	}
	defer h.Release()
	return errors.Join(s.Unlock(resource, h.Grant.LockId), h.Rest())
}

func force(s locks.Store) error {
	resource := locks.Fresh()
	h, err := s.Stream(&pb.LockRequest{ResourceId: resource})
	if err != nil {
		return err
	}
	defer h.Release()
	if err := s.Force(resource, ""); err != nil {
		return err
	}
	if err := locks.Refused(h.Rest(), codes.Aborted, "LOCK_LOST", "forced"); err != nil {
		return err
	}
	grant, err := s.TryLock(resource)
	if err != nil {
		return err
	}
	return errors.Join(
		s.Force(resource, ""),
		locks.Refused(s.Unlock(resource, grant.LockId), codes.Aborted, "LOCK_LOST", "forced"),
		locks.Refused(s.Force(resource, ""), codes.NotFound, "LOCK_NOT_FOUND", ""),
	)
}

func noSuchStore(s locks.Store) error {
	_, err := s.Lock(locks.CallTimeout, &pb.LockRequest{StoreName: "nowhere", ResourceId: "r"})
	return locks.Refused(err, codes.NotFound, "STORE_NOT_FOUND", "")
}
