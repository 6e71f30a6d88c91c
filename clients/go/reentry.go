package leasehold

import (
	"context"
	"strings"
)

// owned is a reentrant lock that the owner of a context holds. Contexts carry a list of them.
type owned struct {
	key   resourceKey
	mode  Mode
	hold  *hold
	outer *owned
}

type resourceKey struct {
	locks     *Locks
	namespace string
	name      string
}

type ownedContextKey struct{}

func ownedKey(c *Locks, name string, namespace []string) resourceKey {
	// The sidecar refuses segments with control characters.
	return resourceKey{c, strings.Join(namespace, "\x00"), name}
}

func withOwned(ctx context.Context, key resourceKey, mode Mode, h *hold) context.Context {
	outer, _ := ctx.Value(ownedContextKey{}).(*owned)
	return context.WithValue(ctx, ownedContextKey{}, &owned{key, mode, h, outer})
}

// joinOwned is the grant that the owner of ctx has under this key, or nil.
func joinOwned(ctx context.Context, key resourceKey, mode Mode) (*hold, error) {
	entry, _ := ctx.Value(ownedContextKey{}).(*owned)
	for ; entry != nil; entry = entry.outer {
		if entry.key != key {
			continue
		}
		if entry.mode != mode {
			return nil, invalid("mode", "the lock "+key.name+" is held by the same owner in another mode")
		}
		joined, lost := entry.hold.join()
		if lost != nil {
			return nil, lost
		}
		if joined {
			return entry.hold, nil
		}
	}
	return nil, nil
}
