package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"
)

// component is component YAML: what a user would copy from components/, with
// the name and the addresses of this test.
type component struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Type         string         `json:"type"`
		Version      string         `json:"version"`
		IgnoreErrors bool           `json:"ignoreErrors,omitempty"`
		Metadata     []metadataItem `json:"metadata,omitempty"`
	} `json:"spec"`
	Auth   *auth    `json:"auth,omitempty"`
	Scopes []string `json:"scopes,omitempty"`
}

type auth struct {
	SecretStore string `json:"secretStore"`
}

type metadataItem struct {
	Name         string        `json:"name"`
	Value        any           `json:"value,omitempty"`
	SecretKeyRef *secretKeyRef `json:"secretKeyRef,omitempty"`
}

type secretKeyRef struct {
	Name string `json:"name"`
	Key  string `json:"key"`
}

// userComponent is components/KIND.yaml under another name and with these
// metadata items, which replace those of the file.
func userComponent(t *testing.T, kind, name string, metadata map[string]string) component {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../../components", kind+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var c component
	if err := yaml.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	c.Metadata.Name = name
	c.Spec.Metadata = slices.DeleteFunc(c.Spec.Metadata, func(item metadataItem) bool {
		_, replaced := metadata[item.Name]
		return replaced
	})
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		c.Spec.Metadata = append(c.Spec.Metadata, metadataItem{Name: key, Value: metadata[key]})
	}
	return c
}

func (c component) ofType(kind string) component {
	c.Spec.Type = kind
	return c
}

func (c component) scopedTo(appIDs ...string) component {
	c.Scopes = appIDs
	return c
}

// resources writes each component to its own file, in a new folder.
func resources(t *testing.T, components ...component) string {
	t.Helper()
	folder := t.TempDir()
	for i, c := range components {
		write(t, filepath.Join(folder, fmt.Sprintf("%d.yaml", i)), c)
	}
	return folder
}

// write replaces a file in one step, as a well-behaved editor does.
func write(t *testing.T, path string, c component) {
	t.Helper()
	text, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	unfinished := path + ".part"
	if err := os.WriteFile(unfinished, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(unfinished, path); err != nil {
		t.Fatal(err)
	}
}
