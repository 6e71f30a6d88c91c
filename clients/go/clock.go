package leasehold

import (
	"math"
	"time"
)

// farFuture is a time of this client's clock that never comes.
const farFuture = time.Duration(math.MaxInt64)

// saturatingAdd is the sum of two times that are not negative, or farFuture if there is no such time.
func saturatingAdd(a, b time.Duration) time.Duration {
	if a > farFuture-b {
		return farFuture
	}
	return a + b
}
