package leasehold

import (
	"context"
	"errors"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var (
	// ErrNotAcquired matches, by errors.Is, the error of a lock that somebody else held
	// until the wait ended.
	ErrNotAcquired = errors.New("leasehold: the lock was not acquired")
	// ErrLockLost matches, by errors.Is, the error of a lock that was lost while it was held.
	ErrLockLost = errors.New("leasehold: the lock is lost")
)

// Cause says why a lock was lost. A newer sidecar may report causes that are not listed here.
type Cause string

const (
	// CauseExpired: nobody renewed the lock.
	CauseExpired Cause = "expired"
	// CauseForced: somebody else ended it.
	CauseForced Cause = "forced"
	// CauseUnreachable: the sidecar could not reach the store.
	CauseUnreachable Cause = "unreachable"
	// CauseMaxHold: it was held for as long as [MaxHold] allows.
	CauseMaxHold Cause = "max_hold"
	// CauseUnhealthy: the app failed the sidecar's health checks.
	CauseUnhealthy Cause = "unhealthy"
	// CauseShuttingDown: the sidecar is stopping and has released the lock.
	CauseShuttingDown Cause = "shutting_down"
	// CauseEnded: it was unlocked or taken over by another call, or the sidecar does not
	// hold it any more.
	CauseEnded Cause = "ended"
	// CauseDisconnected: the stream broke, because the sidecar died or the connection was cut.
	CauseDisconnected Cause = "disconnected"
	// CauseUnconfirmed: nobody confirmed the lock until the safe deadline less [StopBefore].
	CauseUnconfirmed Cause = "unconfirmed"
)

// Reasons that this library uses itself. All others come from the sidecar.
const (
	reasonInvalid     = "INVALID_REQUEST"
	reasonLocked      = "RESOURCE_LOCKED"
	reasonLost        = "LOCK_LOST"
	reasonNotFound    = "LOCK_NOT_FOUND"
	reasonShutdown    = "SHUTTING_DOWN"
	reasonUnavailable = "UNAVAILABLE"
	reasonWaitEnded   = "WAIT_DEADLINE"
)

// Error is the error of a call of this package.
type Error struct {
	// Reason is the reason of the sidecar's google.rpc.ErrorInfo, such as RESOURCE_LOCKED,
	// WAIT_DEADLINE, LOCK_LOST or INVALID_REQUEST; without one the name of the gRPC code,
	// such as UNAVAILABLE.
	Reason string
	// Message is for people.
	Message string
	// Resource is the name of the lock.
	Resource string
	// Holder is who had the lock, for RESOURCE_LOCKED, if the sidecar named it. It is
	// for people, and proves nothing.
	Holder string
	// Cause says why the lock was lost, for LOCK_LOST.
	Cause Cause

	err error
}

// Error is the name of the lock, the reason and the message.
func (e *Error) Error() string {
	text := "leasehold: "
	if e.Resource != "" && !e.Is(ErrNotAcquired) { // whose message names the lock
		text += "lock " + e.Resource + ": "
	}
	text += e.Reason
	if e.Cause != "" {
		text += " (" + string(e.Cause) + ")"
	}
	return text + ": " + e.Message
}

// Is reports whether target is the sentinel of this kind of error.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrNotAcquired:
		return e.Reason == reasonLocked || e.Reason == reasonWaitEnded
	case ErrLockLost:
		return e.Reason == reasonLost
	default:
		return false
	}
}

// Unwrap is the gRPC status that the call failed with, if any.
func (e *Error) Unwrap() error { return e.err }

func invalid(option, message string) *Error {
	return &Error{Reason: reasonInvalid, Message: option + " " + message}
}

func lockLost(resource string, cause Cause, message string, err error) *Error {
	return &Error{Reason: reasonLost, Message: message, Resource: resource, Cause: cause, err: err}
}

func unavailable(resource, message string, err error) *Error {
	return &Error{Reason: reasonUnavailable, Message: message, Resource: resource, err: err}
}

// inSeconds formats a duration for messages.
func inSeconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + " s"
}

// refused is the error of a gRPC call that failed.
func refused(resource string, err error) *Error {
	refusal := status.Convert(err)
	failure := &Error{
		Reason: code.Code(refusal.Code()).String(), Message: refusal.Message(), Resource: resource, err: err,
	}
	for _, detail := range refusal.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetReason() != "" {
			failure.Reason = info.GetReason()
			failure.Holder = info.GetMetadata()["holder"]
			failure.Cause = Cause(info.GetMetadata()["cause"])
		}
	}
	if failure.Reason == reasonLost && failure.Cause == "" {
		failure.Cause = CauseEnded
	}
	return failure
}

// outcome is what work under a lock ends with: its own error, its lock's loss, or both.
func outcome(own error, lost *Error) error {
	switch {
	case lost == nil:
		return own
	case own == nil || reportsCancellation(own, lost):
		return lost
	default:
		return errors.Join(own, lost)
	}
}

// reportsCancellation reports whether err means only that the work was cancelled because of lost.
// For an error that joins others, all of them must.
func reportsCancellation(err error, lost *Error) bool {
	if err == context.Canceled || err == error(lost) {
		return true
	}
	switch err := err.(type) {
	case *Error: // of another lock
		return false
	case interface{ GRPCStatus() *status.Status }:
		return err.GRPCStatus().Code() == codes.Canceled
	case interface{ Unwrap() error }:
		return reportsCancellation(err.Unwrap(), lost)
	case interface{ Unwrap() []error }:
		for _, part := range err.Unwrap() {
			if !reportsCancellation(part, lost) {
				return false
			}
		}
		return len(err.Unwrap()) > 0
	default:
		// Package net has its own error for this, which only errors.Is recognizes.
		return errors.Is(err, context.Canceled)
	}
}
