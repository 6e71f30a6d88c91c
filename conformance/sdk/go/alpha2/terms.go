package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"leasehold/conformance/sdk/go/internal/locks"
	"leasehold/conformance/sdk/go/internal/report"
	pb "leasehold/conformance/sdk/go/leaseholdv1"
)

// terms are the checks about the terms of a grant: who shares it, what names it,
// how long a call waits for it, how long it is valid, and what ends it.
var terms = []check{
	{"readers share a lock, and a writer is refused until the last has unlocked", sharing},
	{"a resource in a namespace is another than the same name without it", namespaces},
	{"a refusal names the holder with its label", label},
	{"a wait ends a call that waits, and a wait of zero is a try", wait},
	{"a wait ends the waiting of a stream, and not its lock", waitOfAStream},
	{"a check says for how long a lock is valid, or why it is not", validity},
	{"one stream renews many locks, and one that fails does not end it", keepAlive},
	{"a detached lock outlives its stream until its TTL", detaching},
	{"a limit that is set later ends a lock that the sidecar renews", laterLimit},
	{"a forced unlock with a grant ID ends that grant and no other", forceOne},
}

// locked is nil if a request is refused because somebody else has the lock.
func locked(_ *pb.LockResponse, err error) error {
	return locks.Refused(err, codes.Aborted, "RESOURCE_LOCKED", "")
}

// read tries to acquire a shared grant.
func read(s locks.Store, resource string) (*pb.LockResponse, error) {
	return s.Try(&pb.LockRequest{ResourceId: resource, Mode: pb.LockMode_LOCK_MODE_SHARED})
}

// twoReaders acquires two shared grants of one resource.
func twoReaders(s locks.Store, resource string) (first, second *pb.LockResponse, err error) {
	if first, err = read(s, resource); err != nil {
		return nil, nil, err
	}
	second, err = read(s, resource)
	return first, second, err
}

func sharing(s locks.Store) error {
	resource := locks.Fresh()
	first, second, err := twoReaders(s, resource)
	if err != nil {
		return err
	}
	for _, reader := range []*pb.LockResponse{first, second} {
		if err := errors.Join(locked(s.TryLock(resource)), s.Unlock(resource, reader.LockId)); err != nil {
			return err
		}
	}
	writer, err := s.TryLock(resource)
	if err != nil {
		return err
	}
	return errors.Join(locked(read(s, resource)), s.Unlock(resource, writer.LockId))
}

func namespaces(s locks.Store) error {
	resource, namespace := locks.Fresh(), []string{"shop", "eu"}
	try := func() (*pb.LockResponse, error) {
		return s.Try(&pb.LockRequest{ResourceId: resource, Namespace: namespace})
	}
	plain, err1 := s.TryLock(resource)
	named, err2 := try()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	return errors.Join(
		locked(try()),
		s.Unlock(resource, named.LockId, namespace...),
		locked(s.TryLock(resource)),
		s.Unlock(resource, plain.LockId),
	)
}

func label(s locks.Store) error {
	resource := locks.Fresh()
	grant, err := s.Try(&pb.LockRequest{ResourceId: resource, Label: "nightly-import"})
	if err != nil {
		return err
	}
	_, refusal := s.TryLock(resource)
	holder := locks.Info(refusal).GetMetadata()["holder"]
	return errors.Join(
		locked(nil, refusal),
		report.Expect("last part of the holder", holder[strings.LastIndex(holder, "/")+1:], "nightly-import"),
		s.Unlock(resource, grant.LockId),
	)
}

// heldForAWhile returns a held resource. Each try needs its own: after one that
// ended late, it is free. A call without its own wait would get it in time.
func heldForAWhile(s locks.Store) (string, error) {
	resource := locks.Fresh()
	_, err := s.Try(&pb.LockRequest{ResourceId: resource, MaxHold: durationpb.New(9 * time.Second)})
	return resource, err
}

func wait(s locks.Store) error {
	lock := func(wait time.Duration) (*pb.LockResponse, error) {
		resource, err := heldForAWhile(s)
		if err != nil {
			return nil, err
		}
		return s.Lock(locks.CallTimeout, &pb.LockRequest{ResourceId: resource, Wait: durationpb.New(wait)})
	}
	return errors.Join(
		locks.WaitDeadline(func() (*pb.LockResponse, error) { return lock(time.Second) }),
		locked(lock(0)),
	)
}

func waitOfAStream(s locks.Store) error {
	stream := func(resource string, wait time.Duration) (locks.Held, error) {
		return s.Stream(&pb.LockRequest{ResourceId: resource, Wait: durationpb.New(wait)})
	}
	if err := locks.WaitDeadline(func() (*pb.LockResponse, error) {
		held, err := heldForAWhile(s)
		if err != nil {
			return nil, err
		}
		_, err = stream(held, 2*time.Second)
		return nil, err
	}); err != nil {
		return err
	}
	resource := locks.Fresh()
	h, err := stream(resource, time.Second)
	if err != nil {
		return err
	}
	defer h.Release()
	time.Sleep(2 * time.Second)
	return errors.Join(locked(s.TryLock(resource)), s.Unlock(resource, h.Grant.LockId), h.Rest())
}

