package main

import (
	"context"
	"fmt"

	"github.com/dapr/components-contrib/nameresolution"
	"github.com/dapr/kit/logger"
)

// noResolver stands in for mDNS, which the runtime demands in standalone mode
// whether or not an app invokes another. It resolves nothing, so no multicast
// leaves the machine.
type noResolver struct{}

func newNoResolver(logger.Logger) nameresolution.Resolver { return noResolver{} }

func (noResolver) Init(context.Context, nameresolution.Metadata) error { return nil }

func (noResolver) ResolveID(_ context.Context, req nameresolution.ResolveRequest) (string, error) {
	return "", fmt.Errorf("no name resolution in this build: app %q cannot be invoked", req.ID)
}

func (noResolver) Close() error { return nil }
