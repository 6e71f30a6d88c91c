package e2e

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	overlapFor     = 10 * time.Second
	overlapCallers = 8
	// lossEvery is how often the reply to a command is lost: seldom enough that
	// lock.redis, which pauses 512 ms before each of its three repetitions, does not give up.
	lossEvery = 600 * time.Millisecond
	// overlapExpiry is short, because a lock whose grant was not answered is held until then.
	overlapExpiry = 2
)

// Two stock daprds, one lock and many callers, while replies are lost on the way to one
// of the daprds: no two callers hold it at a time, and it becomes free.
func TestNoTwoHoldThroughStockDaprdsWhileRepliesAreLost(t *testing.T) {
	t.Parallel()
	for kind, newComponent := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			front := startRedisFront(t, newComponent(t, "store"))
			proxy := startReplyProxy(t, front.address)
			prefix := map[string]string{"keyPrefix": "none"}
			lossy := startStockDaprd(t, "one", builtInRedis("locks", proxy.address, prefix))
			sound := startStockDaprd(t, "two", builtInRedis("locks", front.address, prefix))

			end := time.Now().Add(overlapFor)
			var callers sync.WaitGroup
			var holders, grants atomic.Int64
			for i := range overlapCallers {
				a := []api{lossy.grpc, sound.http}[i%2]
				callers.Go(func() {
					for turn := 0; time.Now().Before(end); turn++ {
						holdOnce(t, a, fmt.Sprintf("caller-%d-%d", i, turn), &holders, &grants)
					}
				})
			}
			for turn := 0; time.Now().Before(end); turn++ {
				proxy.lose(loss{verb: []string{"set", "eval"}[turn%2], times: 1})
				time.Sleep(lossEvery)
			}
			callers.Wait()
			t.Logf("%d grants, %d replies lost", grants.Load(), proxy.replies())
			if grants.Load() == 0 || proxy.replies() == 0 {
				t.Error("there were no grants or no lost replies")
			}
			eventually(t, readyTimeout, "the lock becomes free", func() error {
				granted, err := sound.grpc.tryLock("locks", "r", "last", overlapExpiry)
				if err == nil && !granted {
					err = errors.New("it is held")
				}
				return err
			})
		})
	}
}

// holdOnce takes the lock if it is free, checks that nobody else has it, and releases it.
func holdOnce(t *testing.T, a api, owner string, holders, grants *atomic.Int64) {
	granted, err := a.tryLock("locks", "r", owner, overlapExpiry)
	if err != nil {
		t.Errorf("a try by %s: %v", owner, err)
	}
	if !granted {
		return
	}
	grants.Add(1)
	if now := holders.Add(1); now != 1 {
		t.Errorf("%d hold it with %s", now, owner)
	}
	holders.Add(-1)
	// Repeated after a lost reply, it finds nothing, or the lock of the next holder.
	if _, err := a.unlock("locks", "r", owner); err != nil {
		t.Errorf("an unlock by %s: %v", owner, err)
	}
}
