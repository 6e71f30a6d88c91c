package fence

import (
	"context"
	"strconv"
	"strings"
)

// staleReply begins the error of a script that refused its token; the token seen follows.
const staleReply = "STALETOKEN "

// RedisScript has as KEYS the fence's key and those of the command, and as ARGV the token and
// the words of the command. It returns what the command returns, or the error
// "STALETOKEN" and the greatest token.
//
// Tokens are compared as decimal digits: a number of Lua is exact up to 2^53 only.
const RedisScript = `
local seen = redis.call('GET', KEYS[1])
local mine = ARGV[1]
if seen and (#seen > #mine or (#seen == #mine and seen > mine)) then
  return redis.error_reply('STALETOKEN ' .. seen)
end
redis.call('SET', KEYS[1], mine)
return redis.call(unpack(ARGV, 2))
`

// RedisEval sends EVAL. With go-redis it is
//
//	func(ctx context.Context, script string, keys []string, args ...any) (any, error) {
//		return client.Eval(ctx, script, keys, args...).Result()
//	}
type RedisEval func(ctx context.Context, script string, keys []string, args ...any) (any, error)

// Redis is a fence in a Redis server. The key of a fence is the prefix and [Key]; it must not be
// evicted, so the server needs a maxmemory-policy that spares keys without a TTL.
type Redis struct {
	// Eval sends the script.
	Eval RedisEval
	// Prefix begins the fence's key. The default is "leasehold_fence:". In a Redis Cluster it chooses
	// the slot, which must be that of the guarded keys: "leasehold_fence:{orders}:". All writers must
	// use the same.
	Prefix string
}

// Run runs a command in one step with the check of the token, and returns its answer. The keys are
// those that the command uses. A smaller token than the greatest one that was seen is
// refused: the error then matches [ErrStaleToken]. Any other error is the client's, such as
// go-redis's redis.Nil for an answer that is nil; the token may have been stored then.
func (r Redis) Run(ctx context.Context, holder Holder, keys []string, command ...any) (any, error) {
	prefix := r.Prefix
	if prefix == "" {
		prefix = "leasehold_fence:"
	}
	key, token := Key(holder), holder.Token()
	answer, err := r.Eval(ctx, RedisScript,
		append([]string{prefix + key}, keys...),
		append([]any{strconv.FormatInt(token, 10)}, command...)...)
	if err == nil {
		return answer, nil
	}
	_, rest, stale := strings.Cut(err.Error(), staleReply)
	if !stale {
		return nil, err
	}
	digits, _, _ := strings.Cut(rest, " ")
	seen, _ := strconv.ParseInt(digits, 10, 64) // 0: not reported
	return nil, &StaleTokenError{Key: key, Token: token, Seen: seen}
}
