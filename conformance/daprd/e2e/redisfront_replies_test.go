package e2e

import "testing"

// lossesMax is how many replies to one command may be lost before lock.redis gives up.
const lossesMax = 3

// howRepliesAreLost are the ways in which the reply to a command is lost.
func howRepliesAreLost(verb string) map[string]loss {
	return map[string]loss{
		"reset":               {verb: verb, times: 1},
		"reset several times": {verb: verb, times: lossesMax},
		"silent":              {verb: verb, times: 1, silent: true},
	}
}

// The reply to a TryLock is lost. lock.redis sends the command again by itself and is
// refused by its own lock, which is held until its expiry.
func TestStockDaprdIsRefusedByItsOwnGrantAfterLostReplies(t *testing.T) {
	t.Parallel()
	for name, startServer := range redisServers() {
		for how, losses := range howRepliesAreLost("set") {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				proxy := startReplyProxy(t, startServer(t))
				// After this a reply counts as lost. Those of a busy machine must not.
				limits := map[string]string{"readTimeout": "5s"}
				d := startStockDaprd(t, "app", builtInRedis("locks", proxy.address, limits))
				proxy.lose(losses)
				expectTry(t, d.grpc, "locks", "r", "a", 60, false)
				expectLost(t, proxy, losses.times)
				expectTry(t, d.http, "locks", "r", "b", 60, false)
				expectUnlock(t, d.grpc, "locks", "r", "a", released)
				expectTry(t, d.http, "locks", "r", "b", 60, true)
			})
		}
	}
}

// A refusal whose reply is lost stays a refusal.
func TestStockDaprdIsRefusedAgainAfterALostReply(t *testing.T) {
	t.Parallel()
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

// The reply to an unlock is lost: repeated, it answers that there is no such lock.
func TestStockDaprdFindsNothingAfterALostReplyToItsUnlock(t *testing.T) {
	t.Parallel()
	for name, startServer := range redisServers() {
		for how, losses := range howRepliesAreLost("eval") {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				proxy := startReplyProxy(t, startServer(t))
				d := startStockDaprd(t, "app", builtInRedis("locks", proxy.address, nil))
				expectTry(t, d.grpc, "locks", "r", "a", 60, true)
				proxy.lose(losses)
				expectUnlock(t, d.http, "locks", "r", "a", doesNotExist)
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
