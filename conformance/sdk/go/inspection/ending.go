package main

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"

	"leasehold/conformance/sdk/go/internal/locks"
	"leasehold/conformance/sdk/go/internal/report"
	pb "leasehold/conformance/sdk/go/leaseholdv1"
)

func dryRun(i inspector, s locks.Store) error {
	namespace := []string{locks.Fresh()}
	return held(s, namespace, []string{"a", "b"}, func(grants map[string]*pb.LockResponse) error {
		answer, err := i.end(&pb.EndLocksRequest{Scope: &pb.LockScope{Namespace: namespace}, DryRun: true})
		return errors.Join(
			err,
			report.Expect("what would be ended", names(answer.GetEnded()), "a,b"),
			report.Expect("more", answer.GetMore(), false),
			s.Unlock("a", grants["a"].LockId, namespace...),
			s.Unlock("b", grants["b"].LockId, namespace...),
		)
	})
}

func endingAScope(i inspector, s locks.Store) error {
	namespace := []string{locks.Fresh()}
	end := func() (*pb.EndLocksResponse, error) {
		return i.end(&pb.EndLocksRequest{
			Scope: &pb.LockScope{Namespace: namespace, Prefix: "a"}, Reason: "a check of the SDKs",
		})
	}
	return held(s, namespace, []string{"a", "b"}, func(grants map[string]*pb.LockResponse) error {
		answer, err := end()
		if err != nil {
			return err
		}
		if names(answer.Ended) != "a" || ids(answer.Ended[0].Grants) != grants["a"].GrantId {
			return fmt.Errorf("it ended %v", answer)
		}
		lost := s.Unlock("a", grants["a"].LockId, namespace...)
		again, err := end()
		return errors.Join(
			locks.Refused(lost, codes.Aborted, "LOCK_LOST", "forced"),
			err,
			report.Expect("what is left to end", names(again.GetEnded()), ""),
			s.Unlock("b", grants["b"].LockId, namespace...),
		)
	})
}

func endingAGrant(i inspector, s locks.Store) error {
	resource := locks.Fresh()
	former, err := s.TryLock(resource)
	if err != nil {
		return err
	}
	end := func() (*pb.EndLocksResponse, error) {
		return i.end(&pb.EndLocksRequest{ResourceId: resource, GrantId: former.GrantId})
	}
	answer, err := end()
	if err != nil {
		return err
	}
	if len(answer.Ended) != 1 || ids(answer.Ended[0].Grants) != former.GrantId {
		return fmt.Errorf("it ended %v", answer)
	}
	successor, err := s.TryLock(resource)
	if err != nil {
		return err
	}
	_, err = end()
	return errors.Join(
		locks.Refused(err, codes.NotFound, "LOCK_NOT_FOUND", ""),
		s.Unlock(resource, successor.LockId),
	)
}

func everything(i inspector, _ locks.Store) error {
	// A dry run, so that no locks of others end if the sidecar accepts it.
	_, err := i.end(&pb.EndLocksRequest{Scope: &pb.LockScope{Children: true}, DryRun: true})
	return locks.Refused(err, codes.InvalidArgument, "INVALID_REQUEST", "")
}
