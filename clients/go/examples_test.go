package leasehold_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// example is a program of the folder examples that runs.
type example struct {
	process *exec.Cmd
	lines   chan string
}

func buildExample(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	build := exec.Command("go", "build", "-o", path, "./examples/"+name)
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return path
}

func startExample(t *testing.T, s theStage, path string, arguments ...string) *example {
	t.Helper()
	e := &example{process: exec.Command(path, arguments...), lines: make(chan string)}
	e.process.Env = append(os.Environ(), "DAPR_GRPC_ENDPOINT="+s.Address())
	output, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	e.process.Stdout, e.process.Stderr = writer, writer
	if err := e.process.Start(); err != nil {
		t.Fatal(err)
	}
	_ = writer.Close()
	go func() {
		defer close(e.lines)
		for scanner := bufio.NewScanner(output); scanner.Scan(); {
			e.lines <- scanner.Text()
		}
	}()
	t.Cleanup(func() {
		_ = e.process.Process.Kill()
		_, _ = io.Copy(io.Discard, output)
		_ = e.process.Wait()
	})
	return e
}

// says waits for a line that contains text.
func (e *example) says(t *testing.T, text string) {
	t.Helper()
	late := time.After(patience)
	for {
		select {
		case line, more := <-e.lines:
			if strings.Contains(line, text) {
				return
			}
			if !more {
				t.Fatalf("it ended without printing %q", text)
			}
		case <-late:
			t.Fatalf("it did not print %q", text)
		}
	}
}

func TestTheWorkerStopsInTheMiddle(t *testing.T) {
	t.Parallel()
	path := buildExample(t, "worker")
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			s := ownStage(t, backend)
			worker := startExample(t, s, path)
			worker.says(t, "charged order 3 ")
			s.force(t, "invoices")
			worker.says(t, "stopped, because the lock is lost: forced")
			if err := worker.process.Wait(); worker.process.ProcessState.ExitCode() != 3 {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}

func TestTheSecondCandidateTakesOver(t *testing.T) {
	t.Parallel()
	path := buildExample(t, "leader")
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			s := ownStage(t, backend)
			first := startExample(t, s, path, "first")
			first.says(t, "first leads")
			second := startExample(t, s, path, "second")
			s.awaitWaiters(t, "leader", 1)
			if err := first.process.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			second.says(t, "second leads")
			s.force(t, "leader")
			second.says(t, "second is no longer the leader")
			second.says(t, "second leads with")
		})
	}
}