func validity(s locks.Store) error {
	held, lost := locks.Fresh(), locks.Fresh()
	grant, err1 := s.Try(&pb.LockRequest{ResourceId: held, Ttl: durationpb.New(20 * time.Second)})
	gone, err2 := s.TryLock(lost)
	if err := errors.Join(err1, err2, s.Force(lost, "")); err != nil {
		return err
	}
	checks, err := s.Check(
		&pb.LockRef{StoreName: s.Name, ResourceId: held, LockId: grant.LockId},
		&pb.LockRef{StoreName: s.Name, ResourceId: lost, LockId: gone.LockId},
		&pb.LockRef{StoreName: s.Name, ResourceId: held, LockId: "made-up"},
		&pb.LockRef{StoreName: "nowhere", ResourceId: held, LockId: grant.LockId},
	)
	if err != nil {
		return err
	}
	var answers []string
	for _, check := range checks {
		answers = append(answers, fmt.Sprint(check.ValidFor != nil, " ", check.Reason, " ", check.Cause))
	}
	want := []string{"true  ", "false LOCK_LOST forced", "false NOT_HELD_HERE ", "false STORE_NOT_FOUND "}
	if err := report.Expect("the answer to each", strings.Join(answers, ","), strings.Join(want, ",")); err != nil {
		return err
	}
	if valid := checks[0].ValidFor.AsDuration(); valid <= 0 || valid >= 20*time.Second {
		return fmt.Errorf("valid for %v", valid)
	}
	return s.Unlock(held, grant.LockId)
}

func keepAlive(s locks.Store) error {
	ctx, cancel := context.WithTimeout(context.Background(), locks.StreamTimeout)
	defer cancel()
	stream, err := s.KeepAlive(ctx)
	if err != nil {
		return err
	}
	send := func(id uint64, resource, lockID string) error {
		return stream.Send(&pb.LockKeepAliveRequest{
			Id: id, StoreName: s.Name, ResourceId: resource, LockId: lockID, Ttl: durationpb.New(20 * time.Second),
		})
	}
	resources := []string{locks.Fresh(), locks.Fresh()}
	var lockIDs []string
	for _, resource := range resources {
		grant, err := s.Try(&pb.LockRequest{
			ResourceId: resource, NoRenewal: true, Ttl: durationpb.New(10 * time.Second),
		})
		if err != nil {
			return err
		}
		lockIDs = append(lockIDs, grant.LockId)
	}
	if err := send(7, resources[0], "made-up"); err != nil {
		return err
	}
	failed, err := stream.Recv()
	if err != nil {
		return err
	}
	if failed.Id != 7 || failed.Reason != "LOCK_NOT_FOUND" || !failed.Held {
		return fmt.Errorf("for an unknown lock it answered %v", failed)
	}
	if err := errors.Join(
		send(0, resources[0], lockIDs[0]), send(1, resources[1], lockIDs[1]), stream.CloseSend(),
	); err != nil {
		return err
	}
	renewed := map[uint64]bool{}
	for range resources {
		answer, err := stream.Recv()
		if err != nil {
			return err
		}
		renewed[answer.Id] = answer.Ttl.AsDuration() >= 20*time.Second
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("the stream went on, or ended with %v", err)
	}
	return errors.Join(
		report.Expect("both are renewed", renewed[0] && renewed[1], true),
		s.Unlock(resources[0], lockIDs[0]),
		s.Unlock(resources[1], lockIDs[1]),
	)
}

func detaching(s locks.Store) error {
	resource := locks.Fresh()
	h, err := s.Stream(&pb.LockRequest{ResourceId: resource})
	if err != nil {
		return err
	}
	defer h.Release()
	_, err = s.Renew(&pb.RenewLockRequest{
		ResourceId: resource, LockId: h.Grant.LockId, Detach: true, Ttl: durationpb.New(4 * time.Second),
	})
	if err := errors.Join(err, h.Rest(), locked(s.TryLock(resource))); err != nil {
		return err
	}
	next, err := s.EventuallyLocks(resource, 15*time.Second)
	if err != nil {
		return err
	}
	return s.Unlock(resource, next.LockId)
}

func laterLimit(s locks.Store) error {
	resource, ttl := locks.Fresh(), durationpb.New(time.Minute)
	grant, err := s.Try(&pb.LockRequest{ResourceId: resource, Ttl: ttl})
	if err != nil {
		return err
	}
	if _, err := s.Renew(&pb.RenewLockRequest{
		ResourceId: resource, LockId: grant.LockId, Ttl: ttl, MaxHold: durationpb.New(time.Second),
	}); err != nil {
		return err
	}
	next, err := s.EventuallyLocks(resource, 15*time.Second)
	if err != nil {
		return err
	}
	return errors.Join(
		s.Unlock(resource, next.LockId),
		locks.Refused(s.Unlock(resource, grant.LockId), codes.Aborted, "LOCK_LOST", "max_hold"),
	)
}

func forceOne(s locks.Store) error {
	resource := locks.Fresh()
	first, second, err := twoReaders(s, resource)
	if err != nil {
		return err
	}
	return errors.Join(
		s.Force(resource, first.GrantId),
		locks.Refused(s.Unlock(resource, first.LockId), codes.Aborted, "LOCK_LOST", "forced"),
		locks.Refused(s.Force(resource, first.GrantId), codes.NotFound, "LOCK_NOT_FOUND", ""),
		s.Unlock(resource, second.LockId),
	)
}
