package leasehold

import (
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/leasehold/leasehold/clients/go/internal/pb"
)

// stopBeforeMax limits the default of StopBefore.
const stopBeforeMax = 5 * time.Second

// Mode is whether others may hold the lock at the same time.
type Mode int

const (
	// Exclusive: nobody else holds the lock. This is the default.
	Exclusive Mode = iota
	// Shared: any number of others may hold it in this mode.
	Shared
)

// Option changes how a lock is taken.
type Option func(*options)

type options struct {
	namespace  []string
	mode       Mode
	label      string
	requestID  string
	reentrant  bool
	wait       *time.Duration
	ttl        *time.Duration
	maxHold    *time.Duration
	stopBefore *time.Duration
}

// Wait limits how long a lock is waited for; 0 means not to wait. The default is no
// limit. TryLock and TryDo do not wait, and refuse this option.
func Wait(limit time.Duration) Option { return func(o *options) { o.wait = &limit } }

// TTL is how long the lock lasts when nobody renews it. It must be positive. The default
// is the store's.
func TTL(ttl time.Duration) Option { return func(o *options) { o.ttl = &ttl } }

// InMode takes the lock in this mode. The default is Exclusive.
func InMode(mode Mode) Option { return func(o *options) { o.mode = mode } }

// Namespace puts the name into a namespace: up to 16 segments of 1 to 128 bytes, the outermost
// first. The same name in another namespace is another lock. The default is none.
func Namespace(segments ...string) Option {
	segments = slices.Clone(segments) // CheckLocks and Unlock send them later
	return func(o *options) { o.namespace = segments }
}

// Label is the last part of the holder name, which others can see: up to 128 bytes without control
// characters. The default is none.
func Label(label string) Option { return func(o *options) { o.label = label } }

// MaxHold releases the lock after this long, whatever the app does. It must be positive.
// The default is no limit.
func MaxHold(limit time.Duration) Option { return func(o *options) { o.maxHold = &limit } }

// RequestID is a secret of up to 256 bytes. A repeated request with it takes over its own
// lock. The default is none.
func RequestID(secret string) Option { return func(o *options) { o.requestID = secret } }

// StopBefore is how long before the safe deadline the work is cancelled. It must not be
// negative, and must be shorter than MaxHold and than the granted TTL less the drift allowance (a
// twentieth of it and 20 ms). The default is a tenth of the granted TTL, or of MaxHold if that is
// shorter, and at most 5 s.
func StopBefore(margin time.Duration) Option { return func(o *options) { o.stopBefore = &margin } }

// Reentrant lets the work take the same lock again. The inner call needs this option too, and a
// context that descends from that of the work, or from [Lock.Context]. It gets the
// same grant, and its other options have no effect. The lock is released when the last of them ends.
// The default is off: the inner call waits for the outer one.
func Reentrant() Option { return func(o *options) { o.reentrant = true } }

func newOptions(name string, immediate bool, chosen []Option) (*options, error) {
	o := &options{}
	for _, choose := range chosen {
		choose(o)
	}
	switch {
	case name == "":
		return nil, invalid("name", "is empty")
	case immediate && o.wait != nil:
		return nil, invalid("Wait", "is given, but a try does not wait")
	case o.wait != nil && *o.wait < 0:
		return nil, invalid("Wait", "is negative")
	case o.ttl != nil && *o.ttl <= 0:
		return nil, invalid("TTL", "is not positive")
	case o.maxHold != nil && *o.maxHold <= 0:
		return nil, invalid("MaxHold", "is not positive")
	case o.stopBefore != nil && *o.stopBefore < 0:
		return nil, invalid("StopBefore", "is negative")
	case o.stopBefore != nil && o.maxHold != nil && *o.stopBefore >= *o.maxHold:
		return nil, invalid("StopBefore", "is not shorter than MaxHold")
	case o.mode != Exclusive && o.mode != Shared:
		return nil, invalid("InMode", "is neither Exclusive nor Shared")
	}
	if immediate {
		o.wait = new(time.Duration)
	}
	return o, nil
}

func (o *options) request(store, name string) *pb.LockRequest {
	request := &pb.LockRequest{
		StoreName: store, ResourceId: name, Namespace: o.namespace,
		Label: o.label, RequestId: o.requestID, Mode: pb.LockMode(o.mode),
	}
	if o.ttl != nil {
		request.Ttl = durationpb.New(*o.ttl)
	}
	if o.maxHold != nil {
		request.MaxHold = durationpb.New(*o.maxHold)
	}
	switch {
	case o.wait == nil:
	case *o.wait == 0:
		request.Immediate = true
	default:
		request.Wait = durationpb.New(*o.wait)
	}
	return request
}

// margin is how long before the safe deadline the work is cancelled.
func (o *options) margin(ttl time.Duration) time.Duration {
	if o.stopBefore != nil {
		return *o.stopBefore
	}
	if o.maxHold != nil {
		ttl = min(ttl, *o.maxHold)
	}
	return min(ttl/10, stopBeforeMax)
}
