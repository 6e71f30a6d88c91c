"""redis-py's lock, for each way that redis-py offers it, and python-redis-lock's, behind one
interface.

A client's `take` returns a held lock, or None if the lock is another's; `extend` and `release`
return whether the lock was still the caller's. Anything else is an exception.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import redis
import redis.asyncio
import redis_lock
from redis.exceptions import LockNotOwnedError


# It warns of each refusal.
logging.getLogger("redis_lock").setLevel(logging.ERROR)


class Held(Protocol):
    def extend(self, seconds: float) -> bool: ...
    def release(self) -> bool: ...


class Client(Protocol):
    def take(self, key: str, seconds: float) -> Held | None: ...
    def pttl(self, key: str) -> int: ...


def address(text: str) -> dict[str, Any]:
    host, _, port = text.rpartition(":")
    # Longer than a busy machine needs for an answer.
    return {"host": host, "port": int(port), "socket_timeout": 15}


class SyncHeld:
    def __init__(self, lock: Any) -> None:
        self.lock = lock

    def extend(self, seconds: float) -> bool:
        try:
            return self.lock.extend(seconds, replace_ttl=True)
        except LockNotOwnedError:
            return False

    def release(self) -> bool:
        try:
            self.lock.release()
        except LockNotOwnedError:
            return False
        return True


class SyncClient:
    """The blocking client, with this protocol."""

    def __init__(self, where: str, protocol: int) -> None:
        self.redis = redis.Redis(**address(where), protocol=protocol)

    def take(self, key: str, seconds: float) -> SyncHeld | None:
        # One client may be used from several threads, each with its own token.
        lock = self.redis.lock(key, timeout=seconds, thread_local=False)
        return SyncHeld(lock) if lock.acquire(blocking=False) else None

    def pttl(self, key: str) -> int:
        return self.redis.pttl(key)


class RedisLockHeld:
    def __init__(self, lock: Any) -> None:
        self._lock = lock

    def extend(self, seconds: float) -> bool:
        return self._owned(lambda: self._lock.extend(int(seconds)))

    def release(self) -> bool:
        return self._owned(self._lock.release)

    def _owned(self, call: Callable[[], None]) -> bool:
        try:
            call()
        except redis_lock.NotAcquired:
            return False
        return True


class RedisLockClient:
    """python-redis-lock, with the blocking client below it."""

    def __init__(self, where: str) -> None:
        self._redis = redis.Redis(**address(where))

    def take(self, key: str, seconds: float) -> RedisLockHeld | None:
        lock = redis_lock.Lock(self._redis, key, expire=int(seconds))
        return RedisLockHeld(lock) if lock.acquire(blocking=False) else None

    def pttl(self, key: str) -> int:
        return self._redis.pttl(f"lock:{key}")


class Loop:
    """An event loop in its own thread, so that the same checks drive asyncio."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class AsyncHeld:
    def __init__(self, loop: Loop, lock: Any) -> None:
        self._loop = loop
        self.lock = lock

    def extend(self, seconds: float) -> bool:
        try:
            return self._loop.run(self.lock.extend(seconds, replace_ttl=True))
        except LockNotOwnedError:
            return False

    def release(self) -> bool:
        try:
            self._loop.run(self.lock.release())
        except LockNotOwnedError:
            return False
        return True


class AsyncClient:
    def __init__(self, loop: Loop, where: str) -> None:
        self._loop = loop
        self.redis = redis.asyncio.Redis(**address(where))

    def take(self, key: str, seconds: float) -> AsyncHeld | None:
        lock = self.redis.lock(key, timeout=seconds, thread_local=False)
        granted = self._loop.run(lock.acquire(blocking=False))
        return AsyncHeld(self._loop, lock) if granted else None

    def pttl(self, key: str) -> int:
        async def ask() -> int:
            return await self.redis.pttl(key)

        return self._loop.run(ask())
