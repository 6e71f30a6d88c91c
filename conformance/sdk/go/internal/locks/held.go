package locks

import (
	"context"
	"errors"
	"fmt"
	"io"

	pb "leasehold/conformance/sdk/go/leaseholdv1"
)

// Held is a lock whose life is its stream's.
type Held struct {
	Grant   *pb.LockAcquired
	Release context.CancelFunc
	stream  pb.Locks_LockStreamClient
}

// Stream holds the resource until Release.
func (s Store) Stream(request *pb.LockRequest) (Held, error) {
	request.StoreName = s.Name
	ctx, cancel := context.WithTimeout(context.Background(), StreamTimeout)
	stream, err := s.locks.LockStream(ctx, request)
	if err != nil {
		cancel()
		return Held{}, err
	}
	for {
		message, err := stream.Recv()
		if err != nil {
			cancel()
			return Held{}, err
		}
		if grant := message.GetLockAcquired(); grant != nil {
			return Held{grant, cancel, stream}, nil
		}
	}
}

// Rest reads the stream to its end: nil if that was not an error.
func (h Held) Rest() error {
	for {
		message, err := h.stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case message.GetPing() == nil:
			return fmt.Errorf("the stream went on with %v", message)
		}
	}
}
