package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"leasehold/conformance/sdk/go/internal/locks"
	"leasehold/conformance/sdk/go/internal/report"
	pb "leasehold/conformance/sdk/go/leaseholdv1"
)

func oneLock(i inspector, s locks.Store) error {
	resource := locks.Fresh()
	grant, err := s.Try(&pb.LockRequest{
		ResourceId: resource, Ttl: durationpb.New(20 * time.Second), Label: "desk",
	})
	if err != nil {
		return err
	}
	answer, err := i.get(&pb.GetLockRequest{ResourceId: resource})
	if err != nil {
		return err
	}
	if len(answer.Lock.Grants) != 1 {
		return fmt.Errorf("it returned %v", answer)
	}
	shown := answer.Lock.Grants[0]
	if shown.Mode != pb.LockMode_LOCK_MODE_EXCLUSIVE || shown.Foreign || shown.Since == nil {
		return fmt.Errorf("it returned %v", shown)
	}
	if remaining := shown.Remaining.AsDuration(); remaining <= 0 || remaining >= time.Minute {
		return fmt.Errorf("%v remains", remaining)
	}
	unlocked := s.Unlock(resource, grant.LockId)
	free, err := i.get(&pb.GetLockRequest{ResourceId: resource})
	return errors.Join(
		report.Expect("resource", answer.Lock.ResourceId, resource),
		report.Expect("total", answer.Lock.GrantsTotal, 1),
		report.Expect("grant", shown.GrantId, grant.GrantId),
		report.Expect("holder's label", label(shown.Holder), "desk"),
		unlocked, err,
		report.Expect("grants of a free one", ids(free.GetLock().GetGrants()), ""),
	)
}

func readers(i inspector, s locks.Store) error {
	resource := locks.Fresh()
	var grants []*pb.LockResponse
	for range 3 {
		grant, err := s.Try(&pb.LockRequest{ResourceId: resource, Mode: pb.LockMode_LOCK_MODE_SHARED})
		if err != nil {
			return err
		}
		grants = append(grants, grant)
	}
	var shown []*pb.GrantInfo
	var totals []string
	longest, err := pages(func(token string) (*pb.GetLockResponse, error) {
		return i.get(&pb.GetLockRequest{ResourceId: resource, PageSize: 2, PageToken: token})
	}, func(page *pb.GetLockResponse) int {
		shown = append(shown, page.Lock.Grants...)
		totals = append(totals, fmt.Sprint(page.Lock.GrantsTotal))
		return len(page.Lock.Grants)
	})
	for _, grant := range grants {
		err = errors.Join(err, s.Unlock(resource, grant.LockId))
	}
	return errors.Join(
		err,
		report.Expect("longest page", longest, 2),
		report.Expect("totals", strings.Join(totals, ","), "3,3"),
		report.Expect("grants", ids(shown), ids(grants)),
	)
}

func queue(i inspector, s locks.Store) error {
	resource := locks.Fresh()
	holder, err := s.TryLock(resource)
	if err != nil {
		return err
	}
	passed := make(chan error, 2)
	for n, name := range []string{"first", "second"} {
		go func() {
			grant, err := s.Lock(locks.CallTimeout, &pb.LockRequest{ResourceId: resource, Label: name})
			if err == nil {
				err = s.Unlock(resource, grant.LockId)
			}
			passed <- err
		}()
		deadline := time.Now().Add(locks.CallTimeout / 2)
		for waiting := int32(0); waiting <= int32(n); time.Sleep(20 * time.Millisecond) {
			answer, err := i.get(&pb.GetLockRequest{ResourceId: resource})
			if err != nil {
				return err
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("%s is not shown as waiting", name)
			}
			waiting = answer.Waiters
		}
	}
	var order []string
	longest, err := pages(func(token string) (*pb.ListWaitersResponse, error) {
		return i.waiters(&pb.ListWaitersRequest{ResourceId: resource, PageSize: 1, PageToken: token})
	}, func(page *pb.ListWaitersResponse) int {
		for _, waiter := range page.Waiters {
			order = append(order, fmt.Sprint(waiter.Position, " ", label(waiter.Holder)))
		}
		return len(page.Waiters)
	})
	return errors.Join(
		err,
		report.Expect("longest page", longest, 1),
		report.Expect("queue", strings.Join(order, ","), "1 first,2 second"),
		s.Unlock(resource, holder.LockId), <-passed, <-passed,
	)
}

func listing(i inspector, s locks.Store) error {
	namespace := []string{locks.Fresh()}
	return held(s, namespace, []string{"a", "b", "c"}, func(grants map[string]*pb.LockResponse) error {
		var shown []*pb.LockState
		longest, err := pages(func(token string) (*pb.ListLocksResponse, error) {
			return i.list(&pb.ListLocksRequest{
				Scope: &pb.LockScope{Namespace: namespace}, PageSize: 2, PageToken: token,
			})
		}, func(page *pb.ListLocksResponse) int {
			shown = append(shown, page.Locks...)
			return len(page.Locks)
		})
		err = errors.Join(err, report.Expect("longest page", longest, 2), report.Expect("names", names(shown), "a,b,c"))
		for _, state := range shown {
			err = errors.Join(err, report.Expect(
				"grants of "+state.ResourceId, ids(state.Grants), grants[state.ResourceId].GetGrantId()))
		}
		return err
	})
}

func scopes(i inspector, s locks.Store) error {
	namespace := []string{locks.Fresh()}
	below := append(namespace[:1:1], "below")
	listed := func(what, want, holder string, scope *pb.LockScope) error {
		scope.Namespace = namespace
		answer, err := i.list(&pb.ListLocksRequest{Scope: scope, HolderPrefix: holder})
		return errors.Join(err, report.Expect(what, names(answer.GetLocks()), want))
	}
	return held(s, namespace, []string{"a-1", "b-1"}, func(map[string]*pb.LockResponse) error {
		return held(s, below, []string{"a-2"}, func(map[string]*pb.LockResponse) error {
			answer, err := i.get(&pb.GetLockRequest{ResourceId: "b-1", Namespace: namespace})
			if err != nil {
				return err
			}
			return errors.Join(
				listed("the namespace", "a-1,b-1", "", &pb.LockScope{}),
				listed("with those below", "a-1,a-2,b-1", "", &pb.LockScope{Children: true}),
				listed("a prefix", "a-1", "", &pb.LockScope{Prefix: "a-"}),
				listed("a holder", "b-1", answer.Lock.Grants[0].Holder, &pb.LockScope{}),
			)
		})
	})
}

func noSuchStore(i inspector, _ locks.Store) error {
	_, err := i.get(&pb.GetLockRequest{StoreName: "nowhere", ResourceId: "r"})
	return locks.Refused(err, codes.NotFound, "STORE_NOT_FOUND", "")
}
