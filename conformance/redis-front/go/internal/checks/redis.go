package checks

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// NewRedis connects with this protocol. It waits for an answer for longer than a busy machine
// needs.
func NewRedis(address string, protocol int) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:        address,
		Protocol:    protocol,
		ReadTimeout: 15 * time.Second,
	})
}

// PTTL asks the server how long the key lasts.
func PTTL(client *redis.Client, key string) (time.Duration, error) {
	return client.PTTL(context.Background(), key).Result()
}
