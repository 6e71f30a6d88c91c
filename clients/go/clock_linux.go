package leasehold

import (
	"syscall"
	"time"
	"unsafe"
)

var start = time.Now()

// clockBoottime is CLOCK_BOOTTIME: monotonic, and it counts the time in which the machine was
// suspended, unlike the clock of package time.
const clockBoottime = 7

// now is the time since some moment in the past.
func now() time.Duration {
	var read syscall.Timespec
	_, _, failed := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&read)), 0)
	if failed != 0 { // a sandbox that does not know the clock
		return time.Since(start)
	}
	return time.Duration(read.Nano())
}
