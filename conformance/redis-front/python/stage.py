"""Where the checks run: the addresses and the lossy proxy, as `run` sets them."""

import os
import socket
import uuid


class Stage:
    def __init__(self) -> None:
        self.direct = os.environ["FRONT_ADDRESS"]
        self.lossy = os.environ["FRONT_LOSSY_ADDRESS"]
        self.backend = os.environ["FRONT_BACKEND"]
        self.stress_seconds = float(os.environ.get("FRONT_STRESS_SECONDS", "5"))
        self.is_front = os.environ.get("FRONT_IS_REDIS") != "1"

    def lose(self, key: str, every: int = 1, limit: int = 1) -> None:
        self._control(f"lose {key} {every} {limit}")

    def lost(self, key: str) -> int:
        return int(self._control(f"lost {key}"))

    def _control(self, command: str) -> str:
        host, _, port = os.environ["FRONT_LOSSY_CONTROL"].rpartition(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(f"{command}\n".encode())
            answer = connection.makefile(encoding="utf-8").readline().strip()
        if answer.startswith("error"):
            raise AssertionError(answer)
        return answer


def fresh_key(what: str) -> str:
    return f"{what}-{uuid.uuid4().hex[:12]}"
