package main

import (
	"reflect"
	"slices"
	"testing"

	"github.com/dapr/dapr/cmd/daprd/options"
	"github.com/dapr/dapr/pkg/metrics"
	"github.com/dapr/dapr/pkg/runtime"
)

// Flags that configFrom does not pass on, because another part of this program
// uses them.
var usedElsewhere = []string{
	// main
	"RuntimeVersion", "BuildInfo", "WaitCommand", "Logger",
	// runOnce, for the identity
	"ControlPlaneTrustDomain", "ControlPlaneNamespace", "TrustAnchors", "SentryRequestJwtAudiences",
	// A struct of flags of its own; see TestMetricsFlagsReachTheRuntime.
	"Metrics",
}

// An upgrade of Dapr can add a flag. Without this test it would be accepted
// without effect.
func TestEveryFlagReachesTheRuntime(t *testing.T) {
	without := comparable(&options.Options{Metrics: metrics.DefaultFlagOptions()})
	fields := reflect.TypeFor[options.Options]()
	for i := range fields.NumField() {
		name := fields.Field(i).Name
		if slices.Contains(usedElsewhere, name) {
			continue
		}
		opts := &options.Options{Metrics: metrics.DefaultFlagOptions()}
		set(t, name, reflect.ValueOf(opts).Elem().Field(i))
		if reflect.DeepEqual(comparable(opts), without) {
			t.Errorf("configFrom drops options.Options.%s: pass it on, or name it in usedElsewhere", name)
		}
	}
}

func TestMetricsFlagsReachTheRuntime(t *testing.T) {
	opts, err := options.New([]string{"--enable-metrics=false", "--metrics-port", "1", "--metrics-listen-address", "h"})
	if err != nil {
		t.Fatal(err)
	}
	got := configFrom(opts).Metrics
	if got.Enabled || got.Port != "1" || got.ListenAddress != "h" {
		t.Errorf("the metrics options are %+v", got)
	}
}

// comparable returns the configuration without the parts that differ each time.
func comparable(opts *options.Options) *runtime.Config {
	config := configFrom(opts)
	config.Metrics.Meter = nil
	return config
}

// set gives a field any value but its zero value.
func set(t *testing.T, name string, field reflect.Value) {
	t.Helper()
	switch field.Kind() {
	case reflect.Bool:
		field.SetBool(true)
	case reflect.String:
		field.SetString("x")
	case reflect.Int, reflect.Int64:
		field.SetInt(7)
	case reflect.Uint:
		field.SetUint(7)
	case reflect.Slice:
		field.Set(reflect.MakeSlice(field.Type(), 1, 1))
	case reflect.Pointer:
		field.Set(reflect.New(field.Type().Elem()))
	default:
		t.Fatalf("options.Options.%s is a %s: teach this test to set one", name, field.Kind())
	}
}
