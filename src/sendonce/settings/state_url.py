"""SENDONCE_STATE as a URL: which server keeps lease and ledger, and what of the URL may be shown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sendonce.settings.masking import Secret

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMES: Final[Mapping[str, str]] = {
    "redis": "redis",
    "rediss": "redis",
    "unix": "redis",
    "postgresql+psycopg": "postgres",
    "mysql+pymysql": "mysql",
    "sqlite": "sql",
}
"""The extra of `pip install 'sendonce[…]'` that each scheme needs."""
_MEANT: Final[Mapping[str, str]] = {
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
    "mariadb+pymysql": "mysql+pymysql",
    "sqlite3": "sqlite",
}

_HIGHEST_PORT: Final = 65535


@dataclass(frozen=True)
class StateUrl:
    """Where lease and ledger are kept. `place` names it for people: no password, nothing of a query."""

    scheme: str
    url: Secret
    place: str

    @property
    def extra(self) -> str:
        """The extra that must be installed for it."""
        return SCHEMES[self.scheme]


def read_url(text: str) -> StateUrl | str:
    """The URL, or what is wrong with it as the rest of a sentence, which shows no more of it than its scheme."""
    scheme = text.partition("://")[0]
    if not re.fullmatch("[a-z][a-z0-9+.-]{0,29}", scheme):
        return "is no URL; wanted: redis://HOST:PORT/NUMBER or postgresql+psycopg://USER@HOST/DATABASE, say"
    if scheme in _MEANT:
        return f"begins with {scheme}://; write {_MEANT[scheme]}://, which names the driver"
    if scheme not in SCHEMES:
        return (
            f"begins with {scheme}://, which is not known; known are {', '.join(f'{s}://' for s in SCHEMES)}"
        )
    if not text.isprintable() or " " in text:
        return f"({scheme}://…) has a space, or a character that nobody can see, in it; write it as %20 and so on"
    rest = text.partition("://")[2]
    if scheme in {"sqlite", "unix"}:
        return _local(scheme, text, rest)
    host = re.fullmatch(
        r"(?:[^/?#]*@)?([^@:/?#[\]]*|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[^@?#]*)?(?:\?([^@#]*))?", rest
    )
    # whatever does not fit may be part of a password, so nothing of it is shown
    if host is None or not 0 < int((host[2] or ":1")[1:]) <= _HIGHEST_PORT:
        return (
            f"({scheme}://…) does not have the form {scheme}://USER:PASSWORD@HOST:PORT/NAME; "
            "in user and password write @ as %40, / as %2F, : as %3A, ? as %3F, # as %23 and % as %25"
        )
    # a socket on this machine is named in the query instead
    if not (host[1] or re.search("(^|&)(host|unix_socket)=.", host[4] or "")):
        return f"({scheme}://…) names no host; wanted: {scheme}://USER:PASSWORD@HOST:PORT/NAME"
    name = (host[3] or "").strip("/")
    if SCHEMES[scheme] == "redis" and not re.fullmatch("[0-9]*", name):
        return f"({scheme}://…) names a database that is no number; wanted: {scheme}://HOST:PORT/NUMBER"
    if SCHEMES[scheme] != "redis" and not name:
        return f"({scheme}://…) names no database; wanted: {scheme}://USER:PASSWORD@HOST/DATABASE"
    return StateUrl(scheme, Secret(text), f"{scheme}://{host[1]}{host[2] or ''}{host[3] or ''}")


def _local(scheme: str, text: str, rest: str) -> StateUrl | str:
    path = rest.partition("?")[0].rpartition("@")[2]
    start = "//" if scheme == "sqlite" else "/"
    if not path.startswith(start) or not path.strip("/"):
        return f"({scheme}://…) must name an absolute path; wanted: {scheme}://{start}PATH"
    return StateUrl(scheme, Secret(text), f"{scheme}://{path}")
