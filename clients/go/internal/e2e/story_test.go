// Package e2e tests the fences on real servers. It is a module of its own, so that the library
// does not depend on drivers.
package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/clients/go"
	"github.com/leasehold/leasehold/clients/go/fence"
	"github.com/leasehold/leasehold/clients/go/internal/stage"
)

// account is a number that is guarded by a lock.
type account struct {
	read    func(*testing.T) int
	write   func(*testing.T, int) // without a fence
	guarded func(fence.Holder, int) error
}

func fresh(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("%s-%d", strings.ReplaceAll(t.Name(), "/", "-"), time.Now().UnixNano())
}

// staleWriterLoses has two holders add to an account. The first one loses its lock after it has
// read, and writes after the second has written.
func staleWriterLoses(t *testing.T, s *stage.Stage, locks *leasehold.Locks, a account) {
	t.Helper()
	first, second, balance := twoHolders(t, s, locks, a)
	if err := a.guarded(second, balance+10); err != nil {
		t.Fatal(err)
	}
	err := a.guarded(first, balance+5)
	var stale *fence.StaleTokenError
	if !errors.Is(err, fence.ErrStaleToken) || !errors.As(err, &stale) || stale.Token != first.Token() {
		t.Errorf("the stale write: %v", err)
	}
	if after := a.read(t); after != balance+10 {
		t.Errorf("the balance is %d, not %d", after, balance+10)
	}
	// The same token again is the holder's next write.
	if err := a.guarded(second, balance+20); err != nil || a.read(t) != balance+20 {
		t.Errorf("the next write of the holder: %v", err)
	}
}

// staleWriterWins does the same without the fence.
func staleWriterWins(t *testing.T, s *stage.Stage, locks *leasehold.Locks, a account) {
	t.Helper()
	_, _, balance := twoHolders(t, s, locks, a)
	a.write(t, balance+10) // the second
	a.write(t, balance+5)  // the first
	if after := a.read(t); after != balance+5 {
		t.Errorf("the balance is %d: the update of the second holder was not lost", after)
	}
}

// twoHolders returns a holder that has lost its lock after it has read the balance, and its successor.
func twoHolders(t *testing.T, s *stage.Stage, locks *leasehold.Locks, a account) (first, second *leasehold.Lock, balance int) {
	t.Helper()
	name := fresh(t)
	first = take(t, locks, name)
	balance = a.read(t)
	if err := s.Force(name); err != nil {
		t.Fatal(err)
	}
	second = take(t, locks, name)
	return first, second, balance
}

func take(t *testing.T, locks *leasehold.Locks, name string) *leasehold.Lock {
	t.Helper()
	lock, err := locks.Lock(t.Context(), name, leasehold.Wait(patience))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Unlock() })
	return lock
}
