//go:build !stock

package main

import (
	"github.com/dapr/dapr/pkg/components/lock"

	"leasehold/conformance/daprd/pluggablelock"
)

// registerConnector adds what stock daprd lacks: lock stores on component sockets.
func registerConnector() { pluggablelock.Register(lock.DefaultRegistry) }
