package leasehold

import (
	"time"

	"golang.org/x/sys/unix"
)

var start = time.Now()

// now is the time since an arbitrary moment in the past. The clock is monotonic and counts the time in which
// the machine was suspended, unlike the clock of package time.
func now() time.Duration {
	var read unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &read) != nil { // a sandbox without this clock
		return time.Since(start)
	}
	return time.Duration(read.Nano())
}
