"""A server of the test's own on loopback: it hears requests whole and says, byte for byte, what it is told to."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

DATE = "Mon, 05 Jan 2026 08:00:00 GMT"
JSON = "application/json; charset=utf-8"
PROBLEM_JSON = "application/problem+json; charset=utf-8"
LIMIT_S = 20


@dataclass(frozen=True)
class Heard:
    """One request, whole. Header names are in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        """The target without its query."""
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, list[str]]:
        """What the query says."""
        return parse_qs(urlsplit(self.target).query)

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class Peer:
    """The server's end of one connection."""

    def __init__(self, sock: socket.socket, stopping: threading.Event) -> None:
        self._sock, self.stopping = sock, stopping
        self.is_over = False

    def say(self, data: bytes) -> None:
        """Send bytes."""
        self._sock.sendall(data)

    def say_beneath_tls(self, data: bytes) -> None:
        """Send bytes past the encryption."""
        socket.socket.sendall(self._sock, data)

    def hear_until(self, end: bytes) -> bytes:
        """Take in bytes up to `end`, one by one so that none of what follows is taken."""
        heard = b""
        while not heard.endswith(end):
            heard += self._sock.recv(1) or end
        return heard

    def drip(self, data: bytes, every_s: float) -> None:
        """Send them one by one, until the other side has gone."""
        with suppress(OSError):
            for byte in data:
                self._sock.sendall(bytes([byte]))
                if self.stopping.wait(every_s):
                    return

    def reset(self) -> None:
        """End the connection with RST."""
        self.is_over = True
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        os.close(self._sock.detach())  # at once, though a reader still holds it

    def hang_up(self) -> None:
        """End the connection with FIN."""
        self.is_over = True
        with suppress(OSError):  # the other side was faster
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def stall(self) -> None:
        """Say nothing until the test is over."""
        self.stopping.wait(LIMIT_S)


class WireServer:
    """Each request gets the next act, and the last act answers all that follow.

    `on_connect` is done to a connection before any request is read; `tls` makes it an https server. `heard` has
    all requests in order, `connections` counts what was accepted.
    """

    def __init__(
        self,
        *acts: Callable[[Peer], None],
        tls: ssl.SSLContext | None = None,
        on_connect: Callable[[Peer], None] | None = None,
    ) -> None:
        self._acts, self._tls, self._on_connect = list(acts), tls, on_connect
        self.heard: list[Heard] = []
        self.connections = 0
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._start(self._accept)

    @property
    def url(self) -> str:
        """The base URL, as MAILCHIMP_API_URL has it."""
        return f"http://127.0.0.1:{self.port}/3.0"

    @property
    def https_url(self) -> str:
        """The same for a server with `tls`."""
        return f"https://localhost:{self.port}/3.0"

    @property
    def calls(self) -> list[tuple[str, str]]:
        """Method and path of each request."""
        return [(one.method, one.path) for one in self.heard]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes up the thread that accepts
        self._listener.close()
        with self._lock:
            for sock in self._open:
                with suppress(OSError):
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(LIMIT_S)
            assert not thread.is_alive(), "a thread of the wire server hangs"

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with self._lock:
                self._open.append(sock)
            self._start(self._serve, sock)

    def _serve(self, sock: socket.socket) -> None:
        sock.settimeout(LIMIT_S)
        with sock, suppress(OSError):
            peer = Peer(sock, self._stopping)
            if self._on_connect is not None:
                self._on_connect(peer)
            if peer.is_over:
                return
            if self._tls is None:
                self._talk(sock)
                return
            with self._tls.wrap_socket(sock, server_side=True) as secure:
                with self._lock:
                    self._open.append(secure)
                self._talk(secure)

    def _talk(self, sock: socket.socket) -> None:
        peer = Peer(sock, self._stopping)
        with sock.makefile("rb") as stream:
            while not peer.is_over and (heard := _heard(stream)) is not None:
                with self._lock:
                    self.heard.append(heard)
                    act = self._acts[0] if len(self._acts) == 1 else self._acts.pop(0)
                act(peer)


def _heard(stream: Any) -> Heard | None:
    """Read one request; None at the end of the connection."""
    first = stream.readline().split()
    if len(first) != 3:
        return None
    headers: dict[str, str] = {}
    while line := stream.readline().strip():
        name, _, value = line.partition(b":")
        headers[name.decode("latin-1").lower()] = value.strip().decode("latin-1")
    body = stream.read(int(headers.get("content-length", "0")))
    return Heard(first[0].decode(), first[1].decode(), headers, body)


# ---------------------------------------------------------------------------------------------------------- acts


def raw(status: int, body: bytes = b"", **headers: str | None) -> bytes:
    """An HTTP answer as bytes. Header names have _ for -; None leaves one out. Date and Content-Length are there."""
    said: dict[str, str | None] = {"Date": DATE, "Content-Length": str(len(body)) if status != 204 else None}
    said |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"HTTP/1.1 {status} Told", *(f"{k}: {v}" for k, v in said.items() if v is not None)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


def answer(
    status: int, body: bytes = b"", content_type: str | None = None, **headers: str | None
) -> Callable[[Peer], None]:
    """Answer with these bytes."""
    return lambda peer: peer.say(raw(status, body, Content_Type=content_type, **headers))


def says(
    status: int, document: object, content_type: str = JSON, **headers: str | None
) -> Callable[[Peer], None]:
    """Answer with a JSON document."""
    return answer(status, json.dumps(document).encode(), content_type, **headers)


def problem(
    status: int, title: str = "Told", detail: str = "The test wants it so.", **more: object
) -> Callable[[Peer], None]:
    """Answer with Mailchimp's error document."""
    document = {
        "type": "about:blank",
        "title": title,
        "status": status,
        "detail": detail,
        "instance": "",
        **more,
    }
    return says(status, document, PROBLEM_JSON)


def exactly(data: bytes) -> Callable[[Peer], None]:
    """Say these bytes and hang up."""

    def act(peer: Peer) -> None:
        peer.say(data)
        peer.hang_up()

    return act


def drip(data: bytes, every_s: float = 0.1) -> Callable[[Peer], None]:
    """Say them one by one."""
    return lambda peer: peer.drip(data, every_s)


def reset(peer: Peer) -> None:
    """End the connection with RST."""
    peer.reset()


def hang_up(peer: Peer) -> None:
    """End the connection with FIN."""
    peer.hang_up()


def stall(peer: Peer) -> None:
    """Never answer."""
    peer.stall()
