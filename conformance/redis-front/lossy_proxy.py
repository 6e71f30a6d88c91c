"""A TCP proxy that loses replies on request, for the checks of this folder.

usage: lossy_proxy.py UPSTREAM_HOST:PORT

Prints `PORT CONTROL_PORT`, and ends when its standard input does. A control connection sends
one command a line and gets one line back:

    lose KEY EVERY LIMIT    lose every EVERY-th reply to a command that ends a word with KEY,
                            at most LIMIT of them; answered with `ok`
    lost KEY                answered with how many were lost so far

A reply is lost after the command was carried out: the proxy waits for the reply, leaves it
unread and resets both connections. Errors are passed on, since they carry out nothing.
"""

import select
import socket
import struct
import sys
import threading
from dataclasses import dataclass

CHUNK = 65536
RESET = struct.pack("ii", 1, 0)


@dataclass
class Rule:
    every: int
    limit: int
    seen: int = 0
    lost: int = 0

    def loses_next(self) -> bool:
        self.seen += 1
        if self.lost == self.limit or self.seen % self.every:
            return False
        self.lost += 1
        return True


class Rules:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: dict[bytes, Rule] = {}

    def carry_out(self, line: str) -> str:
        match line.split():
            case ["lose", key, every, limit]:
                with self._lock:
                    self._rules[key.encode()] = Rule(int(every), int(limit))
                return "ok"
            case ["lost", key]:
                with self._lock:
                    rule = self._rules.get(key.encode())
                return str(rule.lost if rule else 0)
            case _:
                return f"error: no such command: {line}"

    def loses(self, command: bytes, reply: bytes) -> bool:
        if reply.startswith(b"-"):
            return False
        with self._lock:
            return any(
                rule.loses_next()
                for key, rule in self._rules.items()
                if key + b"\r\n" in command
            )


def serve(client: socket.socket, upstream: tuple[str, int], rules: Rules) -> None:
    """Passes bytes on in both directions until a side closes or a reply is lost."""
    try:
        server = socket.create_connection(upstream)
    except OSError:
        client.close()
        return
    command = b""
    with client, server:
        for peer in (client, server):
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            while True:
                readable, _, _ = select.select([client, server], [], [])
                if server in readable:
                    reply = server.recv(CHUNK, socket.MSG_PEEK)
                    if not reply:
                        return
                    if rules.loses(command, reply):
                        for peer in (client, server):
                            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                        return
                    client.sendall(server.recv(len(reply)))
                    command = b""
                if client in readable:
                    data = client.recv(CHUNK)
                    if not data:
                        return
                    command += data
                    server.sendall(data)
        except OSError:
            return


def control(connection: socket.socket, rules: Rules) -> None:
    with connection, connection.makefile("rw", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            lines.write(rules.carry_out(line.strip()) + "\n")
            lines.flush()


def accept(listener: socket.socket, handle, *arguments) -> None:
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=handle, args=(connection, *arguments), daemon=True).start()


def main() -> None:
    host, _, port = sys.argv[1].rpartition(":")
    rules = Rules()
    data = socket.create_server(("127.0.0.1", 0), backlog=256)
    commands = socket.create_server(("127.0.0.1", 0))
    threads = [(data, serve, (host, int(port)), rules), (commands, control, rules)]
    for arguments in threads:
        threading.Thread(target=accept, args=arguments, daemon=True).start()
    print(data.getsockname()[1], commands.getsockname()[1], flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
