package deployment

import (
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

// injected is the pod that Dapr's injector makes of a Deployment's template.
func injected(t *testing.T, deployment *apps.Deployment) *core.Pod {
	t.Helper()
	pod := &core.Pod{
		TypeMeta:   meta.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: deployment.Spec.Template.ObjectMeta,
		Spec:       deployment.Spec.Template.Spec,
	}
	config := patcher.NewSidecarConfig(pod)
	config.SidecarImage = "dapr/daprd"
	config.SetFromPodAnnotations()
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
	i := slices.IndexFunc(pod.Spec.Containers, func(c core.Container) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("the pod has no container %q", name)
	}
	return pod.Spec.Containers[i]
}

func environment(c core.Container, name string) string {
	for _, variable := range c.Env {
		if variable.Name == name {
			return variable.Value
		}
	}
	return ""
}

func mounts(c core.Container, path string) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m core.VolumeMount) bool { return m.MountPath == path })
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
					t.Errorf("the selector's %s=%s is no label of the pods", key, value)
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

// The injector shares its socket folder between leasehold and daprd.
func TestPluggableSharesTheSockets(t *testing.T) {
	pod := injected(t, load[apps.Deployment](t, "pluggable.yaml"))
	leasehold, daprd := container(t, pod, "leasehold"), container(t, pod, daprdContainer)
	if !mounts(leasehold, socketsFolder) || !mounts(daprd, socketsFolder) {
		t.Errorf("not both mount %s: %v, %v", socketsFolder, leasehold.VolumeMounts, daprd.VolumeMounts)
	}
	// leasehold reads the variable that the injector sets.
	if got := environment(leasehold, "DAPR_COMPONENT_SOCKETS_FOLDER"); got != socketsFolder {
		t.Errorf("leasehold is told of %q", got)
	}
	if daprd.Image != "example/daprd-locks:1.18.2" {
		t.Errorf("daprd is %q, which loads no pluggable locks", daprd.Image)
	}
}
