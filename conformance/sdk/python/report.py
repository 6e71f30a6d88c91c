"""Runs named checks, prints one line each, and counts."""

from collections.abc import Callable


class Report:
    """`ok` or `FAILED` and a sentence for each check, and a closing line."""

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._passed = 0
        self._failed = 0

    def check(self, sentence: str, body: Callable[[], None]) -> None:
        try:
            body()
        except Exception as error:  # a check fails with any error
            self._failed += 1
            print(f"FAILED  {self._subject}: {sentence}: {type(error).__name__}: {error}", flush=True)
        else:
            self._passed += 1
            print(f"ok      {self._subject}: {sentence}", flush=True)

    def ignore(self, sentence: str, why: str) -> None:
        print(f"ignored {self._subject}: {sentence}: {why}", flush=True)

    def close(self) -> int:
        """Prints the totals and returns the exit code."""
        print(f"{self._passed} passed, {self._failed} failed", flush=True)
        return 1 if self._failed or not self._passed else 0


def expect(what: str, got: object, want: object) -> None:
    if got != want:
        raise AssertionError(f"{what} is {got!r}, not {want!r}")
