// Command daprd is Dapr's runtime with one thing added: it loads pluggable
// lock stores. It takes daprd's flags and environment.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/dapr/dapr/cmd/daprd/options"
	"github.com/dapr/dapr/pkg/buildinfo"
	"github.com/dapr/dapr/pkg/runtime"
	"github.com/dapr/kit/logger"
	"github.com/dapr/kit/signals"
)

var log = logger.NewLogger("dapr.runtime")

func main() {
	opts, err := options.New(os.Args[1:])
	if err != nil {
		log.Fatalf("Wrong command line: %v", err)
	}
	switch {
	case opts.RuntimeVersion:
		fmt.Println(buildinfo.Version())
		return
	case opts.BuildInfo:
		fmt.Printf("Version: %s\nGit Commit: %s\nGit Version: %s\n", buildinfo.Version(), buildinfo.Commit(), buildinfo.GitVersion())
		return
	case opts.WaitCommand:
		runtime.WaitUntilDaprOutboundReady(opts.DaprHTTPPort)
		return
	}

	opts.Logger.SetAppID(opts.AppID)
	if err := logger.ApplyOptionsToLoggers(&opts.Logger); err != nil {
		log.Fatalf("Wrong logging options: %v", err)
	}

	components := registerComponents()
	serve(signals.Context(), func(ctx context.Context) error {
		return runOnce(ctx, opts, components)
	})
}

// serve runs the runtime anew at each SIGHUP, as daprd does, until the process
// gets a signal to stop or the runtime ends by itself (its shutdown API).
func serve(ctx context.Context, run func(context.Context) error) {
	for lifetime := range signals.OnHUP(ctx) {
		if err := run(lifetime); err != nil {
			log.Fatalf("The runtime failed: %v", err)
		}
		if lifetime.Err() == nil {
			return
		}
	}
}
