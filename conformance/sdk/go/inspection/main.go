// Command inspection reaches leasehold.v1.Inspection over the connection of
// Dapr's Go SDK. The checks are those of ../../README.md.
package main

import (
	"os"

	"leasehold/conformance/sdk/go/internal/locks"
	"leasehold/conformance/sdk/go/internal/report"
	"leasehold/conformance/sdk/go/internal/sidecar"
	pb "leasehold/conformance/sdk/go/leaseholdv1"
)

type check struct {
	sentence   string
	body       func(inspector, locks.Store) error
	needsWatch bool
}

func main() {
	c := sidecar.Connect()
	s := locks.NewStore(c)
	i := inspector{s.Name, pb.NewInspectionClient(c.GrpcClientConn())}
	hasWatch := i.hasWatch()
	r := report.New("go inspection")
	for _, check := range []check{
		{"a held lock is shown with its grant, a free one without", oneLock, false},
		{"the grants of a shared lock are read in pages", readers, false},
		{"those who wait are read in their order, in pages", queue, false},
		{"what is held is listed in pages", listing, false},
		{"a scope chooses by namespace, with those below, by prefix and by holder", scopes, false},
		{"a watch sends what is held, and then each change", watching, true},
		{"a watch of one resource shows no other", watchingOne, true},
		{"a dry run shows what would be ended, and ends nothing", dryRun, false},
		{"the locks of a scope are ended, and their holders lose them", endingAScope, false},
		{"a grant is ended by its ID, and its successor is not", endingAGrant, false},
		{"to end everything must be asked for as such", everything, false},
		{"a store that does not exist is refused", noSuchStore, false},
	} {
		if check.needsWatch && !hasWatch {
			r.Ignore(check.sentence, "the store has no WATCH: it answers UNSUPPORTED")
			continue
		}
		r.Check(check.sentence, func() error { return check.body(i, s) })
	}
	code := r.Close()
	c.Close()
	os.Exit(code)
}
