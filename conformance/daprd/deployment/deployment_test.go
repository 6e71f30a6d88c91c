package deployment

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	components "github.com/dapr/dapr/pkg/apis/components/v1alpha1"
	"github.com/dapr/dapr/pkg/injector/patcher"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const (
	daprdContainer = "daprd"
	socketsFolder  = "/tmp/dapr-components-sockets"
)

// load decodes a manifest strictly: a key that the schema lacks is an error.
func load[T any](t *testing.T, name string) *T {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../../deploy/kubernetes", name))
	if err != nil {
		t.Fatal(err)
	}
	var object T
	if err := yaml.UnmarshalStrict(text, &object); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return &object
}

// injected returns the pod that Dapr's injector makes from a Deployment's template.
func injected(t *testing.T, deployment *apps.Deployment) *core.Pod {
	t.Helper()
	return injectedAs(t, deployment, false)
}

// injectedAs does the same; native makes daprd a native sidecar.
func injectedAs(t *testing.T, deployment *apps.Deployment, native bool) *core.Pod {
	t.Helper()
	pod := &core.Pod{
		TypeMeta:   meta.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: deployment.Spec.Template.ObjectMeta,
		Spec:       deployment.Spec.Template.Spec,
	}
	config := patcher.NewSidecarConfig(pod)
	config.SidecarImage = "dapr/daprd"
	config.SetFromPodAnnotations()
	config.EnableNativeSidecar = native
	patch, err := config.GetPatch()
	if err != nil {
		t.Fatal(err)
	}
	patched, err := patcher.PatchPod(pod, patch)
	if err != nil {
		t.Fatal(err)
	}
	return patched
}

func container(t *testing.T, pod *core.Pod, name string) core.Container {
	t.Helper()
	return inStartOrder(pod)[position(t, pod, name)]
}

// inStartOrder returns each container of a pod: init containers one after the
// other, then all the others at once.
func inStartOrder(pod *core.Pod) []core.Container {
	return slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
}

func position(t *testing.T, pod *core.Pod, name string) int {
	t.Helper()
	i := slices.IndexFunc(inStartOrder(pod), func(c core.Container) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("the pod has no container %q", name)
	}
	return i
}

func environment(c core.Container, name string) string {
	for _, variable := range c.Env {
		if variable.Name == name {
			return variable.Value
		}
	}
	return ""
}

func mounted(t *testing.T, c core.Container, path string) core.VolumeMount {
	t.Helper()
	i := slices.IndexFunc(c.VolumeMounts, func(m core.VolumeMount) bool { return m.MountPath == path })
	if i < 0 {
		t.Fatalf("%s mounts nothing at %s: %v", c.Name, path, c.VolumeMounts)
	}
	return c.VolumeMounts[i]
}

func TestComponent(t *testing.T) {
	component := load[components.Component](t, "locks.yaml")
	if component.TypeMeta.Kind != "Component" || component.Spec.Type != "lock.redis" || component.Spec.Version != "v1" {
		t.Errorf("the component is %s %s/%s", component.TypeMeta.Kind, component.Spec.Type, component.Spec.Version)
	}
	// A reference needs the store that resolves it.
	for _, item := range component.Spec.Metadata {
		if item.SecretKeyRef.Name != "" && component.Auth.SecretStore == "" {
			t.Errorf("%s refers to a secret, and auth.secretStore names no store", item.Name)
		}
	}
}

// Selector, user and privileges are what a restricted namespace admits.
func TestDeployments(t *testing.T) {
	for _, name := range []string{"sidecar.yaml", "pluggable.yaml"} {
		t.Run(name, func(t *testing.T) {
			deployment := load[apps.Deployment](t, name)
			if deployment.APIVersion != "apps/v1" || deployment.Kind != "Deployment" {
				t.Errorf("it is a %s %s", deployment.APIVersion, deployment.Kind)
			}
			for key, value := range deployment.Spec.Selector.MatchLabels {
				if deployment.Spec.Template.Labels[key] != value {
					t.Errorf("the selector's %s=%s is not a label of the pods", key, value)
				}
			}
			limits := container(t, injected(t, deployment), "leasehold").SecurityContext
			if !*limits.RunAsNonRoot || *limits.AllowPrivilegeEscalation || !*limits.ReadOnlyRootFilesystem ||
				!slices.Equal(limits.Capabilities.Drop, []core.Capability{"ALL"}) {
				t.Errorf("leasehold runs with %v", limits)
			}
		})
	}
}

