package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"

	"leasehold/conformance/sdk/go/internal/report"
)

const (
	success         = int32(0)
	doesNotExist    = int32(1)
	belongsToOthers = int32(2)
	// expiryLateness is how much later than asked a backend may end a lock.
	expiryLateness = 5 * time.Second
)

func fresh(name string) string { return name + "-" + uuid.NewString() }

// granted is nil if a try was answered with want.
func granted(want bool) func(bool, error) error {
	return func(got bool, err error) error {
		return errors.Join(err, report.Expect("success", got, want))
	}
}

// answered is nil if an unlock was answered with want.
func answered(want int32) func(int32, error) error {
	return func(got int32, err error) error {
		return errors.Join(err, report.Expect("status", got, want))
	}
}

func checkLife(r *report.Report, s sdk, store string) {
	resource := fresh("life")
	try := func(owner string) (bool, error) { return s.tryLock(store, resource, owner, 30) }
	unlock := func(owner string) (int32, error) { return s.unlock(store, resource, owner) }

	r.Check("a free resource is granted", func() error { return granted(true)(try("a")) })
	r.Check("a held resource is refused without an error", func() error { return granted(false)(try("b")) })
	r.Check("its own holder is refused too", func() error { return granted(false)(try("a")) })
	r.Check("another resource is granted meanwhile", func() error {
		return granted(true)(s.tryLock(store, fresh("other"), "b", 2))
	})
	r.Check("an unlock by another owner answers 2", func() error { return answered(belongsToOthers)(unlock("b")) })
	r.Check("the lock stands after that", func() error { return granted(false)(try("b")) })
	r.Check("an unlock by the owner answers 0", func() error { return answered(success)(unlock("a")) })
	r.Check("an unlock of a free resource answers 1", func() error { return answered(doesNotExist)(unlock("a")) })
	r.Check("what was unlocked is granted to another owner", func() error { return granted(true)(try("b")) })
	_, _ = unlock("b")
}

func checkExpiry(r *report.Report, s sdk, store string) {
	resource := fresh("expiry")
	const expiry = 2 * time.Second

	r.Check("a lock ends at its expiry, not before", func() error {
		start := time.Now()
		if err := granted(true)(s.tryLock(store, resource, "a", int32(expiry/time.Second))); err != nil {
			return err
		}
		for {
			taken, err := s.tryLock(store, resource, "b", 30)
			held := time.Since(start)
			switch {
			case err != nil:
				return err
			case taken && held < expiry:
				return fmt.Errorf("it ended after %v", held)
			case taken:
				return nil
			case held > expiry+expiryLateness:
				return errors.New("still held")
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	r.Check("an unlock after the expiry and a takeover answers 2", func() error {
		return answered(belongsToOthers)(s.unlock(store, resource, "a"))
	})
	_, _ = s.unlock(store, resource, "b")
}

func checkBadInput(r *report.Report, s sdk, store string) {
	refusedTry := func(store, resource, owner string, expiry int32, code codes.Code, message string) error {
		_, err := s.tryLock(store, resource, owner, expiry)
		return refused(err, code, message)
	}

	r.Check("a name with slashes, spaces and other scripts is a name", func() error {
		resource := fresh("a/b c%2F/ключ/鍵")
		return errors.Join(
			granted(true)(s.tryLock(store, resource, "ich & du", 30)),
			granted(false)(s.tryLock(store, resource, "b", 30)),
			answered(success)(s.unlock(store, resource, "ich & du")),
		)
	})
	r.Check("a name with || in it is refused", func() error {
		return refusedTry(store, "a||b", "a", 30, codes.Internal, "failed to try acquiring lock: input key/keyPrefix")
	})
	r.Check("an expiry of zero is refused", func() error {
		return refusedTry(store, fresh("zero"), "a", 0, codes.InvalidArgument, "ExpiryInSeconds is not positive in lock store "+store)
	})
	r.Check("an empty owner is refused", func() error {
		return refusedTry(store, fresh("owner"), "", 30, codes.InvalidArgument, "LockOwner is empty in lock store "+store)
	})
	r.Check("an empty resource is refused", func() error {
		return refusedTry(store, "", "a", 30, codes.InvalidArgument, "ResourceId is empty in lock store "+store)
	})
	r.Check("a try on a store that does not exist is refused by its name", func() error {
		return refusedTry("nowhere", "r", "a", 30, codes.InvalidArgument, "lock store nowhere not found")
	})
	r.Check("an unlock on a store that does not exist is refused by its name", func() error {
		_, err := s.unlock("nowhere", "r", "a")
		return refused(err, codes.InvalidArgument, "lock store nowhere not found")
	})
}

func checkToken(r *report.Report, store string) {
	const sentence = "a wrong API token is refused"
	if os.Getenv("DAPR_API_TOKEN") == "" {
		r.Ignore(sentence, "the sidecar expects none: DAPR_API_TOKEN is not set")
		return
	}
	r.Check(sentence, func() error {
		s, err := wrongToken()
		if err != nil {
			return err
		}
		defer s.client.Close()
		_, err = s.tryLock(store, fresh("token"), "a", 30)
		return refused(err, codes.Unauthenticated, "")
	})
}

func checkOutage(r *report.Report, s sdk, store string) {
	const (
		tried    = "a try fails while the backend is down"
		unlocked = "an unlock fails while the backend is down"
	)
	if store == "" {
		r.Ignore(tried, "LOCK_STORE_DOWN names no store")
		r.Ignore(unlocked, "LOCK_STORE_DOWN names no store")
		return
	}
	r.Check(tried, func() error {
		_, err := s.tryLock(store, fresh("down"), "a", 30)
		return refused(err, codes.Internal, "failed to try acquiring lock: ")
	})
	r.Check(unlocked, func() error {
		_, err := s.unlock(store, fresh("down"), "a")
		return refused(err, codes.Internal, "failed to release lock: ")
	})
}
