"""One request through the official client, made safe: what came back, or why nothing did.

The client (mailchimp-marketing 3.0.80) returns errors without a body as if they were answers, follows
redirects with a POST turned into a GET, loses headers and wraps every exception. So its result is never
looked at: the subclass below keeps the response itself, and `Wire.exchange` reads that.
"""

from __future__ import annotations

import base64
import json
import socket
import ssl
import threading
from contextlib import suppress
from dataclasses import dataclass
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import requests
from mailchimp_marketing.api_client import ApiClient, ApiClientError
from requests.adapters import HTTPAdapter
from requests.auth import HTTPBasicAuth
from requests.utils import select_proxy
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import NameResolutionError, NewConnectionError

from sendonce.core.errors import InvariantBroken, SettingsWrong

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CONNECT_TIMEOUT_S = 10
SHORTEST_LIMIT_S = 0.1
SAID_AT_MOST = 300
OK, NO_CONTENT = 200, 204
ERRORS_FROM = 400


@dataclass(frozen=True)
class Reply:
    """An HTTP answer. `json` is None unless the body is one JSON document."""

    status: int
    json: Any
    is_empty: bool
    content_type: str
    headers: Mapping[str, str]

    @property
    def problem(self) -> Mapping[str, object] | None:
        """Mailchimp's error document, if it is one: an object with a title or a detail (facts §4)."""
        if not isinstance(self.json, dict):
            return None
        return self.json if any(isinstance(self.json.get(k), str) for k in ("title", "detail")) else None

    @property
    def said(self) -> str:
        """The answer in words for people."""
        if (problem := self.problem) is not None and self.status >= ERRORS_FROM:
            return f"HTTP {self.status}: {_problem_text(problem)}"
        body = "an empty body" if self.is_empty else f"content type {self.content_type or 'not given'}"
        return f"HTTP {self.status} with {body}, which is not an answer of the Mailchimp API"


@dataclass(frozen=True)
class NeverLeft:
    """No connection was made: the request cannot have arrived. `is_certificate`: nor will it by waiting."""

    said: str
    is_certificate: bool = False


@dataclass(frozen=True)
class Lost:
    """The request may have arrived; no whole answer came back."""

    said: str


