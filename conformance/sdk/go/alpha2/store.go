package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"leasehold/conformance/sdk/go/locksv1"
)

const callTimeout = 10 * time.Second

// store is leasehold.v1.Locks with one store's name filled in.
type store struct {
	name  string
	locks locksv1.LocksClient
}

func (s store) lock(timeout time.Duration, request *locksv1.LockRequest) (*locksv1.LockResponse, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if request.StoreName == "" {
		request.StoreName = s.name
	}
	return s.locks.Lock(ctx, request)
}

func (s store) tryLock(resource string) (*locksv1.LockResponse, error) {
	return s.lock(callTimeout, &locksv1.LockRequest{ResourceId: resource, Immediate: true})
}

func (s store) renew(resource, lockID string, ttl time.Duration) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	response, err := s.locks.RenewLock(ctx, &locksv1.RenewLockRequest{
		StoreName: s.name, ResourceId: resource, LockId: lockID, Ttl: durationpb.New(ttl),
	})
	return response.GetTtl().AsDuration(), err
}

func (s store) unlock(resource, lockID string) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	_, err := s.locks.Unlock(ctx, &locksv1.UnlockRequest{StoreName: s.name, ResourceId: resource, LockId: lockID})
	return err
}

func (s store) force(resource string) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	_, err := s.locks.ForceUnlock(ctx, &locksv1.ForceUnlockRequest{StoreName: s.name, ResourceId: resource})
	return err
}

// held is a lock whose life is its stream's.
type held struct {
	grant   *locksv1.LockAcquired
	stream  locksv1.Locks_LockStreamClient
	release context.CancelFunc
}

func (s store) stream(resource string) (held, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	stream, err := s.locks.LockStream(ctx, &locksv1.LockRequest{StoreName: s.name, ResourceId: resource})
	if err != nil {
		cancel()
		return held{}, err
	}
	for {
		message, err := stream.Recv()
		if err != nil {
			cancel()
			return held{}, err
		}
		if grant := message.GetLockAcquired(); grant != nil {
			return held{grant, stream, cancel}, nil
		}
	}
}

// rest reads the stream to its end: nil if that was no error.
func (h held) rest() error {
	for {
		message, err := h.stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case message.GetPing() == nil:
			return fmt.Errorf("the stream went on with %v", message)
		}
	}
}

// eventuallyLocks tries until the resource is free.
func (s store) eventuallyLocks(resource string, limit time.Duration) (*locksv1.LockResponse, error) {
	deadline := time.Now().Add(limit)
	for {
		grant, err := s.tryLock(resource)
		if err == nil || time.Now().After(deadline) {
			return grant, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// refused is nil if err is a refusal with that code, reason and cause.
func refused(err error, code codes.Code, reason, cause string) error {
	if err == nil {
		return errors.New("it was answered instead of refused")
	}
	s := status.Convert(err)
	for _, detail := range s.Details() {
		info, ok := detail.(*errdetails.ErrorInfo)
		if ok && s.Code() == code && info.GetReason() == reason && info.GetMetadata()["cause"] == cause {
			return nil
		}
	}
	return fmt.Errorf("it was refused with %v %v, not as %v %s %s", s, s.Details(), code, reason, cause)
}
