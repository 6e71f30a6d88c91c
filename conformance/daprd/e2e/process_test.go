package e2e

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// readyTimeout bounds a start on a busy machine; a start takes well under
	// a second on a quiet one.
	readyTimeout = 30 * time.Second
	pollInterval = 20 * time.Millisecond
	// logTailMax is how much of a server's log a failed test shows.
	logTailMax = 8 << 10
)

// process is a server that a test started. It ends with the test.
type process struct {
	t      *testing.T
	name   string
	cmd    *exec.Cmd
	log    string
	exited chan struct{}
}

func start(t *testing.T, name string, env []string, binary string, args ...string) *process {
	t.Helper()
	log := filepath.Join(t.TempDir(), name+".log")
	file, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = file, file
	// No server outlives a test run that was killed itself.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	_ = file.Close()
	p := &process{t: t, name: name, cmd: cmd, log: log, exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.signal(syscall.SIGCONT)
		p.kill()
		if t.Failed() {
			t.Logf("the log of %s ends:\n%s", name, p.logTail())
		}
	})
	return p
}

func (p *process) signal(signal syscall.Signal) {
	if p.running() {
		_ = p.cmd.Process.Signal(signal)
	}
}

// suspend stops the process and returns when each of its threads has: on a busy
// machine one may still answer a call after the signal was sent.
func (p *process) suspend(t *testing.T) {
	t.Helper()
	p.signal(syscall.SIGSTOP)
	eventually(t, 10*time.Second, "every thread is stopped", func() error {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
		if err != nil || len(threads) == 0 {
			return fmt.Errorf("no threads: %v", err)
		}
		for _, thread := range threads {
			stat, err := os.ReadFile(thread)
			if err != nil {
				return err
			}
			_, state, _ := strings.Cut(string(stat), ") ")
			if !strings.HasPrefix(state, "T") {
				return fmt.Errorf("%s is in state %.1s", thread, state)
			}
		}
		return nil
	})
}

// kill ends the process as a crash does.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.exited
}

// stop ends the process as an operator does.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(readyTimeout):
		p.t.Fatalf("%s did not stop", p.name)
	}
}

func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

func (p *process) logText() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (p *process) logTail() string {
	file, err := os.Open(p.log)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > logTailMax {
		_, _ = file.Seek(-logTailMax, io.SeekEnd)
	}
	text, _ := io.ReadAll(file)
	return string(text)
}

// eventually polls until the condition holds, and fails the test after limit.
func eventually(t *testing.T, limit time.Duration, what string, condition func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, limit, err)
		}
		time.Sleep(pollInterval)
	}
}

// portsLeft are the ports that are reserved for this process and not handed out yet. Other
// tests reserve theirs as testkit/src/ports.rs does, and get none of them: while a server
// restarts, nobody listens on its port.
var portsLeft struct {
	sync.Mutex
	next, end int
	// locked are the files of all ports that were taken.
	locked []*os.File
}

// freePort finds a port that nobody listens on, never the same twice.
func freePort(t *testing.T) int {
	t.Helper()
	portsLeft.Lock()
	defer portsLeft.Unlock()
	for {
		if portsLeft.next == portsLeft.end {
			takePorts(t)
		}
		port := portsLeft.next
		portsLeft.next++
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			_ = listener.Close()
			return port
		}
	}
}

// takePorts takes a hundred ports from below the range that the system hands out
// by itself: else a connection could take one before the server listens there.
func takePorts(t *testing.T) {
	t.Helper()
	folder := filepath.Join(os.TempDir(), "leasehold-test-ports")
	if err := os.MkdirAll(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, block := range rand.Perm(220) {
		first := 10_000 + 100*block
		file, err := os.Create(filepath.Join(folder, strconv.Itoa(first)))
		if err != nil {
			t.Fatal(err)
		}
		if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			portsLeft.next, portsLeft.end = first, first+100
			portsLeft.locked = append(portsLeft.locked, file)
			return
		}
		_ = file.Close()
	}
	t.Fatal("other tests have taken all ports between 10000 and 32000")
}

// binary finds a program: by an environment variable, or where the Makefile
// builds it. A missing program is a failure: these tests never skip.
func binary(t *testing.T, variable string, built ...string) string {
	t.Helper()
	if path := os.Getenv(variable); path != "" {
		return path
	}
	for _, path := range built {
		if _, err := os.Stat(path); err == nil {
			absolute, err := filepath.Abs(path)
			if err != nil {
				t.Fatal(err)
			}
			return absolute
		}
	}
	t.Fatalf("no program at %s: build it (conformance/daprd/build [--stock], make build), or name it in %s", strings.Join(built, " or "), variable)
	return ""
}

// fails makes an error for a condition that eventually polls.
func fails(format string, args ...any) error { return fmt.Errorf(format, args...) }
