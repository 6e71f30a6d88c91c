package deploy

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// root is the build context of both images.
const root = ".."

// dockerfiles names the program of each image, and where the oldest toolchain
// that may build it stands.
var dockerfiles = map[string]struct{ program, toolchain, requirement string }{
	"Dockerfile":       {"/leasehold", "Cargo.toml", `rust-version = "([\d.]+)"`},
	"daprd.Dockerfile": {"/daprd", "conformance/daprd/go.mod", `(?m)^go (\d+\.\d+)`},
}

// stages parses a Dockerfile; a warning of the linter is a failure.
func stages(t *testing.T, name string) []instructions.Stage {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	parsed, err := parser.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, warning := range parsed.Warnings {
		t.Errorf("%s: %s", name, warning.Short)
	}
	lint := linter.New(&linter.Config{
		Warn: func(rule, _, _, message string, at []parser.Range) {
			t.Errorf("%s:%v: %s: %s", name, at, rule, message)
		},
	})
	stages, _, err := instructions.Parse(parsed.AST, lint)
	if err != nil {
		t.Fatal(err)
	}
	return stages
}

// each runs a test for each Dockerfile, with the image's stage last.
func each(t *testing.T, test func(t *testing.T, name string, stages []instructions.Stage)) {
	for name := range dockerfiles {
		t.Run(name, func(t *testing.T) { test(t, name, stages(t, name)) })
	}
}

func commands[T instructions.Command](stage instructions.Stage) (found []T) {
	for _, command := range stage.Commands {
		if c, ok := command.(T); ok {
			found = append(found, c)
		}
	}
	return found
}

// The image holds one static program on nothing at all, run directly, by the
// user that the manifests name.
func TestImageIsOneProgramOfAUserThatIsNotRoot(t *testing.T) {
	each(t, func(t *testing.T, name string, stages []instructions.Stage) {
		program := dockerfiles[name].program
		image := stages[len(stages)-1]
		if image.BaseName != "scratch" {
			t.Errorf("the image stands on %s", image.BaseName)
		}
		users := commands[*instructions.UserCommand](image)
		if len(users) != 1 {
			t.Fatalf("the image sets %d users", len(users))
		}
		// runAsNonRoot needs a number: the kubelet knows no names.
		uid, _, _ := strings.Cut(users[0].User, ":")
		if number, err := strconv.Atoi(uid); err != nil || number == 0 {
			t.Errorf("the user is %q", uid)
		}
		for _, manifest := range []string{"sidecar.yaml", "pluggable.yaml"} {
			if text := read(t, "deploy/kubernetes/"+manifest); !strings.Contains(text, "runAsUser: "+uid+"\n") {
				t.Errorf("%s runs it as another user than %s", manifest, uid)
			}
		}
		entrypoints := commands[*instructions.EntrypointCommand](image)
		if len(entrypoints) != 1 || entrypoints[0].PrependShell || !slices.Equal(entrypoints[0].CmdLine, []string{program}) {
			t.Errorf("the entrypoint is not %s, run directly: there is no shell", program)
		}
		if !slices.ContainsFunc(commands[*instructions.CopyCommand](image), func(c *instructions.CopyCommand) bool {
			return c.DestPath == program
		}) {
			t.Errorf("nothing puts %s into the image", program)
		}
		if runs := commands[*instructions.RunCommand](image); len(runs) > 0 {
			t.Error("the image runs a command, and has no shell")
		}
	})
}

// What is copied from the context is in the repository and not ignored; what
// is copied from a stage, from one that there is.
func TestWhatIsCopiedIsThere(t *testing.T) {
	each(t, func(t *testing.T, name string, stages []instructions.Stage) {
		for i, stage := range stages {
			for _, c := range commands[*instructions.CopyCommand](stage) {
				if c.From != "" {
					if !slices.ContainsFunc(stages[:i], func(s instructions.Stage) bool { return s.Name == c.From }) {
						t.Errorf("no stage before is called %s", c.From)
					}
					continue
				}
				for _, source := range c.SourcePaths {
					if _, err := os.Stat(filepath.Join(root, source)); err != nil {
						t.Error(err)
					}
				}
			}
		}
		// Gigabytes that would travel to the engine otherwise.
		ignored := strings.Fields(read(t, path.Join("deploy", name+".dockerignore")))
		if !slices.Contains(ignored, "target") && !slices.Contains(ignored, "*") {
			t.Errorf("the context of %s holds target: %v", name, ignored)
		}
	})
}

// The base of the build stage has a toolchain that the sources allow.
func TestToolchainIsNewEnough(t *testing.T) {
	each(t, func(t *testing.T, name string, stages []instructions.Stage) {
		_, tag, _ := strings.Cut(stages[0].BaseName, ":")
		required := regexp.MustCompile(dockerfiles[name].requirement).FindStringSubmatch(read(t, dockerfiles[name].toolchain))
		if required == nil {
			t.Fatalf("%s names no version", dockerfiles[name].toolchain)
		}
		if minor(t, tag) < minor(t, required[1]) {
			t.Errorf("%s builds, but %s is required", stages[0].BaseName, required[1])
		}
	})
}

// minor is the second number of a version: both toolchains are at 1.
func minor(t *testing.T, version string) int {
	t.Helper()
	match := regexp.MustCompile(`^1\.(\d+)`).FindStringSubmatch(version)
	if match == nil {
		t.Fatalf("%q is no version 1.x", version)
	}
	number, err := strconv.Atoi(match[1])
	if err != nil {
		t.Fatal(err)
	}
	return number
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
