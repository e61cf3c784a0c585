"""Ports for services that a test starts."""

import secrets
import socket

PORTS = range(20_000, 30_000)
"""Below those that Linux gives to connections and to whoever wants any port (`ip_local_port_range`)."""


def free_port() -> int:
    """A port of loopback where nobody listens, and where none will but whom the caller starts."""
    while True:
        port = secrets.choice(PORTS)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
