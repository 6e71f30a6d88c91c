package e2e

import (
	"fmt"
	"testing"
)

// lossesMax is how many replies to one command may be lost before lock.redis gives up.
const lossesMax = 3

// The reply to a TryLock is lost with its connection. lock.redis sends the command
// again by itself, and a front lets it find its own grant; on Redis the repetition is
// refused, and the lock is held until its expiry.
func TestStockDaprdFindsItsOwnGrantAfterLostReplies(t *testing.T) {
	for name, startServer := range redisServers() {
		for _, times := range []int{1, lossesMax} {
			t.Run(fmt.Sprintf("%s %d lost", name, times), func(t *testing.T) {
				t.Parallel()
				proxy := startReplyProxy(t, startServer(t))
				d := startStockDaprd(t, "app", builtInRedis("locks", proxy.address, nil))
				proxy.lose(loss{verb: "set", times: times})
				expectTry(t, d.grpc, "locks", "r", "a", 60, name != redisItself)
				expectLost(t, proxy, times)
				expectTry(t, d.http, "locks", "r", "b", 60, false)
				expectTry(t, d.grpc, "locks", "r", "a", 60, false)
				expectUnlock(t, d.grpc, "locks", "r", "a", released)
				expectTry(t, d.http, "locks", "r", "b", 60, true)
			})
		}
	}
}

// A reply that never comes, though nothing breaks, is no lost reply for the front: the
// client waits in vain, closes the connection, and is refused as on Redis.
func TestStockDaprdIsRefusedWhereAReplyNeverCame(t *testing.T) {
	for name, startServer := range redisServers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := startReplyProxy(t, startServer(t))
			d := startStockDaprd(t, "app", builtInRedis("locks", proxy.address, map[string]string{"readTimeout": "1s"}))
			proxy.lose(loss{verb: "set", times: 1, silent: true})
			expectTry(t, d.grpc, "locks", "r", "a", 60, false)
			expectLost(t, proxy, 1)
			expectUnlock(t, d.grpc, "locks", "r", "a", released)
		})
	}
}

// A refusal whose reply is lost stays a refusal.
func TestStockDaprdIsRefusedAgainAfterALostReply(t *testing.T) {
	for name, startServer := range redisServers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := startReplyProxy(t, startServer(t))
			d := startStockDaprd(t, "app", builtInRedis("locks", proxy.address, nil))
			expectTry(t, d.grpc, "locks", "r", "a", 60, true)
			for i, owner := range []string{"b", "a"} {
				proxy.lose(loss{verb: "set", times: 1})
				expectTry(t, d.grpc, "locks", "r", owner, 60, false)
				expectLost(t, proxy, i+1)
			}
			expectUnlock(t, d.grpc, "locks", "r", "a", released)
		})
	}
}

// The reply to an unlock is lost: repeated, it answers as the first did. On Redis it
// answers that there is no such lock.
func TestStockDaprdIsToldOfItsUnlockAfterLostReplies(t *testing.T) {
	for name, startServer := range redisServers() {
		for how, losses := range map[string]loss{
			"reset":               {verb: "eval", times: 1},
			"reset several times": {verb: "eval", times: lossesMax},
			"silent":              {verb: "eval", times: 1, silent: true},
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				proxy := startReplyProxy(t, startServer(t))
				d := startStockDaprd(t, "app", builtInRedis("locks", proxy.address, nil))
				expectTry(t, d.grpc, "locks", "r", "a", 60, true)
				proxy.lose(losses)
				want := released
				if name == redisItself {
					want = doesNotExist
				}
				expectUnlock(t, d.http, "locks", "r", "a", want)
				expectLost(t, proxy, losses.times)
				expectTry(t, d.http, "locks", "r", "b", 60, true)
				expectUnlock(t, d.http, "locks", "r", "a", belongsToOthers)
			})
		}
	}
}

func expectLost(t *testing.T, proxy *replyProxy, want int) {
	t.Helper()
	if got := proxy.replies(); got != want {
		t.Errorf("%d replies were lost, not %d", got, want)
	}
}
