package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"leasehold/conformance/sdk/go/locksv1"
)

func fresh() string { return "go-" + uuid.NewString() }

func lockAndUnlock(s store) error {
	resource := fresh()
	grant, err := s.lock(callTimeout, &locksv1.LockRequest{
		ResourceId: resource, Immediate: true, Ttl: durationpb.New(20 * time.Second),
	})
	if err != nil {
		return err
	}
	if grant.LockId == "" || grant.FencingToken <= 0 || grant.Ttl.AsDuration() < 20*time.Second {
		return fmt.Errorf("granted %v", grant)
	}
	_, err = s.tryLock(resource)
	if err := refused(err, codes.Aborted, "RESOURCE_LOCKED", ""); err != nil {
		return err
	}
	if err := s.unlock(resource, grant.LockId); err != nil {
		return err
	}
	if err := refused(s.unlock(resource, grant.LockId), codes.NotFound, "LOCK_NOT_FOUND", ""); err != nil {
		return err
	}
	again, err := s.tryLock(resource)
	if err != nil {
		return err
	}
	if again.FencingToken <= grant.FencingToken {
		return fmt.Errorf("token %d after %d", again.FencingToken, grant.FencingToken)
	}
	return s.unlock(resource, again.LockId)
}

func waiting(s store) error {
	resource := fresh()
	first, err := s.tryLock(resource)
	if err != nil {
		return err
	}
	_, err = s.lock(500*time.Millisecond, &locksv1.LockRequest{ResourceId: resource})
	if err := refused(err, codes.DeadlineExceeded, "WAIT_DEADLINE", ""); err != nil {
		return err
	}
	released := make(chan error, 1)
	time.AfterFunc(300*time.Millisecond, func() { released <- s.unlock(resource, first.LockId) })
	second, err := s.lock(callTimeout, &locksv1.LockRequest{ResourceId: resource})
	if err := errors.Join(err, <-released); err != nil {
		return err
	}
	if second.Waited.AsDuration() < 200*time.Millisecond || second.FencingToken <= first.FencingToken {
		return fmt.Errorf("granted %v after %v", second, first)
	}
	return s.unlock(resource, second.LockId)
}

func renewal(s store) error {
	resource := fresh()
	grant, err := s.lock(callTimeout, &locksv1.LockRequest{
		ResourceId: resource, Immediate: true, Ttl: durationpb.New(2 * time.Second),
	})
	if err != nil {
		return err
	}
	return stillHeldAfter(s, resource, grant)
}

func ownRenewal(s store) error {
	resource := fresh()
	request := func() *locksv1.LockRequest {
		return &locksv1.LockRequest{
			ResourceId: resource, Immediate: true, NoRenewal: true, Ttl: durationpb.New(2 * time.Second),
		}
	}
	grant, err := s.lock(callTimeout, request())
	if err != nil {
		return err
	}
	if ttl, err := s.renew(resource, grant.LockId, 20*time.Second); err != nil || ttl < 20*time.Second {
		return fmt.Errorf("renewed for %v, %w", ttl, err)
	}
	if err := stillHeldAfter(s, resource, grant); err != nil {
		return err
	}
	if _, err := s.lock(callTimeout, request()); err != nil {
		return err
	}
	next, err := s.eventuallyLocks(resource, 10*time.Second)
	if err != nil {
		return err
	}
	return s.unlock(resource, next.LockId)
}

// stillHeldAfter unlocks a grant that has outlived its first TTL.
func stillHeldAfter(s store, resource string, grant *locksv1.LockResponse) error {
	time.Sleep(grant.Ttl.AsDuration() + 2*time.Second)
	_, err := s.tryLock(resource)
	if err := refused(err, codes.Aborted, "RESOURCE_LOCKED", ""); err != nil {
		return err
	}
	return s.unlock(resource, grant.LockId)
}

func streamIsTheLock(s store) error {
	resource := fresh()
	h, err := s.stream(resource)
	if err != nil {
		return err
	}
	if h.grant.FencingToken <= 0 {
		return fmt.Errorf("granted %v", h.grant)
	}
	_, err = s.tryLock(resource)
	if err := refused(err, codes.Aborted, "RESOURCE_LOCKED", ""); err != nil {
		return err
	}
	h.release()
	next, err := s.eventuallyLocks(resource, 5*time.Second)
	if err != nil {
		return err
	}
	return s.unlock(resource, next.LockId)
}

func unlockEndsTheStream(s store) error {
	resource := fresh()
	h, err := s.stream(resource)
	if err != nil {
		return err
	}
	defer h.release()
	return errors.Join(s.unlock(resource, h.grant.LockId), h.rest())
}

func force(s store) error {
	resource := fresh()
	h, err := s.stream(resource)
	if err != nil {
		return err
	}
	defer h.release()
	if err := s.force(resource); err != nil {
		return err
	}
	if err := refused(h.rest(), codes.Aborted, "LOCK_LOST", "forced"); err != nil {
		return err
	}
	grant, err := s.tryLock(resource)
	if err != nil {
		return err
	}
	return errors.Join(
		s.force(resource),
		refused(s.unlock(resource, grant.LockId), codes.Aborted, "LOCK_LOST", "forced"),
		refused(s.force(resource), codes.NotFound, "LOCK_NOT_FOUND", ""),
	)
}

func noSuchStore(s store) error {
	_, err := s.lock(callTimeout, &locksv1.LockRequest{StoreName: "nowhere", ResourceId: "r"})
	return refused(err, codes.NotFound, "STORE_NOT_FOUND", "")
}
