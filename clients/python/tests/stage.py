"""A store, a sidecar and a proxy, and what others see of the locks."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

STORE = "lockstore"
PATIENCE = 60.0  # Less than the limit of a test, in pyproject.toml.
_ROOT = Path(__file__).resolve().parents[3]


def fresh(name: str = "python") -> str:
    return f"{name}-{uuid.uuid4()}"


def until(condition: Callable[[], Any], what: str) -> Any:
    """Polls until the condition holds, and returns its result."""
    deadline = time.monotonic() + PATIENCE
    while not (result := condition()):
        assert time.monotonic() < deadline, f"not in {PATIENCE} s: {what}"
        time.sleep(0.02)
    return result


class Stage:
    def __init__(self, backend: str, *arguments: str, environment: dict[str, str] | None = None) -> None:
        program = os.environ.get("LEASEHOLD_TEST_SIDECAR") or str(_ROOT / "target/debug/leasehold-test-sidecar")
        self.backend = backend
        self._process = subprocess.Popen(
            [program, backend, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"{program} {backend} did not start"
        ports = json.loads(line)
        self.address = f"127.0.0.1:{ports['grpcPort']}"
        self.through_proxy = f"127.0.0.1:{ports['proxyPort']}"
        self.grpc_port: int = ports["grpcPort"]
        self.http_port: int = ports["httpPort"]

    def command(self, command: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        assert answer == "ok", f"{command}: {answer}"

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE)

    def _http(self, method: str, name: str, body: dict[str, Any] | None, namespace: tuple[str, ...]) -> Any:
        query = urllib.parse.urlencode([("namespace", segment) for segment in namespace])
        url = f"http://127.0.0.1:{self.http_port}/v1.0-alpha2/lock/{STORE}/{name}?{query}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data=data, method=method)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.loads(answer.read() or "null")

    def inspect(self, name: str, *namespace: str) -> Any:
        return self._http("GET", name, None, namespace)

    def holders(self, name: str, *namespace: str) -> list[str]:
        grants = self.inspect(name, *namespace).get("grants", [])
        return [grant["holder"] for grant in grants]

    def waiters(self, name: str) -> int:
        return int(self.inspect(name).get("waiters", 0))

    def wait_for_waiters(self, name: str, count: int) -> None:
        until(lambda: self.waiters(name) == count, f"{count} wait for {name}")

    def force(self, name: str) -> None:
        self._http("DELETE", name, {"force": True}, ())

    def take(self, name: str) -> bool:
        """Takes a lock as another client and releases it; returns whether it got the lock."""
        try:
            grant = self._http("POST", name, {"immediate": True}, ())
        except urllib.error.HTTPError as error:
            assert error.code == 409, error.read()
            return False
        self._http("DELETE", name, {"lockID": grant["lockID"]}, ())
        return True
