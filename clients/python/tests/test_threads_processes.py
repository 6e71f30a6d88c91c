"""Locks: the locks of processes that end, fork and are suspended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from stage import PATIENCE, STORE, Stage, fresh, until

from leasehold_client import Locks


def child(stage: Stage, name: str, body: str, kind: str = "Locks") -> subprocess.Popen[str]:
    """A process with `locks` and `name`; its errors are in its output."""
    code = (
        "import asyncio, contextlib, os, signal, sys, threading, time\n"
        "from leasehold_client import AsyncLocks, LeaseholdError, Locks\n"
        # A shell ignores it in what it runs in the background.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"locks, name = {kind}({STORE!r}, address={stage.address!r}), {name!r}\n{body}"
    )
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


HOLD = """
with locks.lock(name, ttl=200) as lock:
    print("held", flush=True)
    time.sleep(200)
"""


def test_a_killed_process_frees_the_lock(locks: Locks, stage: Stage) -> None:
    name = fresh()
    process = child(stage, name, HOLD)
    assert line(process) == "held"
    process.kill()
    with locks.lock(name, wait=PATIENCE):  # The TTL is longer.
        process.wait()


def test_a_cancelled_wait_leaves_nothing(locks: Locks, stage: Stage) -> None:
    # A thread cannot be cancelled; Ctrl-C is what ends a wait.
    name = fresh()
    with ThreadPoolExecutor() as pool:
        with locks.lock(name):
            process = child(stage, name, "with locks.lock(name):\n    print('held')\n")
            stage.wait_for_waiters(name, 1)
            following = pool.submit(lambda: locks.lock(name, wait=PATIENCE).__enter__())
            stage.wait_for_waiters(name, 2)
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == -signal.SIGINT
            stage.wait_for_waiters(name, 1)
        following.result(PATIENCE).unlock()
    stage.wait_for_waiters(name, 0)
    assert stage.take(name)


def test_an_unlock_is_not_cancelled_with_its_caller(stage: Stage) -> None:
    # Ctrl-C ends the work; its lock is released nevertheless.
    name = fresh()
    process = child(stage, name, HOLD)
    assert line(process) == "held"
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == -signal.SIGINT
    assert stage.take(name)


def test_an_interrupt_neither_hangs_nor_keeps_a_lock(stage: Stage) -> None:
    # Ctrl-C at any moment of taking, holding and releasing a lock, in a process that goes on.
    name = fresh()
    body = """
# An interrupt in a destructor of gRPC is reported there, and is not raised.
sys.unraisablehook = lambda it: it.exc_type is KeyboardInterrupt or sys.__unraisablehook__(it)
signal.signal(signal.SIGALRM, signal.default_int_handler)
for number in range(200):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0002 + number % 50 * 0.0002)
        with locks.lock(f"{name}-{number}", ttl=200):
            pass
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        pass
print("through", flush=True)
sys.stdin.readline()
"""
    process = child(stage, name, body)
    try:
        assert ThreadPoolExecutor().submit(line, process).result(PATIENCE) == "through"
        for number in range(200):
            until(partial(stage.take, f"{name}-{number}"), f"the lock of round {number} is free")
    finally:
        process.kill()


@pytest.mark.parametrize("end", ["sys.exit(3)", "raise SystemExit(3)", "os._exit(3)"])
def test_an_interpreter_that_ends_is_not_held_up(stage: Stage, end: str) -> None:
    # Nothing is closed: the lock was entered without `with`, and there is another thread's.
    name = fresh()
    body = (
        "block = locks.lock(name, ttl=200)\nlock = block.__enter__()\n"
        "def other():\n    with locks.lock(name + '-2', ttl=200):\n        held.set()\n        time.sleep(200)\n"
        "held = threading.Event()\nthreading.Thread(target=other, daemon=True).start()\nheld.wait()\n" + end
    )
    process = child(stage, name, body)
    output, _ = process.communicate(timeout=PATIENCE)
    assert output == ""
    assert process.returncode == 3
    until(lambda: stage.take(name) and stage.take(f"{name}-2"), "the locks are free")


def test_a_forked_child_leaves_the_lock_to_its_parent(stage: Stage) -> None:
    name = fresh()
    body = """
done, tell = os.pipe()
with locks.lock(name, ttl=200) as lock:
    child = os.fork()
    if child == 0:
        for use in (lock.check, lambda: locks.lock("x").__enter__()):
            try:
                use()
            except LeaseholdError as error:
                print(error.reason, flush=True)
        lock.unlock()
        os.write(tell, b".")
        time.sleep(200)
    os.close(tell)
    os.read(done, 1)
    lock.check()
    print("child", child, flush=True)
    time.sleep(200)
"""
    process = child(stage, name, body)
    # gRPC may log something about the fork.
    lines = (text for text in iter(lambda: line(process), "") if not text.startswith("I"))
    assert [next(lines), next(lines)] == ["LOCK_LOST", "FORKED"]
    number = int(next(lines).split()[1])
    try:
        assert not stage.take(name)
        # The child lives on, and does not keep the lock.
        process.kill()
        process.wait()
        until(lambda: stage.take(name), "the lock is free")
    finally:
        os.kill(number, signal.SIGKILL)


def test_a_locks_that_was_not_used_yet_works_after_a_fork(stage: Stage) -> None:
    body = """
if os.fork() == 0:
    with locks.lock(name) as lock:
        print("held", flush=True)
    sys.exit(0)
_, status = os.wait()
print(status, flush=True)
"""
    output, _ = child(stage, fresh(), body).communicate(timeout=PATIENCE)
    assert output.split() == ["held", "0"]


def suspend_beyond_the_deadline(process: subprocess.Popen[str], asked: str) -> None:
    """The sidecar goes on renewing, so that only the local deadline ends the lock."""
    assert process.stdin is not None
    assert line(process) == "held"
    process.send_signal(signal.SIGSTOP)
    time.sleep(2)
    if asked == "at once":
        process.stdin.write("check\n")
        process.stdin.flush()
    process.send_signal(signal.SIGCONT)
    if asked == "after an answer":
        time.sleep(1)


@pytest.mark.parametrize("asked", ["at once", "after an answer"])
def test_a_suspended_process_sees_the_loss_by_check(stage: Stage, asked: str) -> None:
    body = """
with locks.lock(name, ttl=2) as lock:
    print("held", flush=True)
    sys.stdin.readline()
    for _ in range(2):
        try:
            lock.check()
            print("check returned", flush=True)
        except LeaseholdError as lost:
            print(lost.cause, flush=True)
        time.sleep(1)
"""
    process = child(stage, fresh(), body)
    suspend_beyond_the_deadline(process, asked)
    output, _ = process.communicate("check\n", timeout=PATIENCE)
    assert output.splitlines()[:2] == ["unconfirmed"] * 2
    assert output.splitlines()[-1].endswith("is lost: unconfirmed")


def test_a_lock_that_is_received_too_late_is_not_acquired(locks: Locks, stage: Stage) -> None:
    name = fresh()
    body = """
try:
    with locks.lock(name, ttl=2):
        print("held")
except LeaseholdError as error:
    print(error.reason)
"""
    with locks.lock(name):
        process = child(stage, name, body)
        stage.wait_for_waiters(name, 1)
        process.send_signal(signal.SIGSTOP)
    until(lambda: stage.holders(name) != [] and stage.waiters(name) == 0, "the suspended process has the lock")
    time.sleep(2)
    process.send_signal(signal.SIGCONT)
    output, _ = process.communicate(timeout=PATIENCE)
    assert output.strip() == "UNAVAILABLE"
    until(lambda: stage.take(name), "the lock is free")
