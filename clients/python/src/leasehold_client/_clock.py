"""The clock of the safe deadline."""

import sys
import time

__all__ = ["now"]

if sys.platform == "linux":

    def now() -> float:
        """Seconds on a monotonic clock that counts the time of a suspended machine."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

elif sys.platform == "darwin":

    def now() -> float:
        """Seconds on a monotonic clock that counts the time of a suspended machine."""
        return time.clock_gettime(time.CLOCK_MONOTONIC)

else:

    def now() -> float:
        """Seconds on a monotonic clock; on Windows it counts the time of a suspended machine."""
        return time.monotonic()
