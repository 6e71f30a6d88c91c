"""Runs named checks, prints one line each, and counts."""

import threading
import time
from collections.abc import Callable
from typing import Any


class Report:
    """`ok` or `FAILED` and a sentence for each check. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._passed = 0
        self._failed = 0

    def check(self, subject: str, sentence: str, body: Callable[[], None]) -> None:
        try:
            body()
        except Exception as error:  # a check fails with any error
            self._line(f"FAILED: {subject}: {sentence}: {type(error).__name__}: {error}", 0, 1)
        else:
            self._line(f"ok: {subject}: {sentence}", 1, 0)

    def ignore(self, subject: str, sentence: str, why: str) -> None:
        self._line(f"ignored: {subject}: {sentence}: {why}", 0, 0)

    def _line(self, line: str, passed: int, failed: int) -> None:
        with self._lock:
            self._passed += passed
            self._failed += failed
            print(line, flush=True)

    def close(self) -> int:
        """Prints the totals and returns the exit code."""
        print(f"{self._passed} passed, {self._failed} failed", flush=True)
        return 1 if self._failed or not self._passed else 0


def expect(what: str, got: object, want: object) -> None:
    if got != want:
        raise AssertionError(f"{what} is {got!r}, not {want!r}")


def eventually(what: str, attempt: Callable[[], Any]) -> Any:
    """Repeats the attempt until it returns something."""
    deadline = time.monotonic() + 60
    while True:
        result = attempt()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"not within a minute: {what}")
        time.sleep(0.02)
