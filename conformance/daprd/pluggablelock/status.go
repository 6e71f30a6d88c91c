package pluggablelock

import (
	"fmt"

	"github.com/dapr/components-contrib/lock"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
)

// errorDomain is the domain of Dapr's own error details.
const errorDomain = "dapr.io"

// The reasons that alpha1 can distinguish from a failure.
const (
	reasonNotInitialized = "NOT_INITIALIZED"
	reasonResourceLocked = "RESOURCE_LOCKED"
	reasonLockNotFound   = "LOCK_NOT_FOUND"
)

// tryLockResult is alpha1's answer: held is false, without an error.
func tryLockResult(err error) (*lock.TryLockResponse, error) {
	if err == nil {
		return &lock.TryLockResponse{Success: true}, nil
	}
	if reasonOf(err) == reasonResourceLocked {
		return &lock.TryLockResponse{Success: false}, nil
	}
	return nil, explain(err)
}

// unlockResult is alpha1's answer: a status for an owner's mistake, and an error
// for a failure.
func unlockResult(err error) (*lock.UnlockResponse, error) {
	if err == nil {
		return &lock.UnlockResponse{Status: lock.Success}, nil
	}
	info := infoOf(err)
	if info.GetReason() != reasonLockNotFound {
		return &lock.UnlockResponse{Status: lock.InternalError}, explain(err)
	}
	if info.GetMetadata()["held"] == "true" {
		return &lock.UnlockResponse{Status: lock.LockBelongsToOthers}, nil
	}
	return &lock.UnlockResponse{Status: lock.LockDoesNotExist}, nil
}

// explain puts the reason, which daprd would drop, into the error's text. The
// status stays inside, for resiliency policies that match on its code.
func explain(err error) error {
	if reason := reasonOf(err); reason != "" {
		return fmt.Errorf("%s: %w", reason, err)
	}
	return err
}

func reasonOf(err error) string { return infoOf(err).GetReason() }

// infoOf returns the error's ErrorInfo, or nil, whose getters return empty values.
func infoOf(err error) *errdetails.ErrorInfo {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == errorDomain {
			return info
		}
	}
	return nil
}
