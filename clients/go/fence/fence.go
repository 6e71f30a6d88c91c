// Package fence refuses the write of a holder whose lock has gone to somebody else.
//
// A lock alone cannot do that: a process may be suspended between its last check and its
// write. A fence keeps the greatest token that it has seen, beside the data, and refuses a
// smaller one in one step with the write. An equal token is the same holder's next
// write. There are fences for SQL databases ([Dialect]), Redis ([Redis]) and Dapr's state
// stores ([State]). No driver and no SDK is a dependency of this package.
//
// Fences are for exclusive locks: shared holders have different tokens at the same time. All
// writers of the guarded data must go through the fence.
package fence

import (
	"errors"
	"fmt"
	"strings"
)

// ErrStaleToken matches, by errors.Is, the error of a write that a fence refused.
var ErrStaleToken = errors.New("fence: the token is stale")

// StaleTokenError says that a fence has seen a greater token: somebody else has the lock, or
// has had it since. Nothing was written, if the transaction of a database is rolled back.
type StaleTokenError struct {
	// Key is the fence's key.
	Key string
	// Token is the one that was refused.
	Token int64
	// Seen is the greatest token so far; 0 if the fence does not report it.
	Seen int64
}

// Error names the key and the tokens.
func (e *StaleTokenError) Error() string {
	text := fmt.Sprintf("fence: token %d of %s is stale", e.Token, e.Key)
	if e.Seen != 0 {
		text += fmt.Sprintf(": %d was seen", e.Seen)
	}
	return text
}

// Is reports whether target is ErrStaleToken.
func (e *StaleTokenError) Is(target error) bool { return target == ErrStaleToken }

// Holder is anything that has a token: a *leasehold.Lock, or a [Ticket].
type Holder interface {
	Store() string
	Namespace() []string
	Resource() string
	Token() int64
}

// Ticket is a token that was handed on, with the lock that it belongs to.
type Ticket struct {
	// LockStore is the name of the store.
	LockStore string
	// LockNamespace is the namespace of the lock, the outermost segment first; nil if it has none.
	LockNamespace []string
	// Lock is the name of the lock.
	Lock string
	// FencingToken is the token.
	FencingToken int64
}

// Store is LockStore.
func (t Ticket) Store() string { return t.LockStore }

// Namespace is LockNamespace.
func (t Ticket) Namespace() []string { return t.LockNamespace }

// Resource is Lock.
func (t Ticket) Resource() string { return t.Lock }

// Token is FencingToken.
func (t Ticket) Token() int64 { return t.FencingToken }

var escapes = strings.NewReplacer("%", "%25", "/", "%2F", "|", "%7C")

// Key is the key of a holder's fence: STORE||NAME, or STORE||SEGMENT/SEGMENT//NAME in a namespace.
// Within the parts %, / and | are written as %25, %2F and %7C, so that different locks have
// different keys. The clients of other languages make the same key.
func Key(holder Holder) string {
	key := escapes.Replace(holder.Store()) + "||"
	for i, segment := range holder.Namespace() {
		if i > 0 {
			key += "/"
		}
		key += escapes.Replace(segment)
	}
	if len(holder.Namespace()) > 0 {
		key += "//"
	}
	return key + escapes.Replace(holder.Resource())
}
