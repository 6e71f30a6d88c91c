"""A lock that is held by asyncio tasks."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from ._address import Metadata
from ._clock import now
from ._grant import Grant, Patience, take_answer
from ._options import Options
from ._rpc import UNLOCK_LIMIT, Connection, Failure, Stubs
from ._work import Work, complete
from .errors import LeaseholdError, LockLost
from .generated import locks_pb2 as pb


def _failure(error: grpc.aio.AioRpcError) -> Failure:
    return Failure.of(error.code(), error.details(), error.trailing_metadata())


def _cancelling() -> int:
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


class AsyncLock(Grant):
    """A lock that is held. The members that read the clock may be called from any thread."""

    _holders = 0

    def __init__(
        self,
        stubs: Stubs,
        metadata: Metadata,
        store: str,
        options: Options,
        stream: Any,
        acquired: pb.LockAcquired,
        sent: float,
    ) -> None:
        super().__init__(stubs, store, options, acquired, sent)
        self._stubs = stubs
        self._metadata = metadata
        self._stream = stream
        self._works: dict[asyncio.Task[Any], Work] = {}
        self._ending: asyncio.Task[LockLost | None] | None = None
        self._tasks = {asyncio.create_task(self._read()), asyncio.create_task(self._keep())}
        self._timer = asyncio.get_running_loop().call_later(self.valid_for, self._watch)

    @classmethod
    async def acquire(cls, connection: Connection, store: str, options: Options) -> AsyncLock:
        """Asks for the lock and waits for it."""
        request = options.request(store)
        patience = Patience(options)
        stubs = connection.stubs()
        stream = stubs.lock_stream(request, connection.metadata)
        try:
            while True:
                async with asyncio.timeout(patience.left):
                    message = await stream.read()
                if message is grpc.aio.EOF:
                    raise LeaseholdError("the stream ended without a lock", reason="UNKNOWN")
                if message.HasField("lock_acquired"):
                    return cls(stubs, connection.metadata, store, options, stream, message.lock_acquired, patience.sent)
        except grpc.aio.AioRpcError as error:
            raise _failure(error).refusal(options.name, options.wait, stubs.target) from error
        except TimeoutError:
            stream.cancel()
            stubs.fall_silent()
            raise patience.exhausted(stubs.target) from None
        except asyncio.CancelledError:
            stream.cancel()
            if _cancelling():  # Perhaps since before this call: it is delivered at the first await.
                raise
            raise LeaseholdError("the channel was closed", reason="CANCELLED") from None
        except BaseException:
            stream.cancel()
            raise

    async def unlock(self) -> None:
        """Ends the lock early; a second call does nothing.

        Raises `LockLost` if the lock was lost before. Takes 5 s at most, and is not cut short
        when the caller is cancelled. Other failures are not reported: the end of the stream
        releases the lock too.
        """
        first = self._ending is None
        loss = await self._end()
        if first and loss is not None:
            raise loss

    async def _end(self) -> LockLost | None:
        """Releases the lock, unless it is lost; returns why it was lost."""
        if self._ending is None:
            held = self._term.close()
            self._ending = asyncio.create_task(self._release(held))
        await complete(self._ending)
        return None if self._ending.cancelled() else self._ending.result()

    async def _release(self, held: bool) -> LockLost | None:
        try:
            return await self._unlock() if held else self._term.loss
        finally:
            self._timer.cancel()
            self._stream.cancel()
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)

    async def _unlock(self) -> LockLost | None:
        try:
            await self._stubs.unlock(self._farewell, metadata=self._metadata, timeout=UNLOCK_LIMIT)
        except grpc.aio.AioRpcError as error:
            return _failure(error).loss_at_unlock(self.resource)
        except grpc.aio.UsageError:
            pass  # The channel is closed, and so is the stream.
        return None

    async def _read(self) -> None:
        """Reads the stream to its end, which is the end of the lock."""
        cause = "disconnected"
        try:
            while await self._stream.read() is not grpc.aio.EOF:
                pass
            cause = "ended"
        except grpc.aio.AioRpcError as error:
            cause = _failure(error).loss_cause()
        except asyncio.CancelledError:
            pass  # The channel was closed, or the event loop is ending.
        self._term.lose(cause)
        self._stop_work()

    async def _keep(self) -> None:
        """Asks the sidecar again and again whether the lock is still held."""
        term = self._term
        pause = term.interval
        while True:
            await asyncio.sleep(pause)
            sent = now()
            try:
                question = self._stubs.check_locks(self._question, metadata=self._metadata, timeout=term.answer_limit)
                take_answer(self._term, sent, await question)
                pause = max(0.0, sent + term.interval - now())
            except grpc.aio.AioRpcError:
                pause = max(0.0, sent + term.retry_interval - now())
            except grpc.aio.UsageError:
                return  # The channel is closed, and so is the stream.
            if term.valid_for == 0:
                self._stop_work()
                return

    def _watch(self) -> None:
        """Waits for the local deadline, which each answer moves on."""
        left = self.valid_for
        if left > 0:
            self._timer = asyncio.get_running_loop().call_later(left, self._watch)
        else:
            self._stop_work()

    def _stop_work(self) -> None:
        if self._term.loss is not None:
            for work in self._works.values():
                work.cancel()
