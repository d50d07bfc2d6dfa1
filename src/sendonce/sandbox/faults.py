"""The words for what can go wrong on the wire, and the rules that say when.

A canned answer in place of the real one, and nothing takes effect:

    NNN, NNNjson   that status with a problem document (2xx and 3xx: with a JSON object)
    NNNhtml        an HTML page
    NNNempty       JSON by its Content-Type, but no body
    NNNbare        neither a body nor a Content-Type
    NNNnoct        an HTML page without a Content-Type
    NNNemptyjson   {}
    NNNbadjson     JSON that breaks off
    400notready    "Your Campaign is not ready to send."
    400recipients  the same with "recipients not ready"
    400sending     the refusal of a campaign that is not a draft
    429:N          429 with Retry-After: N (so after every NNN…)
    accept-NNN…    any of these, but the request takes effect

A 3xx leads to an HTML page on this server; a 204 has no body. The real answer, but not as it should come:

    slow:N         everything as usual, N seconds later
    accept-slow:N  the request takes effect at once, the answer comes N seconds later
    drip:N         the answer comes byte by byte, N seconds apart
    nodate         the answer has no Date header
    cutjson        the answer ends in the middle of its body
    garbage        the answer is not HTTP
    shift:N        a page begins N rows too early, as where rows were put in before it: some come twice
    fewer:N        the page says that there are N fewer in all

No answer:

    reset-before   the connection is reset, no effect      reset-after, accept-reset   … after the effect
    close-before   the connection is closed, no effect     close-after                 … after the effect
    stall-before   nothing comes, no effect                stall-after, accept-hang    … after the effect
    late:N                                                 … N s after the request, client or no client

For `connect` there are `refuse` (a reset at once), `slow:N`, `reset-before`, `close-before`, `stall-before`.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from enum import Enum, auto
from http import HTTPStatus
from typing import TYPE_CHECKING

from sendonce.sandbox.account import RECIPIENTS_NOT_READY
from sendonce.sandbox.messages import HTML, JSON, Reply
from sendonce.sandbox.problems import Problem, key_invalid, not_a_draft, not_found, not_ready
from sendonce.sandbox.routes import ROUTES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

PORTAL = "/portal"
PAGE = b"<!DOCTYPE html><html><head><title>Sandbox</title></head><body><h1>Not the API</h1></body></html>\n"
ALIASES = {"post": "send", "get": "read"}
_ON = frozenset({"read", "any", "connect"}) | {route.name for route in ROUTES}
_CANNED = re.compile(r"([2-5]\d\d)(json|html|empty|bare|noct|emptyjson|badjson)?(?::(\d+))?")
_PAGED = re.compile(r"(shift|fewer):(\d{1,9})")
_TIMED = re.compile(r"(accept-slow|slow|drip|late):(\d+(?:\.\d+)?)")


class Ending(Enum):
    """What becomes of the connection."""

    ANSWER = auto()
    DRIP = auto()
    NO_DATE = auto()
    CUT = auto()
    GARBAGE = auto()
    RESET = auto()
    CLOSE = auto()
    STALL = auto()


@dataclass(frozen=True)
class Fault:
    """What a word means: wait, let the request take effect or not, wait again, answer in some way."""

    word: str
    has_effect: bool = True
    wait_before_s: float = 0.0
    wait_after_s: float = 0.0
    effect_after_s: float | None = None
    reply: Reply | None = None
    ending: Ending = Ending.ANSWER
    drip_s: float = 0.0
    shift_rows: int = 0
    fewer_rows: int = 0


_PLAIN = {
    "nodate": Fault("nodate", ending=Ending.NO_DATE),
    "cutjson": Fault("cutjson", ending=Ending.CUT),
    "garbage": Fault("garbage", ending=Ending.GARBAGE),
    "accept-reset": Fault("accept-reset", ending=Ending.RESET),
    "accept-hang": Fault("accept-hang", ending=Ending.STALL),
    "reset-after": Fault("reset-after", ending=Ending.RESET),
    "close-after": Fault("close-after", ending=Ending.CLOSE),
    "stall-after": Fault("stall-after", ending=Ending.STALL),
    "reset-before": Fault("reset-before", has_effect=False, ending=Ending.RESET),
    "close-before": Fault("close-before", has_effect=False, ending=Ending.CLOSE),
    "stall-before": Fault("stall-before", has_effect=False, ending=Ending.STALL),
    "refuse": Fault("refuse", has_effect=False, ending=Ending.RESET),
}
_FORMS: Mapping[str | None, tuple[bytes, str | None]] = {
    "html": (PAGE, HTML),
    "noct": (PAGE, None),
    "bare": (b"", None),
    "empty": (b"", JSON),
    "emptyjson": (b"{}", JSON),
    "badjson": (b'{"type": "https://mailchimp.com/', JSON),
}
_REFUSALS = {
    "400notready": not_ready(),
    "400recipients": not_ready((RECIPIENTS_NOT_READY,)),
    "400sending": not_a_draft(),
}
_TITLES = {
    400: "Bad Request",
    403: "Forbidden",
    405: "Method Not Allowed",
    408: "Request Timeout",
    429: "Too Many Requests",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


def fault(word: str) -> Fault:
    """Look up what a word means. Raise ValueError if it means nothing."""
    if word in _PLAIN:
        return _PLAIN[word]
    if timed := _TIMED.fullmatch(word):
        return _timed(word, timed[1], float(timed[2]))
    if paged := _PAGED.fullmatch(word):
        rows = int(paged[2])
        return Fault(word, shift_rows=rows) if paged[1] == "shift" else Fault(word, fewer_rows=rows)
    canned = word.removeprefix("accept-")
    if canned in _REFUSALS:
        reply = _REFUSALS[canned].reply()
    elif found := _CANNED.fullmatch(canned):
        reply = _canned(int(found[1]), found[2], found[3])
    else:
        raise ValueError(f"unknown fault {word!r}; the words are listed in sendonce/sandbox/faults.py")
    return Fault(word, has_effect=word != canned, reply=reply)


def _timed(word: str, kind: str, seconds: float) -> Fault:
    match kind:
        case "slow":
            return Fault(word, wait_before_s=seconds)
        case "accept-slow":
            return Fault(word, wait_after_s=seconds)
        case "drip":
            return Fault(word, ending=Ending.DRIP, drip_s=seconds)
        case _:
            return Fault(word, has_effect=False, effect_after_s=seconds, ending=Ending.STALL)


def _canned(status: int, form: str | None, retry_after: str | None) -> Reply:
    headers: tuple[tuple[str, str], ...] = (("Retry-After", retry_after),) if retry_after else ()
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        headers += (("Location", PORTAL),)
    if form in _FORMS:
        body, content_type = _FORMS[form]
        return Reply(status, body, content_type, headers)
    if status == HTTPStatus.NO_CONTENT:
        return Reply(status)
    if status < HTTPStatus.BAD_REQUEST:
        return Reply(status, b'{"status": "ok"}', JSON, headers)
    return _problem(status).reply(*headers)


def _problem(status: int) -> Problem:
    match status:
        case 401:
            return key_invalid()
        case 404:
            return not_found()
        case _:
            return Problem(status, _TITLES.get(status, "Error"), "The sandbox was told to answer so.")


@dataclass
class Rule:
    """When a fault happens: at the requests `on` names, narrowed by `nth`, `times` and `after`."""

    on: str
    fault: Fault
    nth: int | None = None
    times: int | None = None
    is_after_send: bool = False
    seen: int = 0
    hit: int = 0
    saw_send: bool = False

    def strikes(self, names: Collection[str]) -> bool:
        """Whether the rule applies to a request of these names; counts it."""
        if self.on not in names or (self.is_after_send and not self.saw_send):
            return False
        self.seen += 1
        if self.nth is not None and self.seen != self.nth:
            return False
        return self.times is None or self.hit < self.times

    def told(self) -> dict[str, object]:
        """Put the rule as it was ordered, with how often it struck, as JSON."""
        document: dict[str, object] = {
            "on": self.on,
            "word": self.fault.word,
            "seen": self.seen,
            "hit": self.hit,
        }
        if self.nth is not None:
            document["nth"] = self.nth
        if self.times is not None:
            document["times"] = self.times
        if self.is_after_send:
            document["after"] = "send"
        return document


def rule(told: Mapping[str, object]) -> Rule:
    """Read a rule from its JSON form. Raise ValueError if it cannot be meant."""
    unknown = set(told) - {"on", "word", "nth", "times", "after"}
    if unknown:
        raise ValueError(f"a rule has no {', '.join(sorted(unknown))}")
    on = ALIASES.get(str(told.get("on")), str(told.get("on")))
    if on not in _ON:
        raise ValueError(f"a rule cannot be on {on!r}; known: {', '.join(sorted(_ON | set(ALIASES)))}")
    meant = fault(str(told.get("word")))
    if (
        on == "connect"
        and (meant.has_effect or meant.reply or meant.effect_after_s)
        and not meant.wait_before_s
    ):
        raise ValueError(f"{meant.word} is no fault of a connection")
    after = told.get("after")
    if after not in {None, "send"}:
        raise ValueError(f"a rule can be after 'send', not after {after!r}")
    return Rule(on, meant, _count(told, "nth"), _count(told, "times"), after == "send")


def _count(told: Mapping[str, object], name: str) -> int | None:
    value = told.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number from 1, not {value!r}")
    return value


class Rules:
    """The rules in force. The first that strikes wins; all of them count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: list[Rule] = []

    def replace(self, rules: Iterable[Rule]) -> None:
        """Put other rules in force. What an earlier one has begun goes on."""
        with self._lock:
            self._rules = list(rules)

    def pick(self, names: Collection[str]) -> Fault | None:
        """Tell the fault that a request of these names meets, if any."""
        with self._lock:
            struck = [rule for rule in self._rules if rule.strikes(names)]
            for rule in self._rules:
                rule.saw_send |= "send" in names
            if not struck:
                return None
            struck[0].hit += 1
            return struck[0].fault

    def are_about(self, name: str) -> bool:
        """Whether any rule is on this name."""
        with self._lock:
            return any(rule.on == name for rule in self._rules)

    def told(self) -> list[dict[str, object]]:
        """Put all rules as JSON."""
        with self._lock:
            return [rule.told() for rule in self._rules]
