// Package leasehold takes distributed locks through a leasehold sidecar, and cancels the
// work under a lock when the lock is lost.
//
//	locks, err := leasehold.New("lockstore")
//	if err != nil {
//		return err
//	}
//	defer locks.Close()
//	err = locks.Do(ctx, "order-1", func(ctx context.Context, lock *leasehold.Lock) error {
//		return charge(ctx, order, lock.Token()) // ctx ends on loss, context.Cause says why
//	}, leasehold.Wait(10*time.Second))
//
// A lock is the life of a gRPC stream: the sidecar renews it while the stream is open, and
// releases it at once when the process dies. The client never treats a lock as held for longer
// than the sidecar does, even if the sidecar is suspended or cut off: it asks every sixth of
// the TTL, and gives the lock up before the time that the last answer allowed has passed.
//
// A client that is slow can still write after its lock has gone to somebody else. Pass
// [Lock.Token] to whatever the lock protects, and refuse smaller tokens there: package
// [github.com/leasehold/leasehold/clients/go/fence] does so for SQL databases, Redis and
// Dapr's state stores.
//
// # Errors
//
// Errors are of type [*Error], and match [ErrNotAcquired] or [ErrLockLost] with errors.Is.
// There is one exception: a wait that ends because its context ended returns an error that
// wraps ctx.Err().
//
// # Goroutines
//
// A lock that is held has two goroutines, which end with it. A [Lock] and a [Locks] may be
// used by any number of goroutines.
package leasehold
