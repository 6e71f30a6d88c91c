"""The task whose work is cancelled when its lock is lost."""

from __future__ import annotations

import asyncio
from typing import Any


class Work:
    """The body of an `async with` in one task; cancelled by the library at most once."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        self._cancelled_before = task.cancelling()
        self._cancelled = False
        self._ended = False

    def cancel(self) -> None:
        """Cancels the body. Must not be called by its own task."""
        if not self._cancelled and not self._ended:
            self._cancelled = True
            self.task.cancel()

    def end(self, error: BaseException | None) -> bool:
        """Takes how the body ended; returns whether only this cancellation ended it.

        False if somebody else has cancelled the task, too: that must reach the caller.
        """
        self._ended = True
        if not self._cancelled:
            return False
        alone = self.task.uncancel() <= self._cancelled_before
        return alone and isinstance(error, asyncio.CancelledError)


async def complete(task: asyncio.Task[Any]) -> None:
    """Waits until a task is done; a cancellation of the caller is delivered after that."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
