"""Starts a real sidecar on the memory store, for the scripts here."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_DEFAULT = Path(__file__).resolve().parents[3] / "target/debug/leasehold-test-sidecar"


@contextmanager
def sidecar() -> Iterator[dict[str, int]]:
    """Its ports, such as `grpcPort` and `httpPort`."""
    launcher = os.environ.get("LEASEHOLD_TEST_SIDECAR", str(_DEFAULT))
    process = subprocess.Popen([launcher, "memory"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait()
