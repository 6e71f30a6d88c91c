package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/clients/go"
	"github.com/leasehold/leasehold/clients/go/fence"
	"github.com/leasehold/leasehold/clients/go/internal/stage"
)

// The samples are compiled as they are on the page; the one that is a program is run.
func TestTheSamplesOfTheReadmeWork(t *testing.T) {
	page, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	samples := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllSubmatch(page, -1)
	if len(samples) != 5 {
		t.Fatalf("the page has %d samples", len(samples))
	}
	programs := map[string]string{}
	for i, sample := range samples {
		path := filepath.Join(t.TempDir(), fmt.Sprintf("sample%d.go", i))
		if err := os.WriteFile(path, sample[1], 0o600); err != nil {
			t.Fatal(err)
		}
		binary := strings.TrimSuffix(path, ".go")
		// The file is outside the module; its imports are those of the module of this folder.
		if output, err := exec.Command("go", "build", "-o", binary, path).CombinedOutput(); err != nil {
			t.Errorf("%v: %s\n%s", err, output, sample[1])
		} else if strings.HasPrefix(string(sample[1]), "package main") {
			programs[binary] = path
		}
	}
	if len(programs) != 1 {
		t.Errorf("%d samples are programs", len(programs))
	}
	onEach(t, func(t *testing.T, s *stage.Stage, _ *leasehold.Locks) {
		for binary := range programs {
			process := exec.Command(binary)
			process.Env = append(os.Environ(), fmt.Sprintf("DAPR_GRPC_PORT=%d", s.GRPCPort))
			if output, err := process.CombinedOutput(); err != nil || !strings.HasPrefix(string(output), "charging with token ") {
				t.Errorf("%v: %s", err, output)
			}
		}
	})
}

func TestTheStatementsOfTheReadmeAreThoseOfTheCode(t *testing.T) {
	page, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	oneLine := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	for _, statement := range []string{
		fence.PostgreSQL.CreateTable, fence.PostgreSQL.Guard,
		fence.MySQL.CreateTable, fence.MySQL.Guard, fence.MySQL.Seen,
	} {
		if !strings.Contains(oneLine(string(page)), oneLine(statement)+";") {
			t.Errorf("the page does not have %s", statement)
		}
	}
}