class Wire:
    """Requests to one base URL with one key. Raise SettingsWrong if proxy or CA bundle cannot be used.

    With `keeps_connection` it is for reads alone (see `_SafeClient.request`). One thread at a time.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        *,
        timeout_s: float,
        user_agent: str,
        keeps_connection: bool = False,
    ) -> None:
        self._timeout_s = timeout_s
        self.client = _SafeClient(base_url, api_key, user_agent, keeps_connection=keeps_connection)
        self._hide = _hiding(api_key)

    def exchange(
        self, call: Callable[[], object], *, within_s: float | None = None
    ) -> Reply | NeverLeft | Lost:
        """Have the client make one request, over in `within_s` seconds at most (default: the wire's timeout).

        Raise InvariantBroken if the request could not even be built.
        """
        limit_s = self._timeout_s if within_s is None else min(within_s, self._timeout_s)
        with self.client.attempt(max(SHORTEST_LIMIT_S, limit_s)) as attempt:
            try:
                call()
            except ApiClientError as fault:
                if isinstance(fault.text, Exception):
                    return _no_reply(fault.text, attempt)
        if attempt.response is None:
            raise InvariantBroken("the Mailchimp client returned without a response")
        return _reply(attempt.response, self._hide)


class _Attempt:
    """One request: how far it got, and the sockets it uses, which are cut when its time is over.

    `timeout=` of requests is per read: an answer that drips byte by byte would never end.
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.response: requests.Response | None = None
        self.is_connected = False  # from then on the request may arrive
        self._is_over = False
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._timer = threading.Timer(limit_s, self._cut)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        with self._lock:
            while self._sockets:
                self._sockets.pop().close()

    @property
    def is_over(self) -> bool:
        """Whether the time is over, and every socket cut: from then on nothing can leave."""
        with self._lock:
            return self._is_over

    def watch(self, sock: socket.socket) -> None:
        """Cut this one, too, when the time is over; at once if it is."""
        # a descriptor of our own: TLS takes the first one away while it shakes hands
        twin = socket.fromfd(sock.fileno(), sock.family, sock.type)
        with self._lock:
            self._sockets.append(twin)
            if self._is_over:
                _shut(twin)

    def _cut(self) -> None:
        with self._lock:
            for twin in self._sockets:
                _shut(twin)
            self._is_over = True


def _shut(sock: socket.socket) -> None:
    """Wake up whoever reads from it or writes to it: the request then ends as a lost one."""
    with suppress(OSError):  # the other side was faster
        sock.shutdown(socket.SHUT_RDWR)


class _SafeClient(ApiClient):  # type: ignore[misc] # the client has no types
    """The official client with a transport of our own."""

    def __init__(
        self, base_url: str, api_key: str, user_agent: str, *, keeps_connection: bool = False
    ) -> None:
        super().__init__({"server": "unused"})  # no key: what is not in here cannot be shown
        # the client replaces the word "server" anywhere in the URL by this; empty, it leaves the URL alone
        self.server = ""
        self.host = base_url
        self.default_headers: dict[str, str] = {"Content-Type": "application/json", "User-Agent": user_agent}
        self._transport = _Transport()
        self._keeps_connection = keeps_connection
        self._session = _session(base_url, api_key, self._transport)

    def __repr__(self) -> str:
        """Name the place only."""
        return f"<Mailchimp client for {self.host}>"

    def attempt(self, limit_s: float) -> _Attempt:
        """Begin the next request, which is over in `limit_s` seconds."""
        self._transport.begin(_Attempt(limit_s))
        return self._transport.attempt

    def request(
        self,
        method: str,
        url: str,
        query_params: Any = None,
        headers: Any = None,
        body: Any = None,
    ) -> requests.Response:
        """Make the request once, over a connection of its own, and keep what comes back.

        On one that is kept, and that the server drops meanwhile, a send could only end unclear; and what an odd
        answer left behind on it would be read as the next. Thousands of reads in a row do keep theirs as long as all
        goes well: they are repeated, and with TLS each new one takes as long as an answer.
        """
        attempt = self._transport.attempt
        try:
            attempt.response = self._session.request(
                method,
                url,
                params=query_params,
                headers=headers,
                data=None if method == "GET" else json.dumps(body),
                timeout=(min(CONNECT_TIMEOUT_S, attempt.limit_s), attempt.limit_s),
                allow_redirects=False,
            )
        finally:
            is_well = attempt.response is not None and attempt.response.status_code == OK
            if not self._keeps_connection or not is_well:
                self._session.close()
                self._transport.kept = None
        return attempt.response


class _Session(requests.Session):
    """A session for which no answer is a redirect."""

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Find none: requests looks into the Location even when told not to follow it, and may fail there."""


def _session(base_url: str, api_key: str, transport: _Transport) -> _Session:
    """Open a session that takes proxy and CA bundle from the environment, for https alone, and no .netrc."""
    session = _Session()
    session.trust_env = False
    session.auth = _auth(api_key)
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))
    if base_url.startswith("https:"):
        with requests.Session() as ambient:
            found = ambient.merge_environment_settings(base_url, {}, None, None, None)
        session.verify = _usable_bundle(found["verify"])
        if proxy := select_proxy(base_url, found["proxies"]):
            session.proxies = {"https": _usable_proxy(proxy)}
    session.mount("https://", transport)
    session.mount("http://", transport)
    return session


def _auth(api_key: str) -> Callable[[requests.PreparedRequest], requests.PreparedRequest]:
    """Make basic authentication whose key no `vars()` shows."""

    def sign(request: requests.PreparedRequest) -> requests.PreparedRequest:
        signed: requests.PreparedRequest = HTTPBasicAuth("user", api_key)(request)
        return signed

    return sign


def _usable_bundle(verify: bool | str | None) -> bool | str | None:  # noqa: FBT001 - as requests has it
    if isinstance(verify, str) and not Path(verify).is_dir():
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(verify)
        except OSError as fault:
            raise SettingsWrong(
                f"Nothing was sent: {verify}, which REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE (environment) "
                f"names, cannot be used as a CA bundle ({fault.strerror or type(fault).__name__})."
            ) from fault
    return verify


def _usable_proxy(proxy: str) -> str:
    try:
        url = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        is_usable = (
            url.scheme in {"http", "https"} and bool(url.hostname) and (url.port is None or url.port > 0)
        )
    except ValueError:
        is_usable = False
    if not is_usable:  # not shown: it may hold a password
        raise SettingsWrong(
            "Nothing was sent: the proxy that HTTPS_PROXY or ALL_PROXY (environment) names cannot be used; "
            "wanted: http://HOST:PORT, or nothing."
        )
    return proxy


class _Transport(HTTPAdapter):
    """Connections that tell the attempt in progress of their sockets, and never try twice."""

    attempt: _Attempt

    def __init__(self) -> None:
        self.kept: socket.socket | None = None
        super().__init__(max_retries=0)

    def begin(self, attempt: _Attempt) -> None:
        """Begin the next attempt; a connection that is kept is cut with it, too."""
        self.attempt = attempt
        if self.kept is not None and self.kept.fileno() >= 0:
            attempt.watch(self.kept)
            attempt.is_connected = True

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = self._pools()

    def proxy_manager_for(self, proxy: Any, **kwargs: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **kwargs)
        manager.pool_classes_by_scheme = self._pools()
        return manager

    def _pools(self) -> dict[str, type[HTTPConnectionPool]]:
        transport = self

        class Plain(HTTPConnection):
            def _new_conn(self) -> socket.socket:
                sock = super()._new_conn()
                transport.attempt.watch(sock)
                return sock

            def connect(self) -> None:
                super().connect()
                transport.kept = self.sock
                transport.attempt.is_connected = not transport.attempt.is_over

        class Secure(Plain, HTTPSConnection):
            pass

        class PlainPool(HTTPConnectionPool):
            ConnectionCls = Plain

        class SecurePool(HTTPSConnectionPool):
            ConnectionCls = Secure

        return {"http": PlainPool, "https": SecurePool}


def _hiding(api_key: str) -> Callable[[bytes], bytes]:
    """Make a filter for what comes back: an error page of a gateway may repeat the request, key and all."""
    header = base64.b64encode(f"user:{api_key}".encode()).rstrip(b"=")
    secret = api_key.rpartition("-")[0].encode()

    def hide(text: bytes) -> bytes:
        return text.replace(header, b"...").replace(secret, b"...") if secret else text

    return hide


def _reply(response: requests.Response, hide: Callable[[bytes], bytes]) -> Reply:
    body, headers = hide(response.content), response.headers
    # nobody reads the body of a 204, so that one is empty only if it announces none either
    announces_body = "Transfer-Encoding" in headers or headers.get("Content-Length", "0").strip() != "0"
    is_odd = response.status_code == NO_CONTENT and announces_body
    return Reply(
        status=response.status_code,
        json=_json(body),
        is_empty=not body and not is_odd,
        content_type=hide(headers.get("Content-Type", "").encode()).decode().split(";")[0].strip(),
        headers=headers,
    )


def _json(body: bytes) -> Any:
    def no_constant(name: str) -> None:
        raise ValueError(name)

    try:
        return json.loads(body.decode("utf-8-sig"), parse_constant=no_constant)
    except (ValueError, RecursionError):
        return None


_NO_CONNECTION: tuple[tuple[type[BaseException], str], ...] = (
    (ssl.SSLCertVerificationError, "the server's TLS certificate is not valid"),
    (requests.exceptions.ProxyError, "the proxy could not be used"),
    (requests.exceptions.Timeout, "no connection within the time allowed"),
    (NameResolutionError, "the host name could not be resolved"),
    (NewConnectionError, "the connection was refused or the network is unreachable"),
    (ssl.SSLError, "no secure connection could be made"),
)


def _no_reply(fault: Exception, attempt: _Attempt) -> NeverLeft | Lost:
    """Tell whether the request can have arrived: not before there was a connection. Else it is Lost."""
    if attempt.is_connected:
        if attempt.is_over or isinstance(fault, requests.exceptions.Timeout):
            return Lost(f"no answer within {attempt.limit_s:.3g} s")
        return Lost(f"the connection broke before the answer was complete ({type(fault).__name__})")
    if not isinstance(fault, requests.RequestException) or isinstance(fault, ValueError):
        raise InvariantBroken(f"a request to Mailchimp could not be built: {type(fault).__name__}") from fault
    if attempt.is_over:
        return NeverLeft("no connection within the time allowed")
    chain = _chain(fault)
    for kind, said in _NO_CONNECTION:
        if any(isinstance(one, kind) for one in chain):
            # what a proxy said to CONNECT, as "407 Proxy Authentication Required", is worth knowing
            reason = next(
                (f" ({one})" for one in chain if str(one).startswith("Tunnel connection failed")), ""
            )
            return NeverLeft(f"{said}{reason}", is_certificate=kind is ssl.SSLCertVerificationError)
    return NeverLeft(f"no connection could be made ({type(fault).__name__})")


def _chain(fault: BaseException) -> list[BaseException]:
    """List what is behind an exception: requests and urllib3 wrap them as causes, reasons and arguments."""
    chain: list[BaseException] = []
    todo: list[object] = [fault]
    while todo:
        one = todo.pop()
        if isinstance(one, BaseException) and one not in chain:
            chain.append(one)
            todo += [one.__cause__, one.__context__, getattr(one, "reason", None), *one.args]
    return chain


def _problem_text(problem: Mapping[str, object]) -> str:
    """Title, detail, the fields at fault, and what Mailchimp's support asks for."""
    parts = [str(problem[k]) for k in ("title", "detail") if isinstance(problem.get(k), str) and problem[k]]
    errors = problem.get("errors")
    parts += [
        f"{error.get('field', '')}: {error.get('message', '')}".strip(": ")
        for error in (errors if isinstance(errors, list) else ())
        if isinstance(error, dict)
    ]
    text = ". ".join(part.rstrip(".") for part in parts if part)
    if len(text) > SAID_AT_MOST:
        text = text[:SAID_AT_MOST] + "…"
    instance = problem.get("instance")
    return f"{text}." + (f" (instance {instance})" if isinstance(instance, str) and instance else "")
