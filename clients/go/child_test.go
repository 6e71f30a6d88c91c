package leasehold_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/clients/go"
	"github.com/leasehold/leasehold/clients/go/internal/stage"
)

const (
	childVariable = "LEASEHOLD_TEST_CHILD"
	childTTL      = "LEASEHOLD_TEST_CHILD_TTL"
)

// child is another process that holds the lock that the variable names. For each line that
// it reads, it prints what Check returns.
func child() int {
	locks, err := leasehold.New(stage.Store)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	ttl, err := time.ParseDuration(os.Getenv(childTTL))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	lock, err := locks.Lock(context.Background(), os.Getenv(childVariable), leasehold.TTL(ttl))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("held")
	for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		fmt.Println(lock.Check())
	}
	return 0
}

// holder is a child process that holds a lock.
type holder struct {
	process *exec.Cmd
	input   io.Writer
	output  *bufio.Reader
}

func startHolder(t *testing.T, s theStage, name string, ttl time.Duration) *holder {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h := &holder{process: exec.Command(program)}
	h.process.Env = append(os.Environ(), childVariable+"="+name, childTTL+"="+ttl.String(),
		fmt.Sprintf("DAPR_GRPC_ENDPOINT=%s", s.Address()))
	if h.input, err = h.process.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	output, err := h.process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = h.process.Process.Kill()
		_ = h.process.Wait()
	})
	h.output = bufio.NewReader(output)
	if said := h.line(t); said != "held" {
		t.Fatalf("the child process printed %s", said)
	}
	return h
}

func (h *holder) line(t *testing.T) string {
	t.Helper()
	line, err := h.output.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}
