"""Servers that the fences are tested on, each in a folder of its own on a loopback port or a socket."""

from __future__ import annotations

import os
import pwd
import random
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pymysql
import pytest
import redis
from stage import PATIENCE

_ROOT = Path(__file__).resolve().parents[3]


def _ignored(why: str) -> None:
    pytest.skip(f"ignored: {why}")


# Not those that the system gives to connections, which could take one before the server listens
# there, nor those that the tests of leasehold take.
_ports = iter(random.sample(range(32_000, 32_768), 768))


def free_port() -> int:
    """A port that nobody listens on, never the same twice."""
    for port in _ports:
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


def _program(name: str, *folders: str) -> str | None:
    found = shutil.which(name)
    candidates = [path for folder in folders for path in sorted(Path("/").glob(f"{folder}/{name}"))]
    return found or (str(candidates[-1]) if candidates else None)


def _as(user: str | None, command: list[str]) -> list[str]:
    """The command as another user.

    Not by `user=` of subprocess: with that it forks, and a fork while gRPC has threads can end
    the child with SIGSEGV.
    """
    if user is None:
        return command
    return ["setpriv", f"--reuid={user}", f"--regid={pwd.getpwnam(user).pw_gid}", "--clear-groups", *command]


@contextmanager
def _running(command: list[str], log: Path, ready: Callable[[], object], user: str | None) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(_as(user, command), stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                ready()
                break
            except Exception as error:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, f"{error}\n{log.read_text()}"
                time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE)


@contextmanager
def _folder(user: str | None = None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="leasehold-", dir="/tmp") as name:
        if user is not None:
            shutil.chown(name, user)
        yield Path(name)


@contextmanager
def postgres() -> Iterator[str]:
    """A connection string."""
    initdb = _program("initdb", "usr/lib/postgresql/*/bin")
    server = _program("postgres", "usr/lib/postgresql/*/bin")
    if initdb is None or server is None:
        _ignored("PostgreSQL is not installed")
        raise AssertionError
    user = "postgres" if os.getuid() == 0 else None  # It does not run as root.
    with _folder(user) as folder:
        data = folder / "data"
        subprocess.run(
            _as(user, [initdb, "-D", str(data), "-U", "test", "-A", "trust", "--no-sync"]),
            check=True,
            capture_output=True,
            cwd=folder,
        )
        command = [server, "-D", str(data), "-k", str(folder), "-c", "listen_addresses=", "-c", "fsync=off"]
        address = f"host={folder} user=test dbname=postgres"
        with _running(command, folder / "log", lambda: psycopg.connect(address).close(), user):
            yield address


@contextmanager
def mariadb() -> Iterator[str]:
    """The path of its socket."""
    server = _program("mariadbd", "usr/sbin")
    if server is None:
        _ignored("MariaDB is not installed")
        raise AssertionError
    user = "nobody" if os.getuid() == 0 else None
    with _folder(user) as folder:
        (folder / "data").mkdir()
        if user is not None:
            shutil.chown(folder / "data", user)
        path = str(folder / "socket")
        # It has no system tables, and asks for no password.
        command = [server, "--no-defaults", f"--datadir={folder}/data", f"--socket={path}", f"--tmpdir={folder}"]
        command += ["--skip-networking", "--skip-grant-tables"]
        with _running(command, folder / "log", lambda: pymysql.connect(unix_socket=path).close(), user):
            yield path


@contextmanager
def redis_server() -> Iterator[int]:
    """A port."""
    server = _program("redis-server")
    if server is None:
        _ignored("redis-server is not installed")
        raise AssertionError
    port = free_port()
    with _folder() as folder:
        command = [server, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
        with _running(command, folder / "log", lambda: redis.Redis(port=port).ping(), None):
            yield port


@contextmanager
def daprd(redis_port: int) -> Iterator[str]:
    """The URL of a daprd with the state stores `redis` and `memory`."""
    program = os.environ.get("DAPRD") or str(_ROOT / "target/daprd/daprd")
    if not Path(program).exists():
        _ignored(f"there is no daprd: {program}; `make daprd` builds it")
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    head = "apiVersion: dapr.io/v1alpha1\nkind: Component\n"
    with _folder() as folder:
        (folder / "components").mkdir()
        (folder / "components/stores.yaml").write_text(
            f"{head}metadata: {{ name: redis }}\nspec:\n  type: state.redis\n  version: v1\n  metadata:\n"
            f'  - {{ name: redisHost, value: "127.0.0.1:{redis_port}" }}\n---\n'
            f"{head}metadata: {{ name: memory }}\nspec:\n  type: state.in-memory\n  version: v1\n  metadata: []\n"
        )
        command = [program, "--app-id", "fence", "--resources-path", str(folder / "components")]
        command += ["--dapr-listen-addresses", "127.0.0.1", "--enable-metrics=false", "--dapr-http-port", str(port)]
        command += ["--dapr-grpc-port", str(free_port()), "--dapr-internal-grpc-port", str(free_port())]
        healthy = f"{endpoint}/v1.0/healthz/outbound"
        with _running(command, folder / "log", lambda: urllib.request.urlopen(healthy, timeout=5).close(), None):
            yield endpoint
