"""The server: listens on 127.0.0.1, with a thread for each connection. `serve` runs one to its end."""

from __future__ import annotations

import signal
import socket
import sys
import threading
from http.server import ThreadingHTTPServer
from typing import TYPE_CHECKING

from sendonce.core.errors import Unusable
from sendonce.sandbox import control, routes
from sendonce.sandbox.account import Account
from sendonce.sandbox.connection import Connection
from sendonce.sandbox.faults import Rules
from sendonce.sandbox.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Callable

    from sendonce.sandbox.account import Setup

HOST = "127.0.0.1"


def serve(port: int, *, ready: Callable[[str], None], setup: Setup) -> None:
    """Serve on 127.0.0.1 until SIGTERM or KeyboardInterrupt; port 0 takes any free one.

    `ready` is called with the base URL, http://127.0.0.1:PORT/3.0, once connections are accepted.
    Raise Unusable if the port cannot be had.
    """
    server = SandboxServer(port, setup)
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, signal.default_int_handler) if is_main else None
    try:
        ready(server.base_url)
        server.serve_forever(poll_interval=0.05)
    except KeyboardInterrupt:
        pass
    finally:
        server.close()
        if is_main:
            signal.signal(signal.SIGTERM, before)


class SandboxServer(ThreadingHTTPServer):
    """One sandbox with its account; `serve_forever` and `shutdown` as in the standard library."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, port: int, setup: Setup) -> None:
        self.account = Account(setup)
        self.rules = Rules()
        self.journal = Journal()
        self.control = control.Control(self.account, self.rules, self.journal)
        self.stopping = threading.Event()
        try:
            super().__init__((HOST, port), Connection)
        except (OSError, OverflowError) as error:
            raise Unusable(
                f"The sandbox cannot listen on {HOST}, port {port}: {error}. "
                "Nothing was started; choose another port, or 0 for any free one."
            ) from error

    @property
    def base_url(self) -> str:
        """What goes into MAILCHIMP_API_URL."""
        return f"http://{HOST}:{self.server_port}{routes.PREFIX}"

    def close(self) -> None:
        """Stop listening and let every held connection go."""
        self.stopping.set()
        self.server_close()

    def server_bind(self) -> None:
        """Bind without the look-up of the host's name that the standard library does here."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = HOST, self.server_address[1]

    def handle_error(self, request: object, client_address: object) -> None:
        """Show a bug; a client that went away is none."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # as typeshed has it
