// Package sidecar connects Dapr's Go SDK to the sidecar that is checked.
package sidecar

import (
	"fmt"
	"os"

	"github.com/dapr/go-sdk/client"
)

// Connect connects to the sidecar that the SDK's usual environment variables
// name. If that fails, the program ends.
func Connect() client.Client {
	c, err := client.NewClient()
	if err != nil {
		fmt.Fprintf(os.Stderr, "connect to the sidecar: %v\n", err)
		os.Exit(1)
	}
	return c
}
