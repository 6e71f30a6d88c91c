package leasehold_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		os.Exit(child())
	}
	code := m.Run()
	for _, s := range shared.stages {
		s.Close()
	}
	if left := goroutinesLeft(); code == 0 && left != "" {
		fmt.Printf("FAIL: goroutines of the library are left:\n%s\n", left)
		code = 1
	}
	os.Exit(code)
}

// goroutinesLeft is the stacks of the library's goroutines that do not end.
func goroutinesLeft() string {
	var left []string
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if left = goroutinesOfLibrary(); len(left) == 0 {
			return ""
		}
	}
	return strings.Join(left, "\n\n")
}

func goroutinesOfLibrary() []string {
	stacks := make([]byte, 16<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	var found []string
	for _, stack := range strings.Split(string(stacks), "\n\n") {
		if strings.Contains(stack, "clients/go.") && !strings.Contains(stack, "TestMain") {
			found = append(found, stack)
		}
	}
	return found
}
