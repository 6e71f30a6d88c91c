// Package report runs named checks, prints one line each, and counts.
package report

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// Report prints `ok` or `FAILED` and a sentence for each check. Goroutines may share it.
type Report struct {
	mutex          sync.Mutex
	passed, failed int
}

// Check runs body, whose error fails the check.
func (r *Report) Check(subject, sentence string, body func() error) {
	if err := body(); err != nil {
		r.line(0, 1, "FAILED: %s: %s: %v\n", subject, sentence, err)
		return
	}
	r.line(1, 0, "ok: %s: %s\n", subject, sentence)
}

// Ignore reports that a check did not run, and why.
func (r *Report) Ignore(subject, sentence, why string) {
	r.line(0, 0, "ignored: %s: %s: %s\n", subject, sentence, why)
}

func (r *Report) line(passed, failed int, format string, arguments ...any) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.passed += passed
	r.failed += failed
	fmt.Printf(format, arguments...)
}

// Close prints the totals and returns the exit code.
func (r *Report) Close() int {
	fmt.Printf("%d passed, %d failed\n", r.passed, r.failed)
	if r.failed > 0 || r.passed == 0 {
		return 1
	}
	return 0
}

// Expect returns an error unless got equals want.
func Expect[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s is %v, not %v", what, got, want)
	}
	return nil
}

// InOrder runs the steps until one fails.
func InOrder(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// Eventually repeats the attempt until it succeeds, and returns its last error after a minute.
func Eventually(what string, attempt func() error) error {
	deadline := time.Now().Add(time.Minute)
	for {
		err := attempt()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("not within a minute: %s", what), err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
