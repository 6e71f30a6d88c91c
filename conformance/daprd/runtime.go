package main

import (
	"context"
	"fmt"

	"github.com/dapr/dapr/cmd/daprd/options"
	"github.com/dapr/dapr/pkg/healthz"
	"github.com/dapr/dapr/pkg/metrics"
	"github.com/dapr/dapr/pkg/modes"
	"github.com/dapr/dapr/pkg/runtime"
	"github.com/dapr/dapr/pkg/runtime/registry"
	"github.com/dapr/dapr/pkg/security"
	"github.com/dapr/kit/concurrency"
	"go.opencensus.io/stats/view"
)

// runOnce is one life of the runtime, which ends with ctx.
func runOnce(ctx context.Context, opts *options.Options, components *registry.Options) error {
	health := healthz.New()
	identity, err := security.New(ctx, security.Options{
		SentryAddress:           opts.SentryAddress,
		ControlPlaneTrustDomain: opts.ControlPlaneTrustDomain,
		ControlPlaneNamespace:   opts.ControlPlaneNamespace,
		TrustAnchors:            opts.TrustAnchors,
		AppID:                   opts.AppID,
		MTLSEnabled:             opts.EnableMTLS,
		Mode:                    modes.DaprMode(opts.Mode),
		Healthz:                 health,
		JwtAudiences:            opts.SentryRequestJwtAudiences,
	})
	if err != nil {
		return fmt.Errorf("security: %w", err)
	}

	runRuntime := func(ctx context.Context) error {
		handler, err := identity.Handler(ctx)
		if err != nil {
			return fmt.Errorf("security: %w", err)
		}
		config := configFrom(opts)
		config.Registry = components
		config.Healthz = health
		config.Metrics.Healthz = health
		config.Security = handler
		daprd, err := runtime.FromConfig(ctx, config)
		if err != nil {
			return err
		}
		return daprd.Run(ctx)
	}
	return concurrency.NewRunnerManager(identity.Run, runRuntime).Run(ctx)
}

// configFrom passes every flag of daprd on to its runtime.
func configFrom(opts *options.Options) *runtime.Config {
	return &runtime.Config{
		Mode:                       opts.Mode,
		Config:                     opts.Config,
		ResourcesPath:              opts.ResourcesPath,
		ComponentsPath:             opts.ComponentsPath,
		HotReloadReconcileInterval: opts.HotReloadReconcileInterval,

		DaprHTTPPort:                  opts.DaprHTTPPort,
		DaprAPIGRPCPort:               opts.DaprAPIGRPCPort,
		DaprAPIListenAddresses:        opts.DaprAPIListenAddresses,
		DaprInternalGRPCPort:          opts.DaprInternalGRPCPort,
		DaprInternalGRPCListenAddress: opts.DaprInternalGRPCListenAddress,
		DaprPublicPort:                opts.DaprPublicPort,
		DaprPublicListenAddress:       opts.DaprPublicListenAddress,
		UnixDomainSocket:              opts.UnixDomainSocket,
		AllowedOrigins:                opts.AllowedOrigins,
		MaxRequestSize:                opts.MaxRequestSize,
		ReadBufferSize:                opts.ReadBufferSize,
		EnableAPILogging:              opts.EnableAPILogging,
		DisableInitEndpoints:          opts.DisableInitEndpoints,
		DaprGracefulShutdownSeconds:   opts.DaprGracefulShutdownSeconds,
		DaprBlockShutdownDuration:     opts.DaprBlockShutdownDuration,

		AppID:                  opts.AppID,
		AppProtocol:            opts.AppProtocol,
		AppSSL:                 opts.AppSSL,
		AppMaxConcurrency:      opts.AppMaxConcurrency,
		AppChannelAddress:      opts.AppChannelAddress,
		ApplicationPort:        opts.AppPort,
		EnableAppHealthCheck:   opts.EnableAppHealthCheck,
		AppHealthCheckPath:     opts.AppHealthCheckPath,
		AppHealthProbeInterval: opts.AppHealthProbeInterval,
		AppHealthProbeTimeout:  opts.AppHealthProbeTimeout,
		AppHealthThreshold:     opts.AppHealthThreshold,

		ControlPlaneAddress:          opts.ControlPlaneAddress,
		SentryAddress:                opts.SentryAddress,
		EnableMTLS:                   opts.EnableMTLS,
		ActorsService:                opts.ActorsService,
		ActorsDisseminationTimeout:   opts.ActorsDisseminationTimeout,
		RemindersService:             opts.RemindersService,
		SchedulerAddress:             opts.SchedulerAddress,
		SchedulerStreams:             opts.SchedulerJobStreams,
		DisableBuiltinK8sSecretStore: opts.DisableBuiltinK8sSecretStore,

		ProfilePort:     opts.ProfilePort,
		EnableProfiling: opts.EnableProfiling,
		Metrics: metrics.Options{
			Enabled:       opts.Metrics.Enabled(),
			Log:           log,
			Port:          opts.Metrics.Port(),
			Namespace:     metrics.DefaultMetricNamespace,
			ListenAddress: opts.Metrics.ListenAddress(),
			Meter:         view.NewMeter(),
		},
	}
}