// The app's SDK speaks to leasehold, leasehold to daprd.
func TestSidecarStandsBetweenAppAndDaprd(t *testing.T) {
	pod := injected(t, load[apps.Deployment](t, "sidecar.yaml"))
	app, daprd, leasehold := container(t, pod, "app"), container(t, pod, daprdContainer), container(t, pod, "leasehold")
	for variable, flag := range map[string]string{"DAPR_HTTP_PORT": "http", "DAPR_GRPC_PORT": "grpc"} {
		port := environment(app, variable)
		if !slices.Contains(leasehold.Args, "--dapr-"+flag+"-port="+port) {
			t.Errorf("%s is %q, where leasehold does not listen: %v", variable, port, leasehold.Args)
		}
	}
	for flag, port := range map[string]string{"http": "3500", "grpc": "50001"} {
		if !slices.Contains(leasehold.Args, "--daprd-"+flag+"-endpoint=127.0.0.1:"+port) {
			t.Errorf("leasehold does not pass %s on to port %s: %v", flag, port, leasehold.Args)
		}
		i := slices.Index(daprd.Args, map[string]string{"http": "--dapr-http-port", "grpc": "--dapr-grpc-port"}[flag])
		if i < 0 || daprd.Args[i+1] != port {
			t.Errorf("daprd does not listen on port %s for %s: %v", port, flag, daprd.Args)
		}
	}
}

// The app can still unlock while it stops, because a native sidecar ends after
// all ordinary containers, and leasehold then has time to drain.
func TestSidecarOutlivesTheAppThatStops(t *testing.T) {
	pod := injected(t, load[apps.Deployment](t, "sidecar.yaml"))
	leasehold := container(t, pod, "leasehold")
	if position(t, pod, "leasehold") >= len(pod.Spec.InitContainers) || leasehold.RestartPolicy == nil ||
		*leasehold.RestartPolicy != core.ContainerRestartPolicyAlways {
		t.Error("leasehold is no native sidecar, so it stops together with the app")
	}
	const drainSeconds, appSeconds = 10, 10
	if *pod.Spec.TerminationGracePeriodSeconds < drainSeconds+appSeconds {
		t.Errorf("leasehold has no %d s left to drain", drainSeconds)
	}
	// It waits for the secrets of an injected daprd, which would wait for the probe.
	if leasehold.StartupProbe != nil {
		t.Error("daprd would never start")
	}
}

// The kubelet reaches what it probes: all other ports are on loopback.
func TestProbesReachThePodsAddress(t *testing.T) {
	for _, name := range []string{"sidecar.yaml", "pluggable.yaml"} {
		t.Run(name, func(t *testing.T) {
			leasehold := container(t, injected(t, load[apps.Deployment](t, name)), "leasehold")
			i := slices.IndexFunc(leasehold.Ports, func(p core.ContainerPort) bool { return p.Name == "metrics" })
			if i < 0 {
				t.Fatalf("no port for metrics: %v", leasehold.Ports)
			}
			port := leasehold.Ports[i].ContainerPort
			for _, flag := range []string{fmt.Sprintf("--metrics-port=%d", port), "--metrics-listen-address=0.0.0.0"} {
				if !slices.Contains(leasehold.Args, flag) {
					t.Errorf("no %s: %v", flag, leasehold.Args)
				}
			}
			for path, probe := range map[string]*core.Probe{"/livez": leasehold.LivenessProbe, "/readyz": leasehold.ReadinessProbe} {
				if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != path || probe.HTTPGet.Port.StrVal != "metrics" {
					t.Errorf("the probe of %s is %v", path, probe)
				}
			}
		})
	}
}

// Whether daprd is a native sidecar itself or not, leasehold starts before it
// and stays, and both see the same folder, where daprd looks for sockets.
func TestPluggableStartsBeforeDaprdAndSharesTheSockets(t *testing.T) {
	for name, native := range map[string]bool{"daprd is a container": false, "daprd is a native sidecar": true} {
		t.Run(name, func(t *testing.T) {
			pod := injectedAs(t, load[apps.Deployment](t, "pluggable.yaml"), native)
			first := position(t, pod, "leasehold")
			if first >= len(pod.Spec.InitContainers) || first >= position(t, pod, daprdContainer) {
				t.Error("leasehold does not start before daprd")
			}
			leasehold, daprd := container(t, pod, "leasehold"), container(t, pod, daprdContainer)
			if leasehold.RestartPolicy == nil || *leasehold.RestartPolicy != core.ContainerRestartPolicyAlways {
				t.Error("leasehold does not stay: the app would never start")
			}
			theirs, ours := mounted(t, daprd, socketsFolder), mounted(t, leasehold, socketsFolder)
			if theirs.Name != ours.Name || theirs.ReadOnly || ours.ReadOnly {
				t.Errorf("daprd mounts %v, leasehold %v", theirs, ours)
			}
			// Nothing gives daprd another folder than its default.
			for _, variable := range []string{"DAPR_COMPONENTS_SOCKETS_FOLDER", "DAPR_COMPONENT_SOCKETS_FOLDER"} {
				if got := environment(daprd, variable); got != "" && got != socketsFolder {
					t.Errorf("daprd gets the sockets folder %q", got)
				}
			}
			if daprd.Image != "example/daprd-locks:1.18.2" {
				t.Errorf("daprd is %q, which loads no pluggable locks", daprd.Image)
			}
		})
	}
}
