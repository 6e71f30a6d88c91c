package e2e

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold/leasehold/clients/go"
	"github.com/leasehold/leasehold/clients/go/fence"
	"github.com/leasehold/leasehold/clients/go/internal/stage"
)

func openRedis(t *testing.T) (*redis.Client, fence.Redis) {
	t.Helper()
	client, err := redisServer()
	if err != nil {
		t.Fatal(err)
	}
	return client, fence.Redis{Eval: func(ctx context.Context, script string, keys []string, args ...any) (any, error) {
		return client.Eval(ctx, script, keys, args...).Result()
	}}
}

func TestAStaleTokenIsRefusedByRedis(t *testing.T) {
	client, fenced := openRedis(t)
	onEach(t, func(t *testing.T, s *stage.Stage, locks *leasehold.Locks) {
		newAccount := func() account {
			key := fresh(t)
			a := account{
				read: func(t *testing.T) int {
					t.Helper()
					balance, err := client.Get(t.Context(), key).Int()
					if err != nil {
						t.Fatal(err)
					}
					return balance
				},
				write: func(t *testing.T, balance int) {
					t.Helper()
					if err := client.Set(t.Context(), key, balance, 0).Err(); err != nil {
						t.Fatal(err)
					}
				},
				guarded: func(holder fence.Holder, balance int) error {
					_, err := fenced.Run(context.Background(), holder, []string{key}, "SET", key, balance)
					return err
				},
			}
			a.write(t, 100)
			return a
		}
		staleWriterLoses(t, s, locks, newAccount())
		staleWriterWins(t, s, locks, newAccount())
	})
}

func TestTokensOf63BitsAreComparedExactlyByRedis(t *testing.T) {
	_, fenced := openRedis(t)
	for _, pair := range [][2]int64{{9, 10}, {1 << 53, 1<<53 + 1}, {math.MaxInt64 - 1, math.MaxInt64}} {
		holder := func(token int64) fence.Ticket {
			return fence.Ticket{LockStore: stage.Store, Lock: t.Name(), FencingToken: token}
		}
		key := t.Name()
		if _, err := fenced.Run(t.Context(), holder(pair[1]), []string{key}, "SET", key, "newer"); err != nil {
			t.Fatal(err)
		}
		_, err := fenced.Run(t.Context(), holder(pair[0]), []string{key}, "SET", key, "older")
		var stale *fence.StaleTokenError
		if !errors.As(err, &stale) || stale.Seen != pair[1] {
			t.Errorf("%d after %d: %v", pair[0], pair[1], err)
		}
		if got, err := fenced.Run(t.Context(), holder(pair[1]), []string{key}, "GET", key); got != "newer" || err != nil {
			t.Errorf("the value is %v %v", got, err)
		}
	}
}

func TestAnErrorOfTheCommandIsPassedOnByRedis(t *testing.T) {
	_, fenced := openRedis(t)
	holder := fence.Ticket{LockStore: stage.Store, Lock: t.Name(), FencingToken: 1}
	if _, err := fenced.Run(t.Context(), holder, nil, "NONSENSE"); err == nil || errors.Is(err, fence.ErrStaleToken) {
		t.Errorf("a wrong command: %v", err)
	}
	if _, err := fenced.Run(t.Context(), holder, []string{"none"}, "GET", "none"); !errors.Is(err, redis.Nil) {
		t.Errorf("nil: %v", err)
	}
}
