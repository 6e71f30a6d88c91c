package deployment

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../../.."

var goTest = regexp.MustCompile("`(Test[A-Z]\\w*)`")

// The pages name the tests of what was run with Dapr.
func TestTheTestsThatTheDocsNameAreThere(t *testing.T) {
	goSources := sources(t, filepath.Join(root, "conformance/daprd"), "_test.go") +
		sources(t, filepath.Join(root, "deploy"), "_test.go")
	for document, atLeast := range map[string]int{"docs/dapr.md": 20, "docs/redis-front.md": 20} {
		text, err := os.ReadFile(filepath.Join(root, document))
		if err != nil {
			t.Fatal(err)
		}
		named := 0
		for _, match := range goTest.FindAllStringSubmatch(string(text), -1) {
			named++
			if !strings.Contains(goSources, "\nfunc "+match[1]+"(t *testing.T)") {
				t.Errorf("%s names %s, which does not exist", document, match[1])
			}
		}
		if named < atLeast {
			t.Errorf("%s names only %d tests", document, named)
		}
	}
}

// sources returns the text of every file below a folder whose name has this suffix.
func sources(t *testing.T, folder, suffix string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, suffix) {
			return err
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
