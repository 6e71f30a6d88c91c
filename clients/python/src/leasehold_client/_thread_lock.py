"""A lock that is held by threads.

Ctrl-C raises `KeyboardInterrupt` between any two instructions of the main thread, and neither gRPC
nor the synchronization of `threading` survives that. So a thread of the library makes all calls of
gRPC. The caller's thread puts messages into its inbox and waits for its answers, both by
`SimpleQueue`, whose operations are not interrupted half-way.
"""

from __future__ import annotations

import math
import os
import weakref
from _thread import start_new_thread
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

import grpc

from ._clock import now
from ._grant import Grant, Patience, take_answer
from ._options import Options
from ._rpc import UNLOCK_LIMIT, Connection, Failure
from .errors import LeaseholdError, LockLost
from .generated import locks_pb2 as pb


def _failure(call: Any) -> Failure:
    return Failure.of(call.code(), call.details(), call.trailing_metadata())


class Lock(Grant):
    """A lock that is held. May be used from any thread. It is released when nothing refers to it."""

    _holders = 0

    def __init__(self, session: _Session, acquired: pb.LockAcquired, sent: float) -> None:
        super().__init__(session.stubs, session.store, session.options, acquired, sent)
        self._inbox = session.inbox
        self._bells = session.bells
        self._process = os.getpid()
        self._unended = [True]  # The call that takes it out ends the lock.

    @staticmethod
    def acquire(connection: Connection, store: str, options: Options) -> Lock:
        """Asks for the lock and waits for it."""
        session = _Session(connection, store, options)
        inbox, outcome = session.inbox, session.outcome
        assert outcome is not None
        try:
            start_new_thread(session.run, ())
            result = outcome.get()
        except BaseException:
            inbox.put(None)
            raise
        if isinstance(result, BaseException):
            raise result
        return result

    def wait_lost(self, timeout: float | None = None) -> bool:
        """Sleeps until the lock is lost or released, at most for `timeout` seconds.

        Returns whether it is. Use it in place of `time.sleep` in work under a lock.
        """
        end = math.inf if timeout is None else now() + timeout
        bell: SimpleQueue[None] = SimpleQueue()
        self._bells.add(bell)
        try:
            while (left := self.valid_for) > 0:
                left = min(left, end - now())
                if left <= 0:
                    return False
                with suppress(Empty):
                    bell.get(timeout=left)
        finally:
            self._bells.discard(bell)
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

    @property
    def _has_ended(self) -> bool:
        """Whether it was ended, which has reported a loss."""
        return not self._unended

    def _end(self) -> LockLost | None:
        """Releases the lock, unless it is lost; returns once why it was lost."""
        if os.getpid() != self._process:
            return None  # It is the parent's lock.
        try:
            self._unended.pop()
        except IndexError:
            return None
        reply: SimpleQueue[LockLost | None] = SimpleQueue()
        self._inbox.put(reply)
        return reply.get()


class _Session:
    """One lock from its request to its end, in a thread of its own.

    The inbox takes the messages of the stream, the stream itself when it has ended, the question
    that was answered, the queue for the answer to an unlock, and `None` or the reference to the
    handle when the caller has gone.
    """

    def __init__(self, connection: Connection, store: str, options: Options) -> None:
        self.store = store
        self.options = options
        self.inbox: SimpleQueue[Any] = SimpleQueue()
        self.outcome: SimpleQueue[Lock | BaseException] | None = SimpleQueue()
        self.bells: set[SimpleQueue[None]] = set()
        self._connection = connection
        self._metadata = connection.metadata

    def run(self) -> None:
        """Takes the lock, delivers the handle or the error, and keeps the lock until the handle has ended."""
        stream = None
        try:
            self.stubs = self._connection.stubs()
            patience = Patience(self.options)
            stream = self.stubs.lock_stream(self.options.request(self.store), self._metadata)
            start_new_thread(_read, (stream, self.inbox))
            self._deliver(self._wait(stream, patience))
        except BaseException as error:
            if stream is not None:
                stream.cancel()
            self._deliver(error)
        else:
            self._keep(stream)

    def _deliver(self, outcome: Lock | BaseException) -> None:
        # Only the caller refers to the handle then. One that was interrupted has dropped it.
        if self.outcome is not None:
            self.outcome.put(outcome)
            self.outcome = None

    def _wait(self, stream: Any, patience: Patience) -> Lock:
        while True:
            try:
                message = self.inbox.get(timeout=patience.left)
            except Empty:
                self.stubs.fall_silent()
                raise patience.exhausted(self.stubs.target) from None
            if message is None:
                raise LeaseholdError("the wait was interrupted", reason="CANCELLED")
            if message is stream:
                raise _failure(stream).refusal(self.options.name, self.options.wait, self.stubs.target)
            if message.HasField("lock_acquired"):
                lock = Lock(self, message.lock_acquired, patience.sent)
                self._term, self._question, self._farewell = lock._term, lock._question, lock._farewell
                # An interrupt may come before `__exit__` has begun.
                self._handle = weakref.ref(lock, self.inbox.put)
                return lock

    def _keep(self, stream: Any) -> None:
        """Asks the sidecar again and again whether the lock is still held, until the handle has ended."""
        term = self._term
        question, asked, following, lost = None, 0.0, now() + term.interval, False
        while True:
            left = term.valid_for
            if left == 0 and not lost:
                lost = True
                self._ring()
            pause = left if question is not None else min(left, following - now())
            try:
                message = self.inbox.get(timeout=None if lost else max(0.0, pause))
            except Empty:
                if question is None and now() >= following:
                    asked = now()
                    try:
                        question = self.stubs.check_locks.future(
                            self._question, metadata=self._metadata, timeout=term.answer_limit
                        )
                        question.add_done_callback(self.inbox.put)
                    except ValueError:
                        following = math.inf  # The channel is closed, and so is the stream.
                continue
            if message is stream:
                ended_well = stream.code() is grpc.StatusCode.OK
                term.lose("ended" if ended_well else _failure(stream).loss_cause())
            elif question is not None and message is question:
                answered = question.code() is grpc.StatusCode.OK
                if answered:
                    take_answer(term, asked, question.result())
                following = asked + (term.interval if answered else term.retry_interval)
                question = None
            elif message is None or message is self._handle or isinstance(message, SimpleQueue):
                loss = self._unlock() if term.close() else term.loss
                self._ring()
                stream.cancel()
                if isinstance(message, SimpleQueue):
                    message.put(loss)
                return

    def _ring(self) -> None:
        for bell in list(self.bells):
            bell.put(None)

    def _unlock(self) -> LockLost | None:
        try:
            self.stubs.unlock(self._farewell, metadata=self._metadata, timeout=UNLOCK_LIMIT)
        except grpc.RpcError as error:
            return _failure(error).loss_at_unlock(self.options.name)
        except ValueError:
            pass  # The channel is closed, and so is the stream.
        return None


def _read(stream: Any, inbox: SimpleQueue[Any]) -> None:
    """Reads a stream to its end, which is the end of the lock."""
    try:
        for message in stream:
            inbox.put(message)
    except grpc.RpcError:
        pass  # Its call has the error.
    finally:
        inbox.put(stream)
