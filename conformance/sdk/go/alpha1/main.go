// Command alpha1 checks alpha1 with Dapr's Go SDK, against the sidecar that its
// usual environment variables name. The checks are those of ../../README.md.
package main

import (
	"os"

	"leasehold/conformance/sdk/go/internal/report"
	"leasehold/conformance/sdk/go/internal/sidecar"
)

func main() {
	c := sidecar.Connect()
	r := report.New("go")
	s := sdk{c}
	store := "locks"
	if name := os.Getenv("LOCK_STORE"); name != "" {
		store = name
	}
	checkLife(r, s, store)
	checkExpiry(r, s, store)
	checkBadInput(r, s, store)
	checkToken(r, store)
	checkOutage(r, s, os.Getenv("LOCK_STORE_DOWN"))
	code := r.Close()
	c.Close()
	os.Exit(code)
}
