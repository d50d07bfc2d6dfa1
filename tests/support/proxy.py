"""What stands between a run and its Redis or database: passes everything on, until one request is met by a fault.

A request is what a client says until it is answered. Of those, only commands and statements are counted, not what is
said to log in. The first byte of an answer shows that the request took effect: Redis and PostgreSQL answer afterwards.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

_CHUNK_BYTES: Final = 1 << 20
COMMIT: Final = b"COMMIT\0"
"""Not the word in "READ COMMITTED"."""
WRITES: Final = {"redis": b"EVAL", "postgresql": COMMIT}
"""What is in a request that may change something there."""
_IS_LOGIN: Final = (b"AUTH", b"SETINFO", b"SELECT\r\n")


class Side(Enum):
    """Whether the request that is met takes effect."""

    BEFORE = "before"
    AFTER = "after"


class Then(Enum):
    """What becomes of the connections."""

    GOES_ON = "goes on"
    CUT = "cut"
    """The one that the request came on; the next is served."""
    DOWN = "down"
    """All of them, and none is served any more."""
    SILENT = "silent"
    """Nothing passes on this one any more, in either direction; nobody is told."""


@dataclass(frozen=True)
class Fault:
    """The nth request with `part` in it is met: `act` is called, then the connection ends, or not."""

    nth: int
    side: Side
    then: Then = Then.CUT
    part: bytes = b""
    act: Callable[[], object] = lambda: None

    def __str__(self) -> str:
        """Short enough for a test's name."""
        return f"{self.then.value}-{self.side.value}-{self.part.decode().strip(chr(0)).lower() or 'any'}{self.nth}"


class Proxy:
    """Serves on 127.0.0.1:`port` what is at 127.0.0.1:`to_port`. One fault at a time, and it comes once."""

    def __init__(self, kind: str, to_port: int) -> None:
        self._kind = kind
        self.to_port = to_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._lock = threading.Lock()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._fault: Fault | None = None
        self._is_down = False
        self._left = 0
        self.requests: list[bytes] = []
        """Those counted since the last `meet`."""
        self.has_met = threading.Event()
        """The fault has come, and what it does is done."""

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # a thread that waits in accept() is not woken by a close
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.meet(None)
        self._cut_all()

    def meet(self, fault: Fault | None) -> None:
        """Have this fault come, instead of any other; None: all is well again."""
        with self._lock:
            self._fault, self._left, self._is_down = fault, fault.nth if fault else 0, False
            self.requests = []
            self.has_met.clear()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            if self._is_down:
                raise ConnectionRefusedError
            server = socket.create_connection(("127.0.0.1", self.to_port))
        except OSError:
            _reset(client)
            return
        pair = (client, server)
        with self._lock:
            self._pairs.add(pair)
        try:
            self._pass_on(client, server)
        except OSError:
            pass  # one of them is gone, or was cut from another thread
        finally:
            with self._lock:
                self._pairs.discard(pair)
            _reset(client)
            _reset(server)

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        is_answered = True
        while True:
            ready, _, _ = select.select([client, server], [], [])
            source = server if server in ready else client
            data = source.recv(_CHUNK_BYTES)
            if not data:
                return
            if source is server:
                client.sendall(data)
                is_answered = True
                continue
            fault = self._met_by(data) if is_answered else None
            is_answered = False
            if fault is None:
                server.sendall(data)
            elif self._come(fault, data, client, server):
                is_answered = fault.side is Side.AFTER
            else:
                return

    def _met_by(self, data: bytes) -> Fault | None:
        is_counted = data[:1] in {b"Q", b"P"} if self._kind == "postgresql" else not _is_login(data)
        if not is_counted:
            return None
        with self._lock:
            self.requests.append(data)
            if self._fault is None or self._fault.part not in data:
                return None
            self._left -= 1
            return self._fault if self._left == 0 else None

    def _come(self, fault: Fault, data: bytes, client: socket.socket, server: socket.socket) -> bool:
        """Whether the connection goes on."""
        answer = b""
        if fault.side is Side.AFTER:
            server.sendall(data)
            answer = server.recv(_CHUNK_BYTES)
        fault.act()
        if fault.then is Then.DOWN:
            self._is_down = True
        self.has_met.set()
        match fault.then:
            case Then.GOES_ON:
                (client if answer else server).sendall(answer or data)
                return True
            case Then.CUT:
                return False
            case Then.DOWN:
                self._cut_all()
                return False
            case Then.SILENT:
                # until the client gives up, or the test is over
                while client.recv(_CHUNK_BYTES):
                    pass
                return False

    def _cut_all(self) -> None:
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            for end in pair:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)


def _is_login(data: bytes) -> bool:
    return any(word in data for word in _IS_LOGIN)


def _reset(end: socket.socket) -> None:
    """End a connection with RST, as a failing network does."""
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.close()
