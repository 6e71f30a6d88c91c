//go:build !linux

package leasehold

import "time"

var start = time.Now()

// now is the time since an arbitrary moment in the past. Whether it counts the time in which the
// machine was suspended depends on the system.
func now() time.Duration { return time.Since(start) }
