"""Locks for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from types import TracebackType
from typing import NoReturn, Self, Unpack

import grpc

from ._async_lock import AsyncLock
from ._options import LockOptions, Options, Seconds, check_name
from ._rpc import Connection
from ._work import Work
from .errors import InvalidOption, LockLost, NotAcquired

_Key = tuple["AsyncLocks", tuple[str, ...], str]

# The re-entrant locks of a task and its children. One for all clients: a context keeps a variable forever.
_owned: ContextVar[Mapping[_Key, AsyncLock]] = ContextVar("leasehold_owned")


class AsyncLocks:
    """The locks of one store, for asyncio. Belongs to one event loop.

    `address` is the sidecar's: `host:port`, `http://…`, `https://…` (TLS) or `unix:…`; by
    default `DAPR_GRPC_ENDPOINT`, else 127.0.0.1 and `DAPR_GRPC_PORT`, else port 50001.
    `api_token` is sent with every call; by default `DAPR_API_TOKEN`. `channel` is a channel
    of the caller's, which is used instead of an address and never closed.

    Close it with `async with` or `close`. Nothing is connected before the first lock.
    """

    def __init__(
        self,
        store: str,
        *,
        address: str | None = None,
        api_token: str | None = None,
        channel: grpc.aio.Channel | None = None,
    ) -> None:
        check_name("store", store)
        self.store = store
        self._connection = Connection(grpc.aio, channel, address, api_token)

    def lock(
        self, name: str, *, wait: Seconds | None = None, **options: Unpack[LockOptions]
    ) -> AbstractAsyncContextManager[AsyncLock]:
        """Holds a lock for an `async with` block; waits for it, at most for `wait` if given.

        The block gets an `AsyncLock`. When the lock is lost, the task that runs the block is
        cancelled, once, and `LockLost` is raised when the block has ended. If the block ends
        with an error of its own, that error is raised, with the loss attached to it.

        Raises `InvalidOption` before anything is sent, `NotAcquired` if the wait ends first,
        and `LeaseholdError` if the sidecar refuses or does not answer. The options are those
        of `LockOptions`.
        """
        return _Scope(self, Options.checked("lock", name, wait=wait, **options))

    def try_lock(self, name: str, **options: Unpack[LockOptions]) -> AbstractAsyncContextManager[AsyncLock | None]:
        """Like `lock`, without waiting: the block gets `None` if somebody else has the lock."""
        return _TryScope(self, Options.checked("try_lock", name, **options))

    async def close(self) -> None:
        """Ends all waits and locks of this client, and closes the connection if it is its own."""
        for channel in self._connection.close():
            await channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _held() -> Mapping[_Key, AsyncLock]:
    """What this task owns, without the locks that have ended: a child may have ended the last block of one."""
    return {key: lock for key, lock in _owned.get({}).items() if lock._ending is None}


class _Block:
    """One `async with` block under a lock."""

    def __init__(self, locks: AsyncLocks, options: Options) -> None:
        self._locks = locks
        self._options = options
        self._lock: AsyncLock | None = None
        # None in a block inside another one of the same lock and task, which does the rest.
        self._work: Work | None = None

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"no {name!r} here; write `async with locks.lock(…) as lock:` and use `lock`")

    async def _enter(self) -> AsyncLock:
        if self._lock is not None:
            raise RuntimeError("this block is running already; call lock() for each")
        options = self._options
        key = (self._locks, options.namespace, options.name)
        lock = _owned.get({}).get(key) if options.reentrant else None
        if lock is None or lock._ending is not None:
            lock = await AsyncLock.acquire(self._locks._connection, self._locks.store, options)
            if options.reentrant:
                _owned.set({**_held(), key: lock})
        elif lock._mode != options.mode:
            raise InvalidOption("mode", f"is {options.mode!r}, but the lock is held in another mode")
        else:
            lock.check()
        task = asyncio.current_task()
        assert task is not None
        if task not in lock._works:
            self._work = lock._works[task] = Work(task)
        lock._holders += 1
        self._lock = lock
        return lock

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lock, self._lock = self._lock, None
        if lock is None:
            return
        work, self._work = self._work, None
        lock._holders -= 1
        alone = False
        if work is not None:
            alone = work.end(error)
            del lock._works[work.task]
        reported = lock._ending is not None  # unlock() was called, and has raised a loss.
        loss = lock._term.loss if lock._holders else await lock._end()
        if self._options.reentrant:
            _owned.set(_held())
        if loss is None or work is None:
            return
        if alone or (error is None and not reported):
            raise loss from error
        if error is not None and not (isinstance(error, LockLost) and error.resource == lock.resource):
            loss._attach_to(error)


class _Scope(_Block, AbstractAsyncContextManager[AsyncLock]):
    async def __aenter__(self) -> AsyncLock:
        return await self._enter()


class _TryScope(_Block, AbstractAsyncContextManager[AsyncLock | None]):
    async def __aenter__(self) -> AsyncLock | None:
        try:
            return await self._enter()
        except NotAcquired:
            return None
