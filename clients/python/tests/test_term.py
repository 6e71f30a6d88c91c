"""The arithmetic of the local deadline, by a clock that the test moves."""

from __future__ import annotations

import pytest

from leasehold_client import LockLost, _term
from leasehold_client._term import Term


class Clock:
    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(_term, "now", clock)
    return clock


def term(*, ttl: float = 30, waited: float = 0, max_hold: float | None = None, stop_before: float | None = 0) -> Term:
    return Term(resource="r", sent=1000, waited=waited, ttl=ttl, max_hold=max_hold, stop_before=stop_before)


@pytest.mark.usefixtures("clock")
def test_the_first_deadline_counts_from_the_request() -> None:
    # A twentieth of the TTL and 20 ms are the drift allowance.
    assert term(ttl=30).valid_for == pytest.approx(30 - 1.5 - 0.02)
    assert term(ttl=30, waited=7).valid_for == pytest.approx(7 + 30 - 1.52)
    assert term(ttl=30, stop_before=None).valid_for == pytest.approx(30 - 1.52 - 3)
    assert term(ttl=600, stop_before=None).valid_for == pytest.approx(600 - 30.02 - 5)
    assert term(ttl=30, stop_before=11).valid_for == pytest.approx(30 - 1.52 - 11)


@pytest.mark.usefixtures("clock")
def test_max_hold_caps_the_deadline() -> None:
    assert term(max_hold=20, waited=7).valid_for == pytest.approx(27)
    assert term(max_hold=29, waited=7).valid_for == pytest.approx(7 + 30 - 1.52)
    assert term(max_hold=20, stop_before=None).valid_for == pytest.approx(18)
    assert term(max_hold=100, stop_before=None).valid_for == pytest.approx(30 - 1.52 - 3)
    assert term(max_hold=20, stop_before=19.9).leaves_time
    assert not term(stop_before=28.48).leaves_time
    held = term(max_hold=40)
    held.confirm(1000, 50)
    assert held.valid_for == pytest.approx(40)


@pytest.mark.parametrize(
    ("max_hold", "confirmed", "cause"),
    [(None, 28, "unconfirmed"), (20, 20, "max_hold"), (40, 38.5, "max_hold"), (40, 38, "unconfirmed")],
)
def test_the_deadline_of_max_hold_is_distinguished(
    clock: Clock, max_hold: float | None, confirmed: float, cause: str
) -> None:
    held = term(max_hold=max_hold)
    held.confirm(1000, confirmed)
    clock.time = 1000 + confirmed
    assert held.loss is not None
    assert held.loss.cause == cause


@pytest.mark.usefixtures("clock")
def test_questions_are_asked_every_sixth_of_the_ttl() -> None:
    assert (term(ttl=30).interval, term(ttl=30).answer_limit, term(ttl=30).retry_interval) == (5, 5, 0.5)
    assert (term(ttl=60).interval, term(ttl=60).answer_limit, term(ttl=60).retry_interval) == (10, 5, 1)


def test_an_answer_counts_from_its_question(clock: Clock) -> None:
    held = term()
    clock.time = 1005.0
    held.confirm(1003.0, 28.0)
    assert held.valid_for == pytest.approx(26)
    held.confirm(1004.0, 10.0)  # A shorter one counts too: the max hold is near.
    assert held.valid_for == pytest.approx(9)


def test_a_lost_lock_stays_lost(clock: Clock) -> None:
    held = term()
    clock.time = 1000 + 30 - 1.52 + 0.001
    held.confirm(clock.time - 1, 28.0)  # It comes too late, although the clock was not read since.
    assert held.valid_for == 0
    held.lose("forced")
    with pytest.raises(LockLost, match="unconfirmed"):
        held.check()
    assert not held.close()


@pytest.mark.usefixtures("clock")
def test_a_release_is_no_loss() -> None:
    held = term()
    assert held.close()
    assert not held.close()
    assert held.loss is None
    assert held.valid_for == 0
    with pytest.raises(LockLost, match="ended"):
        held.check()


@pytest.mark.usefixtures("clock")
def test_the_first_cause_counts() -> None:
    held = term()
    held.lose("forced")
    held.lose("disconnected")
    assert held.loss is not None
    assert held.loss.cause == "forced"
