package leasehold

import (
	"sync"

	"google.golang.org/grpc"
)

// connection is how the sidecar is reached: over a connection of the caller, or over the client's own,
// which is replaced when it does not answer.
type connection struct {
	source, endpoint string // of the client's own

	mu      sync.Mutex
	current *link
	old     map[*link]struct{} // those that were replaced and are still used
	closed  bool
}

// link is one connection, and how many requests and locks use it.
type link struct {
	grpc.ClientConnInterface
	own   *grpc.ClientConn // nil if it is the caller's
	users int
}

// use returns the link for a new lock. The lock calls leave in the end.
func (c *connection) use() *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current.users++
	return c.current
}

func (c *connection) leave(l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.users--
	if _, old := c.old[l]; old && l.users == 0 {
		delete(c.old, l)
		_ = l.own.Close()
	}
}

// replace gives new locks another connection, because this link has not answered. Locks and requests that
// use the link stay on it. The caller's connection is kept.
func (c *connection) replace(silent *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if silent != c.current || silent.own == nil || c.closed {
		return
	}
	conn, err := dial(c.source, c.endpoint)
	if err != nil {
		return
	}
	c.old[silent] = struct{}{} // its user calls leave
	c.current = &link{ClientConnInterface: conn, own: conn}
}

func (c *connection) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for l := range c.old {
		_ = l.own.Close()
	}
	clear(c.old)
	if c.current.own == nil {
		return nil
	}
	return c.current.own.Close()
}
