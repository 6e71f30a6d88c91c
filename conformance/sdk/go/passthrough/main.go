// Command passthrough checks all but locks with Dapr's Go SDK, through a sidecar
// that serves the locks itself. The checks are those of ../../README.md.
package main

import (
	"context"
	"os"
	"strings"
	"time"

	"leasehold/conformance/sdk/go/internal/report"
	"leasehold/conformance/sdk/go/internal/sidecar"
)

func main() {
	c := sidecar.Connect()
	r := report.New("go")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	checkEvents(ctx, r, c, os.Getenv("PUBSUB"))
	checkLock(r, c, os.Getenv("LOCK_STORE"))
	stores := strings.Split(os.Getenv("STATE_STORES"), ",")
	for _, store := range stores {
		checkState(r, c, store)
	}
	checkSecret(r, c, os.Getenv("SECRET_STORE"), os.Getenv("SECRET_KEY"), os.Getenv("SECRET_VALUE"))
	checkMetadata(r, c, os.Getenv("DAPR_APP_ID"), append(stores, os.Getenv("SECRET_STORE"), os.Getenv("PUBSUB")))
	r.Ignore("the SDK's health check passes", "the Go SDK has none: it waits for a connection")
	code := r.Close()
	cancel()
	c.Close()
	os.Exit(code)
}
