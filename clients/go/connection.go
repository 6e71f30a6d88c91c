package leasehold

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var errClosed = status.Error(codes.Canceled, "the client is closed")

// connection is how the sidecar is reached: over a connection of the caller, or over the client's own,
// which is replaced when it does not answer.
type connection struct {
	source, endpoint string // of the client's own
	// open ends when the client is closed, and the streams with it: the caller's connection stays open.
	open context.Context
	end  context.CancelFunc

	mu      sync.Mutex
	current *link
	old     map[*link]struct{} // those that were replaced and are still used
}

// link is one connection, and how many requests and locks use it.
type link struct {
	grpc.ClientConnInterface
	own   *grpc.ClientConn // nil if it is the caller's
	users int
}

// use returns the link for a new lock. The lock calls leave in the end.
func (c *connection) use() (*link, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open.Err() != nil {
		return nil, errClosed
	}
	c.current.users++
	return c.current, nil
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
	if silent != c.current || silent.own == nil || c.open.Err() != nil {
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
	c.end()
	for l := range c.old {
		_ = l.own.Close()
	}
	clear(c.old)
	if c.current.own == nil {
		return nil
	}
	return c.current.own.Close()
}
