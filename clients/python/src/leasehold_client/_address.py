"""Where the sidecar is, and how a channel to it is made."""

from __future__ import annotations

import os
from dataclasses import dataclass

from .errors import InvalidOption

_DEFAULT_PORTS = {"http": "80", "https": "443"}
_PORT_MAX = 65535
_LOOPBACK = ("localhost", "127.", "[::1]")

ChannelOptions = list[tuple[str, str | int]]
Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Address:
    """A target in gRPC's spelling."""

    target: str
    tls: bool = False

    @classmethod
    def of(cls, text: str | None) -> Address:
        """The caller's address, else that of the environment.

        That is `DAPR_GRPC_ENDPOINT`, else 127.0.0.1 and `DAPR_GRPC_PORT`, else port 50001.
        """
        if text is not None:
            return cls._parse("address", text)
        if endpoint := os.environ.get("DAPR_GRPC_ENDPOINT"):
            return cls._parse("DAPR_GRPC_ENDPOINT", endpoint)
        return cls._parse("DAPR_GRPC_PORT", f"127.0.0.1:{os.environ.get('DAPR_GRPC_PORT') or '50001'}")

    @classmethod
    def _parse(cls, option: str, text: str) -> Address:
        if text.startswith("unix:"):
            return cls(text)
        scheme, separator, rest = text.rpartition("://")
        if separator and scheme not in _DEFAULT_PORTS:
            raise InvalidOption(option, f"is {text!r}: not host:port, http://, https:// or unix:")
        host = rest.rstrip("/")
        if not host or "/" in host:
            raise InvalidOption(option, f"is {text!r}, which names no host and port")
        if ":" not in host.rpartition("]")[2]:
            if not separator:
                raise InvalidOption(option, f"is {text!r}, which has no port")
            host = f"{host}:{_DEFAULT_PORTS[scheme]}"
        port = host.rpartition(":")[2]
        if not (port.isascii() and port.isdigit() and 0 < int(port) <= _PORT_MAX):
            raise InvalidOption(option, f"is {text!r}, whose port is not a number from 1 to {_PORT_MAX}")
        return cls(host, tls=scheme == "https")

    @property
    def channel_options(self) -> ChannelOptions:
        """Arguments of gRPC's C core."""
        # Without these a sidecar that starts again is not noticed for up to two minutes.
        options: ChannelOptions = [
            ("grpc.initial_reconnect_backoff_ms", 200),
            ("grpc.max_reconnect_backoff_ms", 2000),
            # Without these a connection that died without a reset is used forever.
            ("grpc.keepalive_time_ms", 10_000),
            ("grpc.keepalive_timeout_ms", 5_000),
            ("grpc.http2.ping_timeout_ms", 5_000),  # No keepalive ping is sent while another is open.
            ("grpc.http2.max_pings_without_data", 0),
            # Another channel is another connection.
            ("grpc.use_local_subchannel_pool", 1),
        ]
        if self.target.startswith("unix:"):
            # The C core would send the path, which is not a valid authority.
            options.append(("grpc.default_authority", "localhost"))
        if self.target.startswith(_LOOPBACK):
            # The C core applies `http_proxy` to loopback addresses, too.
            options.append(("grpc.enable_http_proxy", 0))
        return options


def metadata(api_token: str | None) -> Metadata:
    """What every call carries: the caller's token, else `DAPR_API_TOKEN`, if it is set."""
    option, token = (
        ("DAPR_API_TOKEN", os.environ.get("DAPR_API_TOKEN")) if api_token is None else ("api_token", api_token)
    )
    if token and not (token.isascii() and token.isprintable()):
        raise InvalidOption(option, "has a character that a header cannot have, such as a newline at its end")
    return (("dapr-api-token", token),) if token else ()
