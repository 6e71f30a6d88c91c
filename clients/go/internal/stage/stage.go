// Package stage starts leasehold-test-sidecar for the tests, the benchmark and the examples
// of this module: a store, a sidecar and a proxy before the sidecar.
package stage

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

// Store is the name of the store.
const Store = "lockstore"

// Stage is the running programs. Their ports are on 127.0.0.1; RedisPort is 0 on other backends.
type Stage struct {
	GRPCPort  int `json:"grpcPort"`
	HTTPPort  int `json:"httpPort"`
	ProxyPort int `json:"proxyPort"`
	RedisPort int `json:"redisPort"`

	process *exec.Cmd
	input   io.WriteCloser
	output  *bufio.Reader
	mu      sync.Mutex
}

// launcher is the program that LEASEHOLD_TEST_SIDECAR names, else that of the repository.
func launcher() string {
	if named := os.Getenv("LEASEHOLD_TEST_SIDECAR"); named != "" {
		return named
	}
	_, source, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(source), "../../../../target/debug/leasehold-test-sidecar")
}

// Start starts the stage on memory, redis or etcd, with further variables such as "NAME=value".
func Start(backend string, environment ...string) (*Stage, error) {
	s := &Stage{process: exec.Command(launcher(), backend)}
	s.process.Stderr = os.Stderr
	s.process.Env = append(os.Environ(), environment...)
	var err error
	if s.input, err = s.process.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := s.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.process.Start(); err != nil {
		return nil, fmt.Errorf("build leasehold-test-sidecar, or set LEASEHOLD_TEST_SIDECAR: %w", err)
	}
	s.output = bufio.NewReader(output)
	line, err := s.output.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("leasehold-test-sidecar %s did not start: %w", backend, err)
	}
	return s, json.Unmarshal(line, s)
}

// Close ends everything, and waits for it.
func (s *Stage) Close() {
	_ = s.input.Close()
	_ = s.process.Wait()
}

// Do carries out a command of the launcher.
func (s *Stage) Do(command string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := fmt.Fprintln(s.input, command); err != nil {
		return err
	}
	answer, err := s.output.ReadString('\n')
	if err != nil || strings.TrimSpace(answer) != "ok" {
		return fmt.Errorf("%s: %s %w", command, answer, err)
	}
	return nil
}

// Address is the address of the sidecar's gRPC port.
func (s *Stage) Address() string { return fmt.Sprintf("127.0.0.1:%d", s.GRPCPort) }

// ProxyAddress is the address of the proxy before the sidecar's gRPC port.
func (s *Stage) ProxyAddress() string { return fmt.Sprintf("127.0.0.1:%d", s.ProxyPort) }

// LockState is what inspection returns for a lock.
type LockState struct {
	Grants []struct {
		GrantID, Holder, Mode string
	}
	Waiters int
}

// Inspect returns who holds a lock.
func (s *Stage) Inspect(resource string) (LockState, error) {
	var state LockState
	answer, err := s.call(http.MethodGet, resource, "")
	if err == nil {
		err = json.Unmarshal(answer, &state)
	}
	return state, err
}

// Force ends all grants of a lock.
func (s *Stage) Force(resource string) error {
	_, err := s.call(http.MethodDelete, resource, `{"force":true,"reason":"a test"}`)
	return err
}

func (s *Stage) call(method, resource, body string) ([]byte, error) {
	address := fmt.Sprintf("http://127.0.0.1:%d/v1.0-alpha2/lock/%s/%s", s.HTTPPort, Store, url.PathEscape(resource))
	request, err := http.NewRequest(method, address, bytes.NewBufferString(body))
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s %s", method, address, response.Status, answer)
	}
	return answer, err
}
