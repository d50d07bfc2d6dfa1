"""One connection: HTTP/1.1, and every fault down to the last byte."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import formatdate
from http import HTTPStatus
from http.client import responses
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, assert_never
from urllib.parse import parse_qsl

from sendonce.sandbox import control, routes
from sendonce.sandbox.faults import PAGE, PORTAL, Ending, Fault
from sendonce.sandbox.messages import HTML, Reply, Request
from sendonce.sandbox.problems import Problem

if TYPE_CHECKING:
    from sendonce.sandbox.journal import Call
    from sendonce.sandbox.server import SandboxServer

_MAX_BODY_BYTES = 16 * 1024 * 1024
_LOOK_S = 0.1
_FIRST_BYTES_S = 1.0
_GARBAGE = b"\x15\x03\x01\x00\x02\x02\x46 this is not HTTP\r\n\r\n"
_SILENT = frozenset({Ending.RESET, Ending.CLOSE, Ending.STALL, Ending.GARBAGE})
_AS_USUAL = Fault("")
_PROXY = Fault("proxy", has_effect=False, reply=Reply(502, PAGE, HTML))


class Connection(BaseHTTPRequestHandler):
    """One connection, with a thread of its own."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: SandboxServer
    connection: socket.socket

    def handle(self) -> None:
        """Serve the requests of a connection, unless the connection itself meets a fault."""
        if not self._starts_with_control():
            self.server.journal.count_connection()
            fault = self.server.rules.pick({"connect"})
            if fault is not None and not self._connect(fault):
                return
        super().handle()

    def _starts_with_control(self) -> bool:
        """Whether the first request is a control request: those must get through whatever is ordered."""
        if not self.server.rules.are_about("connect"):
            return False
        self.connection.settimeout(_FIRST_BYTES_S)
        try:
            first_bytes = self.connection.recv(64, socket.MSG_PEEK)
        except TimeoutError:
            return False
        finally:
            self.connection.settimeout(None)
        return control.PREFIX.encode() in first_bytes.split(b"\r\n")[0]

    def _connect(self, fault: Fault) -> bool:
        """Let a connection meet its fault; whether it is served after that."""
        if self.server.stopping.wait(fault.wait_before_s):
            return False
        if fault.ending is Ending.ANSWER:
            return True
        self._end(fault, Reply(200))
        return False

    def _serve(self) -> None:
        """One request: read it, note it, let it meet its fault."""
        request = self._read()
        if request is None:
            return
        if request.path.startswith(control.PREFIX):
            self._write(self.server.control.answer(request))
            return
        names = _names(request)
        call = self.server.journal.begin(request, names[0], self._now())
        if names[0] == "send":
            self._count_send(request)
        is_for_proxy = not request.path.startswith("/")
        self.close_connection |= is_for_proxy
        fault = _PROXY if is_for_proxy else self.server.rules.pick(names)
        call.fault = fault.word if fault else None
        self._carry_out(request, call, fault or _AS_USUAL)

    # http.server finds the method of a request by these names
    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = do_CONNECT = _serve  # noqa: N815

    def _carry_out(self, request: Request, call: Call, fault: Fault) -> None:
        if self.server.stopping.wait(fault.wait_before_s):
            self.close_connection = True
            return
        reply = self._effect(_shifted(request, fault), call) if fault.has_effect else Reply(204)
        if fault.effect_after_s is not None:
            self._effect_later(request, call, fault.effect_after_s)
        if self.server.stopping.wait(fault.wait_after_s):
            self.close_connection = True
            return
        reply = fault.reply or _with_fewer(reply, fault)
        if fault.ending not in _SILENT:
            call.status = reply.status
        self._end(fault, reply)

    def _effect(self, request: Request, call: Call) -> Reply:
        """Do what the request asks for."""
        if request.path == PORTAL:
            return Reply(200, PAGE, HTML)
        reply = routes.answer(self.server.account, request)
        is_done = reply.status < HTTPStatus.MULTIPLE_CHOICES
        call.has_effect = is_done and request.method != "GET"
        if call.is_accepted is not None:
            call.is_accepted = is_done
        return reply

    def _effect_later(self, request: Request, call: Call, seconds: float) -> None:
        def act() -> None:
            if not self.server.stopping.wait(seconds):
                self._effect(request, call)

        threading.Thread(target=act, daemon=True).start()

    def _end(self, fault: Fault, reply: Reply) -> None:
        """How the exchange ends on the wire."""
        match fault.ending:
            case Ending.ANSWER:
                self._write(reply)
            case Ending.NO_DATE:
                self._write(reply, has_date=False)
            case Ending.DRIP:
                self._drip(reply, fault.drip_s)
            case Ending.CUT:
                self._cut(reply)
            case Ending.GARBAGE:
                self.close_connection = True
                self.wfile.write(_GARBAGE)
            case Ending.CLOSE:
                self.close_connection = True
            case Ending.RESET:
                self._reset()
            case Ending.STALL:
                self._stall()
            case _:
                assert_never(fault.ending)

    def _write(self, reply: Reply, *, has_date: bool = True) -> None:
        self.wfile.write(self._bytes(reply, has_date=has_date))

    def _drip(self, reply: Reply, seconds: float) -> None:
        for byte in self._bytes(reply):
            self.wfile.write(bytes([byte]))
            if self.server.stopping.wait(seconds):
                return

    def _cut(self, reply: Reply) -> None:
        """Half of a body, though the header promises all of it. An answer without a body gets one."""
        body = reply.body or b'{"status": "accepted", "detail": "this text breaks off"}'
        whole = self._bytes(Reply(200 if not reply.body else reply.status, body, reply.content_type))
        self.close_connection = True
        self.wfile.write(whole[: -(len(body) // 2)])

    def _reset(self) -> None:
        """End the connection with RST instead of FIN."""
        self.close_connection = True
        linger_not = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_not)
        os.close(self.connection.detach())  # now: a later shutdown() would send FIN

    def _stall(self) -> None:
        """Say nothing until the client gives up or the sandbox stops."""
        self.close_connection = True
        self.connection.settimeout(_LOOK_S)
        while not self.server.stopping.is_set():
            try:
                is_gone = not self.connection.recv(1, socket.MSG_PEEK)
            except TimeoutError:
                continue
            except OSError:
                return
            if is_gone or self.server.stopping.wait(_LOOK_S):
                return

    def _bytes(self, reply: Reply, *, has_date: bool = True) -> bytes:
        headers = []
        if has_date:
            headers.append(("Date", formatdate(self.server.account.now(), usegmt=True)))
        if reply.content_type is not None:
            headers.append(("Content-Type", reply.content_type))
        if reply.status != HTTPStatus.NO_CONTENT:
            headers.append(("Content-Length", str(len(reply.body))))
        headers += reply.headers
        if self.close_connection:
            headers.append(("Connection", "close"))
        first = f"HTTP/1.1 {reply.status} {responses.get(reply.status, 'Status')}"
        head = "\r\n".join([first, *(f"{name}: {value}" for name, value in headers), "", ""])
        body = b"" if self.command == "HEAD" else reply.body
        return head.encode("latin-1") + body

    def _read(self) -> Request | None:
        """Read the request with its body; None if there is not all of it, or if it cannot be read."""
        length = self.headers.get("Content-Length", "0")
        if self.headers.get("Transfer-Encoding") or not length.isdecimal() or int(length) > _MAX_BODY_BYTES:
            self.close_connection = True
            detail = "The sandbox wants a Content-Length of at most 16 MiB."
            self._write(Problem(HTTPStatus.LENGTH_REQUIRED, "Length Required", detail).reply())
            return None
        text = self.rfile.read(int(length))
        if len(text) < int(length):  # the client died while it was asking
            self.close_connection = True
            return None
        body, is_broken = _parsed(text)
        is_path = self.path.startswith("/")  # CONNECT and a request to a proxy have a host first
        path, _, query = self.path.partition("?") if is_path else (self.path, "", "")
        return Request(
            method=self.command,
            path=path,
            query=dict(parse_qsl(query, keep_blank_values=True)),
            body=body,
            is_broken=is_broken,
            authorization=self.headers.get("Authorization", ""),
            user_agent=self.headers.get("User-Agent", ""),
        )

    def _count_send(self, request: Request) -> None:
        _, ids = routes.find(request)
        with self.server.account.lock:
            self.server.account.count_send(ids["campaign"])

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.server.account.now(), UTC)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the library's
        """Say nothing: what happened can be read under /sandbox/calls."""


def _names(request: Request) -> tuple[str, ...]:
    """Tell what a rule may call a request; its own name comes first."""
    try:
        name = routes.find(request)[0].name
    except Problem:
        name = "unknown"
    return (name, "read", "any") if request.method == "GET" else (name, "any")


def _shifted(request: Request, fault: Fault) -> Request:
    """The request for a page, for an earlier one."""
    offset = request.query.get("offset", "0")
    if not fault.shift_rows or not offset.isdecimal():
        return request
    return replace(request, query={**request.query, "offset": str(max(0, int(offset) - fault.shift_rows))})


def _with_fewer(reply: Reply, fault: Fault) -> Reply:
    """The page, with another total."""
    if not fault.fewer_rows or not reply.body:
        return reply
    document = json.loads(reply.body)
    document["total_items"] = max(0, document.get("total_items", 0) - fault.fewer_rows)
    return replace(reply, body=json.dumps(document).encode())


def _parsed(text: bytes) -> tuple[object, bool]:
    """Parse a body; whether it is broken comes second."""
    try:
        return (json.loads(text) if text.strip() else None), False
    except ValueError:
        return None, True
