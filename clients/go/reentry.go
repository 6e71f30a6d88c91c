package leasehold

import (
	"context"
	"fmt"
)

// owned is a reentrant lock that the owner of a context holds. Contexts carry a list of them.
type owned struct {
	key   resourceKey
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
	// Quoted, so that no two namespaces have the same text.
	return resourceKey{c, fmt.Sprintf("%q", namespace), name}
}

func withOwned(ctx context.Context, key resourceKey, h *hold) context.Context {
	outer, _ := ctx.Value(ownedContextKey{}).(*owned)
	return context.WithValue(ctx, ownedContextKey{}, &owned{key, h, outer})
}

// joinOwned returns the grant that the owner of ctx has under this key, or nil.
func joinOwned(ctx context.Context, key resourceKey, mode Mode) (*hold, error) {
	entry, _ := ctx.Value(ownedContextKey{}).(*owned)
	for ; entry != nil; entry = entry.outer {
		if entry.key != key {
			continue
		}
		joined, err := entry.hold.join(mode)
		if err != nil {
			return nil, err
		}
		if joined {
			return entry.hold, nil
		}
	}
	return nil, nil
}
