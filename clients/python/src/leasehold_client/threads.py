"""Locks for threads."""

from __future__ import annotations

import os
import threading
from _thread import start_new_thread
from contextlib import AbstractContextManager
from queue import SimpleQueue
from types import TracebackType
from typing import NoReturn, Self, Unpack
from weakref import WeakValueDictionary

import grpc

from ._options import LockOptions, Options, Seconds, check_name
from ._rpc import Connection, Stubs
from ._thread_lock import Lock
from .errors import InvalidOption, LeaseholdError, LockLost, NotAcquired

_Key = tuple[tuple[str, ...], str]


class _Owned(threading.local):
    """The re-entrant locks of one thread."""

    def __init__(self) -> None:
        self.locks: WeakValueDictionary[_Key, Lock] = WeakValueDictionary()


class Locks:
    """The locks of one store, for threads. May be shared by all threads of a process.

    `address` is the sidecar's: `host:port`, `http://…`, `https://…` (TLS) or `unix:…`; by
    default `DAPR_GRPC_ENDPOINT`, else 127.0.0.1 and `DAPR_GRPC_PORT`, else port 50001.
    `api_token` is sent with every call; by default `DAPR_API_TOKEN`. `channel` is a channel
    of the caller's, which is used instead of an address and never closed.

    Close it with `with` or `close`. Nothing is connected before the first lock, so a `Locks`
    may be made before a process forks, and used after it.
    """

    def __init__(
        self,
        store: str,
        *,
        address: str | None = None,
        api_token: str | None = None,
        channel: grpc.Channel | None = None,
    ) -> None:
        check_name("store", store)
        self.store = store
        self._connection = _Shared(channel, address, api_token)
        self._owned = _Owned()

    def lock(
        self, name: str, *, wait: Seconds | None = None, **options: Unpack[LockOptions]
    ) -> AbstractContextManager[Lock]:
        """Holds a lock for a `with` block; waits for it, at most for `wait` if given.

        The block gets a `Lock`. A thread cannot be interrupted: the block calls `check`, which
        raises `LockLost` once the lock is lost, or `wait_lost`. If the lock is lost, the end of
        the block raises `LockLost`. If the block ends with an error of its own, that error is
        raised, with the loss attached to it.

        Raises `InvalidOption` before anything is sent, `NotAcquired` if the wait ends first,
        and `LeaseholdError` if the sidecar refuses or does not answer. The options are those
        of `LockOptions`.
        """
        return _Scope(self, Options.checked("lock", name, wait=wait, **options))

    def try_lock(self, name: str, **options: Unpack[LockOptions]) -> AbstractContextManager[Lock | None]:
        """Like `lock`, without waiting: the block gets `None` if somebody else has the lock."""
        return _TryScope(self, Options.checked("try_lock", name, **options))

    def close(self) -> None:
        """Ends all waits and locks of this client, and closes the connection if it is its own."""
        if self._connection.forked:
            return
        done: SimpleQueue[None] = SimpleQueue()
        start_new_thread(self._connection.end, (done,))
        done.get()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _acquire(self, options: Options) -> Lock:
        if self._connection.forked:
            # gRPC's threads and connections do not survive a fork.
            raise LeaseholdError("a Locks that was used before a fork was used after it", reason="FORKED")
        return Lock.acquire(self._connection, self.store, options)


class _Shared(Connection):
    """A connection that the library's threads share."""

    def __init__(self, channel: grpc.Channel | None, address: str | None, api_token: str | None) -> None:
        super().__init__(grpc, channel, address, api_token)
        self._mutex = threading.Lock()
        self._process: int | None = None

    @property
    def forked(self) -> bool:
        """Whether another process has used it: the parent of this one."""
        return self._process not in (None, os.getpid())

    def stubs(self) -> Stubs:
        with self._mutex:
            self._process = os.getpid()
            return super().stubs()

    def end(self, done: SimpleQueue[None]) -> None:
        """Closes it; `done` gets an item then."""
        with self._mutex:
            for channel in self.close():
                channel.close()
        done.put(None)


class _Block:
    """One `with` block under a lock."""

    def __init__(self, locks: Locks, options: Options) -> None:
        self._locks = locks
        self._options = options
        self._lock: Lock | None = None

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"no {name!r} here; write `with locks.lock(…) as lock:` and use `lock`")

    def _enter(self) -> Lock:
        if self._lock is not None:
            raise RuntimeError("this block is running already; call lock() for each")
        options = self._options
        key = (options.namespace, options.name)
        owned = self._locks._owned.locks
        lock = owned.get(key) if options.reentrant else None
        if lock is None or lock._has_ended:
            lock = self._locks._acquire(options)
            if options.reentrant:
                owned[key] = lock
        elif lock._mode != options.mode:
            raise InvalidOption("mode", f"is {options.mode!r}, but the lock is held in another mode")
        else:
            lock.check()
        lock._holders += 1
        self._lock = lock
        return lock

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lock, self._lock = self._lock, None
        if lock is None:
            return
        lock._holders -= 1
        if lock._holders:
            return  # A block inside another one of the same lock, which does the rest.
        owned = self._locks._owned.locks
        key = (lock.namespace, lock.resource)
        if owned.get(key) is lock:
            del owned[key]
        loss = lock._end()
        if loss is None:
            return
        if error is None:
            raise loss
        if not (isinstance(error, LockLost) and error.resource == lock.resource):
            loss._attach_to(error)


class _Scope(_Block, AbstractContextManager[Lock]):
    def __enter__(self) -> Lock:
        return self._enter()


class _TryScope(_Block, AbstractContextManager[Lock | None]):
    def __enter__(self) -> Lock | None:
        try:
            return self._enter()
        except NotAcquired:
            return None
