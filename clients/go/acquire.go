package leasehold

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasehold/leasehold/clients/go/internal/pb"
)

const (
	// silenceMax is how long a waiter may receive nothing before it gives up; pings come every 10 s.
	silenceMax = 30 * time.Second
	// answerGrace is how long after the end of a wait the answer may come.
	answerGrace = 10 * time.Second
)

// waiting is what the goroutine of a stream reports until the lock is granted.
type waiting struct {
	granted chan grantedAt
	pings   chan struct{}
	failed  chan error
	silent  func() // called when the wait ends because no answer came
}

type grantedAt struct {
	grant *pb.LockAcquired
	sent  time.Duration // when the request was sent
}

// acquire waits for the lock. ctx ends the wait and nothing else.
func (c *Locks) acquire(ctx context.Context, name string, o *options) (*hold, error) {
	if ctx.Err() != nil {
		return nil, waitCancelled(ctx, name)
	}
	link, err := c.conn.use()
	if err != nil {
		return nil, refused(name, err)
	}
	h := &hold{
		locks: c, link: link, request: o.request(c.store, name), handles: 1,
		received: make(chan struct{}), kept: make(chan struct{}),
	}
	base := context.WithoutCancel(ctx)
	h.ctx, h.cancel = context.WithCancelCause(base)
	streamCtx, closeStream := context.WithCancel(base)
	unwatch := context.AfterFunc(c.conn.open, closeStream)
	h.closeStream = func() {
		unwatch()
		closeStream()
	}
	w := &waiting{make(chan grantedAt, 1), make(chan struct{}, 1), make(chan error, 1), func() { c.conn.replace(h.link) }}
	go h.receive(streamCtx, w)

	granted, err := w.wait(ctx, name, o)
	if err == nil {
		err = h.granted(granted.grant, granted.sent, o)
	}
	if err != nil {
		h.closeStream()
		<-h.received
		h.cancel(nil)
		c.conn.leave(h.link)
		return nil, err
	}
	keeperCtx, stopKeeper := context.WithCancel(h.ctx)
	h.stopKeeper = stopKeeper
	go h.keep(keeperCtx)
	return h, nil
}

// receive reads the stream to its end.
func (h *hold) receive(ctx context.Context, w *waiting) {
	defer close(h.received)
	stream, sent, err := h.openStream(ctx)
	held := false
	for err == nil {
		message := &pb.LockServerStream{}
		if err = stream.RecvMsg(message); err != nil {
			break
		}
		if grant := message.GetLockAcquired(); grant != nil && !held {
			held = true
			w.granted <- grantedAt{grant, sent}
			continue
		}
		select {
		case w.pings <- struct{}{}:
		default:
		}
	}
	if h.locks.conn.open.Err() != nil && status.Code(err) == codes.Canceled {
		err = errClosed
	}
	if held {
		h.lose(h.lossByStream(err))
	} else {
		w.failed <- err
	}
}

func (w *waiting) wait(ctx context.Context, name string, o *options) (grantedAt, error) {
	silence := time.NewTimer(silenceMax)
	defer silence.Stop()
	var limit <-chan time.Time
	if o.wait != nil {
		timer := time.NewTimer(saturatingAdd(*o.wait, answerGrace))
		defer timer.Stop()
		limit = timer.C
	}
	for {
		select {
		case granted := <-w.granted:
			return granted, nil
		case err := <-w.failed:
			return grantedAt{}, notGranted(name, err, o)
		case <-w.pings:
			silence.Reset(silenceMax)
		case <-silence.C:
			w.silent()
			return grantedAt{}, unavailable(name, "the sidecar is silent", nil)
		case <-limit:
			w.silent()
			return grantedAt{}, unavailable(name, "the sidecar has not answered in time", nil)
		case <-ctx.Done():
			return grantedAt{}, waitCancelled(ctx, name)
		}
	}
}

func waitCancelled(ctx context.Context, name string) error {
	return fmt.Errorf("leasehold: the wait for lock %s: %w", name, ctx.Err())
}
