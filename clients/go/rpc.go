package leasehold

import (
	"context"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leasehold/leasehold/clients/go/internal/pb"
)

const (
	methodLockStream = "/leasehold.v1.Locks/LockStream"
	methodCheckLocks = "/leasehold.v1.Locks/CheckLocks"
	methodUnlock     = "/leasehold.v1.Locks/Unlock"

	tokenKey = "dapr-api-token"
	// unlockTime limits an Unlock.
	unlockTime = 5 * time.Second
)

var lockStream = &grpc.StreamDesc{StreamName: "LockStream", ServerStreams: true}

// authorized is ctx with the API token, which replaces the caller's.
func (c *Locks) authorized(ctx context.Context) context.Context {
	if c.apiToken == "" {
		return ctx
	}
	outgoing, _ := metadata.FromOutgoingContext(ctx)
	outgoing = outgoing.Copy()
	if outgoing == nil {
		outgoing = metadata.MD{}
	}
	outgoing.Set(tokenKey, c.apiToken)
	return metadata.NewOutgoingContext(ctx, outgoing)
}

// openStream sends the request, and returns when it did. The time is taken once there is a connection,
// so that the time to connect does not count.
func (h *hold) openStream(ctx context.Context) (grpc.ClientStream, time.Duration, error) {
	stream, err := h.link.NewStream(h.locks.authorized(ctx), lockStream, methodLockStream)
	if err != nil {
		return nil, 0, h.notReached(err)
	}
	sent := now()
	if err := stream.SendMsg(h.request); err != nil {
		// RecvMsg returns the status of a stream that has ended.
		return stream, sent, stream.RecvMsg(&pb.LockServerStream{})
	}
	return stream, sent, stream.CloseSend()
}

// unreachable is the error of a stream for which there was no connection.
type unreachable struct {
	message string
	err     error
}

func (u *unreachable) Error() string { return u.message }

// notReached is err, or an error with a remedy if err means that there is no connection.
func (h *hold) notReached(err error) error {
	if status.Code(err) != codes.Unavailable {
		return err
	}
	message := "no sidecar"
	remedy := "check the address of the connection given by WithConn"
	if h.link.own != nil {
		message += " at " + h.link.own.Target()
		remedy = h.locks.remedy
	}
	message += ": " + connectFailure(status.Convert(err).Message())
	return &unreachable{message + `; start "leasehold sidecar", or ` + remedy, err}
}

// connectFailure is gRPC's text for a failed connection, without the prefixes of its layers.
func connectFailure(text string) string {
	if _, quoted, found := strings.Cut(text, "connection error: desc = "); found {
		if inner, err := strconv.Unquote(quoted); err == nil {
			text = inner
		}
	}
	text = strings.TrimPrefix(text, "transport: ")
	text = strings.TrimPrefix(text, "Error while dialing: ")
	if _, failure, found := strings.Cut(text, ": connect: "); found {
		text = failure
	}
	return text
}

func (h *hold) checkLocks(ctx context.Context) (*pb.LockCheck, error) {
	question := &pb.CheckLocksRequest{Locks: []*pb.LockRef{{
		StoreName:  h.request.GetStoreName(),
		ResourceId: h.request.GetResourceId(),
		Namespace:  h.request.GetNamespace(),
		LockId:     h.grant.GetLockId(),
	}}}
	answer := &pb.CheckLocksResponse{}
	if err := h.link.Invoke(h.locks.authorized(ctx), methodCheckLocks, question, answer); err != nil {
		return nil, err
	}
	if len(answer.GetLocks()) != 1 {
		return nil, unavailable(h.request.GetResourceId(), "CheckLocks did not answer", nil)
	}
	return answer.GetLocks()[0], nil
}

// unlock ends the grant. It returns the loss, if the sidecar reported one. Any other failure is
// ignored, because the end of the stream releases the lock, too.
func (h *hold) unlock(ctx context.Context) *Error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockTime)
	defer cancel()
	request := &pb.UnlockRequest{
		StoreName:  h.request.GetStoreName(),
		ResourceId: h.request.GetResourceId(),
		Namespace:  h.request.GetNamespace(),
		LockId:     h.grant.GetLockId(),
	}
	err := h.link.Invoke(h.locks.authorized(ctx), methodUnlock, request, &pb.UnlockResponse{})
	if err == nil {
		return nil
	}
	switch failure := refused(h.request.GetResourceId(), err); failure.Reason {
	case reasonLost:
		return failure
	case reasonNotFound:
		return lockLost(failure.Resource, CauseEnded, failure.Message, err)
	default:
		return nil
	}
}
