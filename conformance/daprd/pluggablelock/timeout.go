package pluggablelock

import (
	"fmt"
	"strings"
	"time"
)

const (
	// operationTimeoutDefault is leasehold's own, within which it answers also
	// when its backend is silent.
	operationTimeoutDefault = 5 * time.Second
	// answerAllowance lets the component's own answer, which reports what
	// happened, arrive before the connector's deadline, which cannot.
	answerAllowance = 2 * time.Second
)

// callTimeout is the deadline of each call: the component's operationTimeout,
// a Go duration in its metadata, and an allowance.
func callTimeout(properties map[string]string) (time.Duration, error) {
	for key, value := range properties {
		if !strings.EqualFold(key, "operationTimeout") {
			continue
		}
		timeout, err := time.ParseDuration(value)
		if err != nil || timeout <= 0 {
			return 0, fmt.Errorf("operationTimeout: %q is not a positive duration such as 5s", value)
		}
		return timeout + answerAllowance, nil
	}
	return operationTimeoutDefault + answerAllowance, nil
}
