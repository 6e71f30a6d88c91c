"""Runs the examples against a real sidecar, and checks their output.

LEASEHOLD_TEST_SIDECAR names the program that starts the sidecar.
"""

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from testing import sidecar

HERE = Path(__file__).resolve().parent


def start(ports: dict[str, int], *command: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, "DAPR_GRPC_PORT": str(ports["grpcPort"])}
    return subprocess.Popen([sys.executable, *command], cwd=HERE, env=environment, stdout=subprocess.PIPE, text=True)


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def call(ports: dict[str, int], method: str, name: str, body: bytes | None = None) -> Any:
    url = f"http://127.0.0.1:{ports['httpPort']}/v1.0-alpha2/lock/lockstore/{name}"
    with urllib.request.urlopen(urllib.request.Request(url, data=body, method=method), timeout=10) as answer:
        return json.loads(answer.read() or "null")


def worker(ports: dict[str, int]) -> None:
    """Its lock is ended by force in the middle of its work."""
    process = start(ports, "worker.py")
    while "step 3" not in (text := line(process)):
        assert text, "it ended before step 3"
    call(ports, "DELETE", "order-1", b'{"force":true}')
    rest, _ = process.communicate(timeout=30)
    assert rest.splitlines()[-1] == "stopped: the lock 'order-1' is lost: forced", rest
    assert "step 99" not in rest, rest
    print("worker: it lost its lock in the middle and stopped")


def leader(ports: dict[str, int]) -> None:
    """The first leader is ended, and the second candidate takes over."""
    first = start(ports, "leader.py", "first")
    assert line(first).startswith("first leads")
    second = start(ports, "leader.py", "second")
    while call(ports, "GET", "leader").get("waiters", 0) < 1:
        time.sleep(0.05)
    first.kill()
    first.wait()
    took_over = line(second)
    second.kill()
    second.wait()
    assert took_over.startswith("second leads"), took_over
    print("leader: the first was ended and the second took over")


with sidecar() as ports:
    worker(ports)
    leader(ports)
