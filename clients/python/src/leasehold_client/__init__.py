"""Distributed locks of leasehold: a lost lock becomes cancelled work.

`AsyncLocks` is for asyncio, `Locks` for threads. Both speak to a leasehold sidecar. Fences
for SQL, Redis and Dapr's state stores are in `leasehold_client.fence`.
"""

from ._async_lock import AsyncLock
from ._options import LockOptions
from ._thread_lock import Lock
from .aio import AsyncLocks
from .errors import InvalidOption, LeaseholdError, LockLost, NotAcquired, StaleToken
from .threads import Locks

__all__ = [
    "AsyncLock",
    "AsyncLocks",
    "InvalidOption",
    "LeaseholdError",
    "Lock",
    "LockLost",
    "LockOptions",
    "Locks",
    "NotAcquired",
    "StaleToken",
]
