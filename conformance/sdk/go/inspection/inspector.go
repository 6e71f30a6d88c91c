package main

import (
	"context"
	"slices"
	"strings"

	"leasehold/conformance/sdk/go/internal/locks"
	pb "leasehold/conformance/sdk/go/leaseholdv1"
)

// inspector is leasehold.v1.Inspection with one store's name filled in.
type inspector struct {
	store string
	stub  pb.InspectionClient
}

func (i inspector) get(request *pb.GetLockRequest) (*pb.GetLockResponse, error) {
	if request.StoreName == "" {
		request.StoreName = i.store
	}
	return locks.Call(i.stub.GetLock, request)
}

func (i inspector) list(request *pb.ListLocksRequest) (*pb.ListLocksResponse, error) {
	request.StoreName = i.store
	return locks.Call(i.stub.ListLocks, request)
}

func (i inspector) waiters(request *pb.ListWaitersRequest) (*pb.ListWaitersResponse, error) {
	request.StoreName = i.store
	return locks.Call(i.stub.ListWaiters, request)
}

func (i inspector) end(request *pb.EndLocksRequest) (*pb.EndLocksResponse, error) {
	request.StoreName = i.store
	return locks.Call(i.stub.EndLocks, request)
}

// watch passes the events to body, and ends the watch with it.
func (i inspector) watch(request *pb.WatchLocksRequest, body func(pb.Inspection_WatchLocksClient) error) error {
	request.StoreName = i.store
	ctx, cancel := context.WithTimeout(context.Background(), locks.StreamTimeout)
	defer cancel()
	events, err := i.stub.WatchLocks(ctx, request)
	if err != nil {
		return err
	}
	return body(events)
}

func (i inspector) hasWatch() bool {
	err := i.watch(&pb.WatchLocksRequest{ResourceId: locks.Fresh()}, func(events pb.Inspection_WatchLocksClient) error {
		_, err := events.Recv()
		return err
	})
	return locks.Info(err).GetReason() != "UNSUPPORTED"
}

// pages asks for page after page, and returns the count of the longest.
func pages[P interface{ GetNextPageToken() string }](
	ask func(token string) (P, error), take func(P) (count int),
) (longest int, err error) {
	token := ""
	for {
		page, err := ask(token)
		if err != nil {
			return longest, err
		}
		longest = max(longest, take(page))
		if token = page.GetNextPageToken(); token == "" {
			return longest, nil
		}
	}
}

// ids returns the sorted IDs of the grants, of any message type.
func ids[G interface{ GetGrantId() string }](grants []G) string {
	return sorted(grants, G.GetGrantId)
}

func names(states []*pb.LockState) string {
	// A list is no snapshot: a lock may be listed again where a page ends.
	all := strings.Split(sorted(states, (*pb.LockState).GetResourceId), ",")
	return strings.Join(slices.Compact(all), ",")
}

func sorted[T any](items []T, name func(T) string) string {
	var all []string
	for _, item := range items {
		all = append(all, name(item))
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}

// label is the last part of a holder.
func label(holder string) string { return holder[strings.LastIndex(holder, "/")+1:] }

// held holds the resources while body runs, each labelled with its name.
func held(
	s locks.Store, namespace, resources []string, body func(grants map[string]*pb.LockResponse) error,
) error {
	grants := map[string]*pb.LockResponse{}
	defer func() {
		for name, grant := range grants {
			_ = s.Unlock(name, grant.LockId, namespace...) // unless the check has ended it
		}
	}()
	for _, name := range resources {
		grant, err := s.Try(&pb.LockRequest{ResourceId: name, Namespace: namespace, Label: name})
		if err != nil {
			return err
		}
		grants[name] = grant
	}
	return body(grants)
}
