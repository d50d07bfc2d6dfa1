"""One request through the official client, made safe: what came back, or why nothing did.

The client (mailchimp-marketing 3.0.80) returns errors without a body as if they were answers, follows redirects
with a POST turned into a GET, loses headers and wraps every exception. So its result is never looked at: the
subclass below keeps the response itself, and `Wire.exchange` reads that.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import requests
from mailchimp_marketing.api_client import ApiClient, ApiClientError
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import (
    ConnectTimeoutError,
    MaxRetryError,
    NameResolutionError,
    NewConnectionError,
)

from sendonce.core.errors import InvariantBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CONNECT_TIMEOUT_S = 10
SAID_AT_MOST = 300


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
        is_one = isinstance(self.json, dict) and any(isinstance(self.json.get(k), str) for k in ("title", "detail"))
        return self.json if is_one else None

    @property
    def said(self) -> str:
        """The answer in words for people."""
        if (problem := self.problem) is not None and self.status >= 400:  # noqa: PLR2004 - HTTP's error range
            return f"HTTP {self.status}: {_problem_text(problem)}"
        body = "an empty body" if self.is_empty else f"content type {self.content_type or 'not given'}"
        return f"HTTP {self.status} with {body}, which is not an answer of the Mailchimp API"


@dataclass(frozen=True)
class NeverLeft:
    """No connection was made, so the request cannot have arrived. `is_certificate`: nor will it by waiting."""

    said: str
    is_certificate: bool = False


@dataclass(frozen=True)
class Lost:
    """The request may have arrived; no whole answer came back."""

    said: str


class Wire:
    """Requests to one base URL with one key, over one kept-alive session."""

    def __init__(self, base_url: str, api_key: str, *, timeout_s: float, user_agent: str) -> None:
        self._timeout_s = timeout_s
        self.client = _SafeClient(base_url, api_key, user_agent)

    def exchange(self, call: Callable[[], object], *, within_s: float | None = None) -> Reply | NeverLeft | Lost:
        """Have the client make one request, over in `within_s` seconds at most (default: the wire's timeout).

        Raise InvariantBroken if the request could not even be built.
        """
        limit_s = self._timeout_s if within_s is None else max(0.1, min(within_s, self._timeout_s))
        client = self.client
        client.begin(limit_s)
        try:
            call()
        except ApiClientError as fault:
            if isinstance(fault.text, Exception):
                return _no_reply(fault.text, limit_s)
        return _reply(client.response())


class _SafeClient(ApiClient):  # type: ignore[misc] # the client has no types
    """The official client with a transport of our own."""

    def __init__(self, base_url: str, api_key: str, user_agent: str) -> None:
        super().__init__({"api_key": api_key, "server": "unused"})
        # the client replaces the word "server" anywhere in the URL by this; empty, it leaves the URL alone
        self.server = ""
        self.host = base_url
        self.default_headers: dict[str, str] = {"Content-Type": "application/json", "User-Agent": user_agent}
        self._response: requests.Response | None = None
        self._limit_s: float = 1
        self._transport = _Transport()
        self._session = _session(base_url, self._transport)

    def __repr__(self) -> str:
        """Without the key."""
        return f"<Mailchimp client for {self.host}>"

    def begin(self, limit_s: float) -> None:
        """Forget the last response; the next request is over in `limit_s` seconds."""
        self._response, self._limit_s = None, limit_s

    def response(self) -> requests.Response:
        """What came back since `begin`."""
        if self._response is None:
            raise InvariantBroken("the Mailchimp client returned without a response")
        return self._response

    def request(
        self,
        method: str,
        url: str,
        query_params: Any = None,
        headers: Any = None,
        body: Any = None,
    ) -> requests.Response:
        """Make the request, in the seconds allowed or not at all."""
        with self._transport.cut_after(self._limit_s):
            self._response = self._session.request(
                method,
                url,
                params=query_params,
                headers=headers,
                data=None if method == "GET" else json.dumps(body),
                auth=("user", self.api_key),
                # per read of the socket; the whole is limited by the cut
                timeout=(min(CONNECT_TIMEOUT_S, self._limit_s), self._limit_s),
                allow_redirects=False,
            )
        return self._response


def _session(base_url: str, transport: _Transport) -> requests.Session:
    """A session that takes proxy and CA bundle from the environment, and neither .netrc nor redirects."""
    with requests.Session() as ambient:
        found = ambient.merge_environment_settings(base_url, {}, None, None, None)
    session = requests.Session()
    session.trust_env = False
    session.max_redirects = 0
    session.verify = found["verify"]
    if base_url.startswith("https:"):
        session.proxies = {k: v for k, v in found["proxies"].items() if k.startswith("https")}
    session.mount("https://", transport)
    session.mount("http://", transport)
    return session


class _Transport(HTTPAdapter):
    """Knows its open sockets, so that a request can be cut off as a whole.

    `timeout=` of requests is per read: an answer that drips byte by byte would never end.
    """

    def __init__(self) -> None:
        self._open: set[HTTPConnection] = set()
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = self._pools()

    def proxy_manager_for(self, proxy: Any, **kwargs: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **kwargs)
        manager.pool_classes_by_scheme = self._pools()
        return manager

    def cut_after(self, limit_s: float) -> _Cut:
        return _Cut(self, limit_s)

    def cut(self) -> None:
        for connection in tuple(self._open):
            sock = connection.sock
            if sock is not None:
                try:
                    # wakes up the thread that reads from it; the request then ends as a lost one
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)
                except OSError:
                    continue  # closed meanwhile

    def _pools(self) -> dict[str, type[HTTPConnectionPool]]:
        opened = self._open

        class Plain(HTTPConnection):
            def connect(self) -> None:
                super().connect()
                opened.add(self)

            def close(self) -> None:
                opened.discard(self)
                super().close()

        class Secure(HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                opened.add(self)

            def close(self) -> None:
                opened.discard(self)
                super().close()

        class PlainPool(HTTPConnectionPool):
            ConnectionCls = Plain

        class SecurePool(HTTPSConnectionPool):
            ConnectionCls = Secure

        return {"http": PlainPool, "https": SecurePool}


class _Cut:
    """While it is entered, a timer stands ready to cut the transport's sockets."""

    def __init__(self, transport: _Transport, limit_s: float) -> None:
        self._timer = threading.Timer(limit_s, transport.cut)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()


def _reply(response: requests.Response) -> Reply:
    body = response.content
    return Reply(
        status=response.status_code,
        json=_json(body),
        is_empty=not body,
        content_type=response.headers.get("Content-Type", "").split(";")[0].strip(),
        headers=response.headers,
    )


def _json(body: bytes) -> Any:
    def no_constant(name: str) -> None:
        raise ValueError(name)

    try:
        return json.loads(body.decode("utf-8-sig"), parse_constant=no_constant)
    except (ValueError, RecursionError):
        return None


def _no_reply(fault: Exception, limit_s: float) -> NeverLeft | Lost:
    """Whether the request can have arrived (client-traps B5). What is not certain is Lost."""
    if not isinstance(fault, requests.RequestException) or isinstance(fault, ValueError):
        raise InvariantBroken(f"a request to Mailchimp could not be built: {type(fault).__name__}") from fault
    if _in_chain(fault, ssl.SSLCertVerificationError):
        return NeverLeft("the server's TLS certificate is not valid", is_certificate=True)
    if isinstance(fault, requests.exceptions.ProxyError):
        return NeverLeft("the proxy could not be used")
    if isinstance(fault, requests.exceptions.ConnectTimeout):
        return NeverLeft("no connection within the time allowed")
    if isinstance(fault, requests.exceptions.ConnectionError) and fault.args:
        cause = fault.args[0]
        reason = cause.reason if isinstance(cause, MaxRetryError) else None
        if isinstance(reason, NameResolutionError):
            return NeverLeft("the host name could not be resolved")
        if isinstance(reason, ConnectTimeoutError):
            return NeverLeft("no connection within the time allowed")
        if isinstance(reason, NewConnectionError):
            return NeverLeft("the connection was refused or the network is unreachable")
    if isinstance(fault, requests.exceptions.ReadTimeout):
        return Lost(f"no answer within {limit_s:g} s")
    return Lost(f"the connection broke before the answer was complete ({type(fault).__name__})")


def _in_chain(fault: BaseException | None, kind: type[BaseException]) -> bool:
    seen: set[int] = set()
    todo: list[object] = [fault]
    while todo:
        one = todo.pop()
        if not isinstance(one, BaseException) or id(one) in seen:
            continue
        if isinstance(one, kind):
            return True
        seen.add(id(one))
        todo += [one.__cause__, one.__context__, getattr(one, "reason", None), *one.args]
    return False


def _problem_text(problem: Mapping[str, object]) -> str:
    """Title, detail, the fields at fault, and what Mailchimp's support asks for."""
    parts = [str(problem[k]) for k in ("title", "detail") if isinstance(problem.get(k), str) and problem[k]]
    errors = problem.get("errors")
    for error in errors if isinstance(errors, list) else ():
        if isinstance(error, dict):
            parts.append(f"{error.get('field', '')}: {error.get('message', '')}".strip(": "))
    text = ". ".join(part.rstrip(".") for part in parts if part)
    if len(text) > SAID_AT_MOST:
        text = text[:SAID_AT_MOST] + "…"
    instance = problem.get("instance")
    return f"{text}." + (f" (instance {instance})" if isinstance(instance, str) and instance else "")
