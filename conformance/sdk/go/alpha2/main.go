// Command alpha2 reaches leasehold.v1.Locks over the connection of Dapr's Go
// SDK. The checks are those of ../../README.md.
package main

import (
	"os"
	"slices"

	"leasehold/conformance/sdk/go/internal/locks"
	"leasehold/conformance/sdk/go/internal/report"
	"leasehold/conformance/sdk/go/internal/sidecar"
)

type check struct {
	sentence string
	body     func(locks.Store) error
}

func main() {
	c := sidecar.Connect()
	s := locks.NewStore(c)
	r := report.New("go alpha2")
	for _, check := range slices.Concat([]check{
		{"a lock is granted with a rising token, refused to others, and unlocked once", lockAndUnlock},
		{"a waiting call is granted when the holder unlocks, or ends at its deadline", waiting},
		{"the sidecar renews a lock past its TTL", renewal},
		{"an app renews its own lock, and one that does not loses it", ownRenewal},
		{"the end of a stream releases its lock", streamIsTheLock},
		{"an unlock ends the stream without an error", unlockEndsTheStream},
		{"a forced unlock ends the stream and fails the holder's later call", force},
		{"a store that does not exist is refused", noSuchStore},
	}, terms) {
		r.Check(check.sentence, func() error { return check.body(s) })
	}
	code := r.Close()
	c.Close()
	os.Exit(code)
}
