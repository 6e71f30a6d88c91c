"""A lock that is held by threads."""

from __future__ import annotations

import os
import queue
import threading
from typing import Any

import grpc

from ._address import Metadata
from ._clock import now
from ._grant import Grant, Patience
from ._options import Options
from ._rpc import UNLOCK_LIMIT, Failure, Stubs
from .errors import LockLost
from .generated import locks_pb2 as pb


def _failure(call: Any) -> Failure:
    return Failure.of(call.code(), call.details(), call.trailing_metadata())


class Lock(Grant):
    """A lock that is held. May be used from any thread."""

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
        super().__init__(store, options, acquired, sent)
        self._stubs = stubs
        self._metadata = metadata
        self._stream = stream
        self._process = os.getpid()
        self._told = False
        self._over = threading.Event()  # lost or released
        self._release_mutex = threading.Lock()
        stream.add_done_callback(self._read_end)
        threading.Thread(target=self._keep, name=f"leasehold {options.name}", daemon=True).start()

    @classmethod
    def acquire(cls, stubs: Stubs, metadata: Metadata, store: str, options: Options) -> Lock:
        """Asks for the lock and waits for it."""
        request = options.request(store)
        patience = Patience(options)
        stream = stubs.lock_stream(request, metadata)
        try:
            inbox: queue.SimpleQueue[pb.LockServerStream | None] = queue.SimpleQueue()
            threading.Thread(target=_read, args=(stream, inbox), name="leasehold stream", daemon=True).start()
            while True:
                # In this thread, so that Ctrl-C ends the wait.
                message = inbox.get(timeout=patience.left)
                if message is None:
                    raise _failure(stream).refusal(options.name, options.wait, stubs.target)
                if message.HasField("lock_acquired"):
                    return cls(stubs, metadata, store, options, stream, message.lock_acquired, patience.sent)
        except queue.Empty:
            stream.cancel()
            raise patience.exhausted(stubs.target) from None
        except BaseException:
            stream.cancel()
            raise

    def wait_lost(self, timeout: float | None = None) -> bool:
        """Sleeps until the lock is lost or released, at most for `timeout` seconds.

        Tells whether it is: the place of `time.sleep` in work under a lock.
        """
        end = None if timeout is None else now() + timeout
        while (left := self.valid_for) > 0:
            if end is not None:
                left = min(left, end - now())
                if left <= 0:
                    return False
            self._over.wait(left)
        return True

    def unlock(self) -> None:
        """Ends the lock early; a second call does nothing.

        Raises `LockLost` if the lock was lost before. Takes 5 s at most. Other failures are
        not reported: the end of the stream releases the lock too. In a child that was forked
        it does nothing.
        """
        loss = self._end()
        if loss is not None:
            raise loss

    def _end(self) -> LockLost | None:
        """Releases the lock, unless it is lost; tells once why it was lost."""
        if os.getpid() != self._process:
            return None  # It is the parent's lock.
        with self._release_mutex:
            if self._told:
                return None
            self._told = True
            try:
                return self._unlock() if self._term.close() else self._term.loss
            finally:
                self._over.set()
                self._stream.cancel()

    def _unlock(self) -> LockLost | None:
        try:
            self._stubs.unlock(self._farewell, metadata=self._metadata, timeout=UNLOCK_LIMIT)
        except grpc.RpcError as error:
            return _failure(error).loss_at_unlock(self.resource)
        except ValueError:
            pass  # The channel is closed, and so is the stream.
        return None

    def _read_end(self, stream: Any) -> None:
        """The end of the stream is the end of the lock."""
        ended_well = stream.code() is grpc.StatusCode.OK
        self._lose("ended" if ended_well else _failure(stream).loss_cause())

    def _keep(self) -> None:
        """Asks the sidecar again and again whether the lock is still held."""
        term = self._term
        pause = term.interval
        while not self._over.wait(pause):
            sent = now()
            try:
                answer = self._stubs.check_locks(self._question, metadata=self._metadata, timeout=term.answer_limit)
                self._take_answer(sent, answer)
                pause = max(0.0, sent + term.interval - now())
            except grpc.RpcError:
                pause = max(0.0, sent + term.retry_interval - now())
            except ValueError:
                return  # The channel is closed, and so is the stream.
            if term.valid_for == 0:
                self._over.set()

    def _lose(self, cause: str) -> None:
        self._term.lose(cause)
        self._over.set()


def _read(stream: Any, inbox: queue.SimpleQueue[pb.LockServerStream | None]) -> None:
    """Reads a stream to its end; passes on what comes up to the lock, or the end before it."""
    waiting = True
    try:
        for message in stream:
            if waiting:
                inbox.put(message)
                waiting = not message.HasField("lock_acquired")
    except grpc.RpcError:
        pass  # Its call knows the error.
    finally:
        inbox.put(None)
