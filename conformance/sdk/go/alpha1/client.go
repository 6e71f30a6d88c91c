package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/dapr/go-sdk/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const callTimeout = 15 * time.Second

// sdk is the SDK's client, with a deadline for each call.
type sdk struct{ client client.Client }

func (s sdk) tryLock(store, resource, owner string, expirySeconds int32) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	response, err := s.client.TryLockAlpha1(ctx, store, &client.LockRequest{
		ResourceID: resource, LockOwner: owner, ExpiryInSeconds: expirySeconds,
	})
	if err != nil {
		return false, err
	}
	return response.Success, nil
}

func (s sdk) unlock(store, resource, owner string) (int32, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	response, err := s.client.UnlockAlpha1(ctx, store, &client.UnlockRequest{ResourceID: resource, LockOwner: owner})
	if err != nil {
		return 0, err
	}
	return response.StatusCode, nil
}

// wrongToken is a second client beside the SDK's own, whose token is refused.
func wrongToken() (sdk, error) {
	c, err := client.NewClientWithPort(os.Getenv("DAPR_GRPC_PORT"))
	if err != nil {
		return sdk{}, err
	}
	c.WithAuthToken("wrong")
	return sdk{c}, nil
}

// refused is nil if err is a refusal with that code, whose text contains message.
func refused(err error, code codes.Code, message string) error {
	switch {
	case err == nil:
		return fmt.Errorf("it was answered instead of refused")
	case status.Code(err) != code:
		return fmt.Errorf("it was refused as %v, not %v: %w", status.Code(err), code, err)
	case !strings.Contains(err.Error(), message):
		return fmt.Errorf("%q does not contain %q", err, message)
	}
	return nil
}
