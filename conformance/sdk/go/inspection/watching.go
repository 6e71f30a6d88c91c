package main

import (
	"errors"
	"fmt"

	"leasehold/conformance/sdk/go/internal/locks"
	"leasehold/conformance/sdk/go/internal/report"
	pb "leasehold/conformance/sdk/go/leaseholdv1"
)

// untilSynced folds the events into a table of grant IDs, until all locks were sent.
func untilSynced(events pb.Inspection_WatchLocksClient) (map[string]string, error) {
	table := map[string]string{}
	for {
		event, err := events.Recv()
		if err != nil {
			return nil, err
		}
		if event.Restarted {
			clear(table)
		}
		if event.State != nil {
			table[event.State.ResourceId] = ids(event.State.Grants)
		}
		if event.Synced {
			return table, nil
		}
	}
}

// nextState returns the next state, or an error if it is not this one.
func nextState(events pb.Inspection_WatchLocksClient, resource, grantID string) (*pb.LockEvent, error) {
	for {
		event, err := events.Recv()
		if err != nil {
			return nil, err
		}
		if state := event.State; state != nil {
			return event, errors.Join(
				report.Expect("the resource", state.ResourceId, resource),
				report.Expect("its grants", ids(state.Grants), grantID),
			)
		}
	}
}

func watching(i inspector, s locks.Store) error {
	namespace := []string{locks.Fresh()}
	watch := &pb.WatchLocksRequest{Scope: &pb.LockScope{Namespace: namespace}}
	return held(s, namespace, []string{"a"}, func(grants map[string]*pb.LockResponse) error {
		return i.watch(watch, func(events pb.Inspection_WatchLocksClient) error {
			table, err := untilSynced(events)
			if err != nil {
				return err
			}
			if err := report.Expect("at first", fmt.Sprint(table), "map[a:"+grants["a"].GrantId+"]"); err != nil {
				return err
			}
			var later string
			err = held(s, namespace, []string{"b"}, func(grants map[string]*pb.LockResponse) error {
				later = grants["b"].GrantId
				_, err := nextState(events, "b", later)
				return err
			})
			if err != nil {
				return err
			}
			event, err := nextState(events, "b", "")
			if err != nil {
				return err
			}
			if len(event.Ended) != 1 || event.Ended[0].Grant.GetGrantId() != later {
				return fmt.Errorf("it sent %v", event)
			}
			// Not every store can report why a grant ended.
			if cause := event.Ended[0].Cause; cause != pb.EndCause_END_CAUSE_RELEASED &&
				cause != pb.EndCause_END_CAUSE_UNKNOWN {
				return fmt.Errorf("the cause is %v", cause)
			}
			return nil
		})
	})
}

func watchingOne(i inspector, s locks.Store) error {
	namespace := []string{locks.Fresh()}
	watch := &pb.WatchLocksRequest{ResourceId: "a", Namespace: namespace}
	return i.watch(watch, func(events pb.Inspection_WatchLocksClient) error {
		if _, err := untilSynced(events); err != nil {
			return err
		}
		return held(s, namespace, []string{"b", "a"}, func(grants map[string]*pb.LockResponse) error {
			_, err := nextState(events, "a", grants["a"].GrantId)
			return err
		})
	})
}
