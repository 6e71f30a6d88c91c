// Package report runs named checks, prints one line each, and counts.
package report

import "fmt"

// Report prints `ok` or `FAILED` and a sentence for each check.
type Report struct {
	subject        string
	passed, failed int
}

// New starts a report about subject, which every line names.
func New(subject string) *Report { return &Report{subject: subject} }

// Check runs body, whose error fails the check.
func (r *Report) Check(sentence string, body func() error) {
	if err := body(); err != nil {
		r.failed++
		fmt.Printf("FAILED  %s: %s: %v\n", r.subject, sentence, err)
		return
	}
	r.passed++
	fmt.Printf("ok      %s: %s\n", r.subject, sentence)
}

// Ignore says that a check did not run, and why.
func (r *Report) Ignore(sentence, why string) {
	fmt.Printf("ignored %s: %s: %s\n", r.subject, sentence, why)
}

// Close prints the totals and returns the exit code.
func (r *Report) Close() int {
	fmt.Printf("%d passed, %d failed\n", r.passed, r.failed)
	if r.failed > 0 || r.passed == 0 {
		return 1
	}
	return 0
}

// Expect is an error unless got is what was wanted.
func Expect[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s is %v, not %v", what, got, want)
	}
	return nil
}
