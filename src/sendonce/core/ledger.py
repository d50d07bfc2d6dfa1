"""The ledger as text and as records: what a damaged one looks like, and which changes of a batch are legal.

A `Ledger` keeps the document as it was read, so that fields nobody here knows survive a rewrite, and turns
a batch into a record only when asked for it: ten years of batches are read on every call from cron.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, cast

from sendonce.core.errors import InvariantBroken, LedgerDamaged, StateUnusable
from sendonce.core.model import Attempt, Batch, Entry, Pause, Reset, State, repair_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

VERSION: Final = 1
ATTEMPTS_KEPT: Final = 20

_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_STAMP: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_CONFLICT: Final = re.compile(r"^(?:<{7}|={7}|>{7}|\|{7})(?: |$)", re.MULTILINE)
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|-?\d[\d.eE+-]*|-?Infinity|NaN', re.ASCII)
_STATES: Final = frozenset(State)

_OPEN: Final = frozenset({State.NONE, State.PLANNED, State.READY, State.REFUSED})
_AFTER: Final[Mapping[State, frozenset[State]]] = {
    State.NONE: _OPEN | {State.SENT, State.SKIPPED},
    State.PLANNED: _OPEN | {State.SENT, State.SKIPPED},
    State.REFUSED: _OPEN | {State.SENT, State.SKIPPED},
    State.READY: _OPEN | {State.SENT, State.SKIPPED, State.SENDING},
    State.SENDING: frozenset({State.SENDING, State.SENT, State.READY, State.REFUSED}),
    State.SENT: frozenset({State.SENT}),
    State.SKIPPED: frozenset({State.SKIPPED}),
}


class Ledger(NamedTuple):
    """A ledger that parsed. `document` is the JSON object itself and is never changed in place."""

    document: Mapping[str, Any]

    @property
    def job(self) -> str:
        """The job whose batches these are."""
        return cast("str", self.document["job"])

    @property
    def api(self) -> str:
        """The API host that this ledger is bound to."""
        return cast("str", self.document["api"])

    def batch(self, day: str) -> Batch:
        """Return the batch of `day` (YYYY-MM-DD), `State.NONE` if none. Raise LedgerDamaged if it is odd."""
        raw = self._batches.get(day)
        return Batch(day) if raw is None else _read_batch(day, raw)

    def batches(self) -> tuple[Batch, ...]:
        """Return all batches, oldest first. Raise LedgerDamaged if one is odd."""
        return tuple(_read_batch(day, raw) for day, raw in sorted(self._batches.items()))

    def open_before(self, day: str) -> tuple[Batch, ...]:
        """Return the batches before `day` that Mailchimp is yet to be asked about, oldest first.

        They are `sending`, or scheduled and not sent, or sent without a number of recipients.
        """
        earlier = sorted(
            known for known, raw in self._batches.items() if known < day and _is_open(known, raw)
        )
        return tuple(self.batch(known) for known in earlier)

    @property
    def pause(self) -> Pause | None:
        """The operator's order that nothing is sent, None without one. Raise LedgerDamaged if it is odd."""
        raw = self.document.get("pause")
        return None if raw is None else _read_pause(raw)

    def pauses(self) -> tuple[Pause, ...]:
        """Return all pauses there were, the one that stands last. Raise LedgerDamaged if one is odd."""
        past = tuple(_read_pause(raw) for raw in self.document.get("pauses") or ())
        return past if self.pause is None else (*past, self.pause)

    def with_pause(self, pause: Pause) -> Ledger:
        """Return a ledger with this pause; one that has ended is kept among those that there were.

        The one that stood before is kept, too, as ended by this.
        """
        known = self.document.get("pause")
        past = list(self.document.get("pauses") or ())
        if pause.ended_at is not None:
            return self._with(pause=None, pauses=[*past, _write_pause(pause, known or {})])
        if known is not None:
            over = _read_pause(known)._replace(ended_at=pause.at, ended_by=pause.by)
            past.append(_write_pause(over, known))
        return self._with(pause=_write_pause(pause, {}), pauses=past)

    def pause_row(self) -> str:
        """Return the pauses as a store with rows keeps them, "" for none. Raise LedgerDamaged as `dump`."""
        kept = {name: self.document[name] for name in ("pause", "pauses") if self.document.get(name)}
        return _row_text(kept) if kept else ""

    def resets(self) -> tuple[Reset, ...]:
        """Return all resets in the order in which they were made. Raise LedgerDamaged if one is odd."""
        return tuple(_read_reset(index, raw) for index, raw in enumerate(self._resets))

    def forgotten(self, day: str) -> tuple[Batch, ...]:
        """Return the records of `day` that resets put aside, in the order of the resets."""
        return tuple(
            _read_batch(day, raw["was"]) for raw in self._resets if raw["date"] == day and raw["was"]
        )

    def with_batch(self, batch: Batch) -> Ledger:
        """Return a ledger with `batch` in place of the one of its date.

        Raise InvariantBroken if the change is not legal.
        """
        check_transition(self.batch(batch.date), batch)
        known = self._batches.get(batch.date, {})
        return self._with(batches=self._batches | {batch.date: _write_batch(batch, known)})

    def with_reset(self, reset: Reset) -> Ledger:
        """Return a ledger that has forgotten the batch of `reset.date` and keeps it under `resets`.

        Kept is what the ledger holds, every field of it; `reset.was` is not looked at.
        """
        _check_day(reset.date)
        left = {day: raw for day, raw in self._batches.items() if day != reset.date}
        record = {
            "date": reset.date,
            "at": _write_time(reset.at),
            "by": reset.by,
            "reason": reset.reason,
            "was": self._batches.get(reset.date, {}),
        }
        return self._with(batches=left, resets=[*self._resets, record])

    def rebuilt(self, batches: Iterable[Batch]) -> Ledger:
        """Return a ledger that holds `batches`; of this one stay resets, unknown fields and skipped dates.

        That a date is not to be mailed is known to nobody but the ledger. Raise InvariantBroken for a batch
        that could not have come about, or two of one date.
        """
        made: dict[str, dict[str, Any]] = {}
        for batch in batches:
            _check_batch(batch)
            if batch.date in made:
                raise InvariantBroken(f"two batches for {batch.date} in a rebuilt ledger")
            made[batch.date] = _write_batch(batch, {})
        skipped = {day: raw for day, raw in self._batches.items() if raw["state"] == State.SKIPPED}
        return self._with(batches=skipped | made)

    def dump(self) -> bytes:
        """Return the ledger as UTF-8 text of the present version, dates sorted.

        Raise LedgerDamaged if it is nested so deeply that it cannot be written.
        """
        document = {
            **self.document,
            "version": VERSION,
            "batches": dict(sorted(self._batches.items())),
        }
        try:
            text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
        except RecursionError:
            raise LedgerDamaged("it is nested too deeply") from None
        # Half a surrogate pair in a title is the only thing that UTF-8 cannot hold, and a backslash escape
        # of it is JSON, too.
        return text.encode("utf-8", "backslashreplace") + b"\n"

    def row(self, day: str) -> Row:
        """Return the batch of `day` as a store with rows keeps it. Raise LedgerDamaged as `dump`."""
        raw = self._batches[day]
        return Row(raw["state"], is_open=_is_open(day, raw), text=_row_text(raw))

    def rows(self) -> dict[str, Row]:
        """Return all batches as rows, oldest first."""
        return {day: self.row(day) for day in sorted(self._batches)}

    def reset_rows(self) -> list[tuple[str, str]]:
        """Return all resets in the order in which they were made, each as its date and its text."""
        return [(raw["date"], _row_text(raw)) for raw in self._resets]

    @property
    def _batches(self) -> dict[str, dict[str, Any]]:
        return cast("dict[str, dict[str, Any]]", self.document["batches"])

    @property
    def _resets(self) -> list[dict[str, Any]]:
        return cast("list[dict[str, Any]]", self.document.get("resets", []))

    def _with(self, **parts: object) -> Ledger:
        return self._replace(document={**self.document, **parts})


class Row(NamedTuple):
    """A batch in a store with rows. `text` is its JSON, in ASCII; `is_open`: later runs ask Mailchimp about it."""

    state: str
    is_open: bool
    text: str


def _row_text(raw: Mapping[str, Any]) -> str:
    try:
        return json.dumps(raw, allow_nan=False)
    except RecursionError:
        raise LedgerDamaged("a record is nested too deeply") from None


def empty(job: str, api: str) -> Ledger:
    """Return the ledger of a job's first run. `api` is the API host, as the settings have it."""
    return Ledger({"version": VERSION, "job": job, "api": api, "batches": {}, "resets": []})


def parse(data: bytes) -> Ledger:
    """Read a ledger. The message of an error is the second half of a sentence; the store has the path.

    Raise LedgerDamaged, with line or byte and what is wrong there, unless all of it makes sense down to the
    state and the campaign ids of each batch. Raise StateUnusable if a newer sendonce wrote it.
    """
    text = _decode(data)
    try:
        document = _load(text)
    except json.JSONDecodeError as error:
        raise LedgerDamaged(_not_json(text, error)) from None
    except RecursionError:
        raise LedgerDamaged("line 1, byte 0 and on: it is nested too deeply") from None
    except _RepeatedKeyError as error:
        raise LedgerDamaged(f"{_place_of(text, _second_key(text))}: the key {error} stands twice") from None
    except ValueError:
        raise LedgerDamaged(f"{_place_of(text, _odd_number(text))}: not a number of JSON") from None
    _check_document(document)
    return Ledger(document)


def assemble(
    version: int,
    job: str,
    api: str,
    batches: Mapping[str, bytes],
    resets: Iterable[bytes],
    pause: bytes = b"",
) -> Ledger:
    """Return a ledger, or the part of one, from the rows of a store: batches by date, resets in their order.

    Raise LedgerDamaged with the row and what is wrong there; StateUnusable if a newer sendonce wrote it.
    """
    document = {
        "version": version,
        "job": job,
        "api": api,
        "batches": {day: _load_row(f"the row of {day}", data) for day, data in batches.items()},
        "resets": [_load_row("the row of a reset", data) for data in resets],
    }
    if pause:
        kept = _load_row("the pause", pause)
        if not isinstance(kept, dict):
            _wrong("the pause", f"an object is wanted, and it is {_kind(kept)}")
        document |= {name: kept[name] for name in ("pause", "pauses") if name in kept}
    _check_document(document)
    return Ledger(document)


def joined(parts: Iterable[Ledger]) -> Ledger:
    """Return one ledger of parts of one: all their batches, and their resets one after the other."""
    first, *others = parts
    batches, resets = dict(first._batches), list(first._resets)  # noqa: SLF001 - of the same class
    for part in others:
        batches |= part._batches  # noqa: SLF001 - as above
        resets += part._resets  # noqa: SLF001 - as above
    return first._with(batches=batches, resets=resets)  # noqa: SLF001 - as above


def _load_row(where: str, data: bytes) -> Any:
    try:
        return _load(_decode(data))
    except LedgerDamaged as error:
        raise LedgerDamaged(f"{where}: {error}") from None
    except RecursionError:
        raise LedgerDamaged(f"{where}: it is nested too deeply") from None
    except _RepeatedKeyError as error:
        raise LedgerDamaged(f"{where}: the key {error} stands twice") from None
    except ValueError as error:
        raise LedgerDamaged(f"{where}: not JSON ({error})") from None


class _RepeatedKeyError(ValueError):
    """A key stands twice in one object: which of the two counts would be a guess."""


def _load(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        raise _RepeatedKeyError(next(ascii(key) for key in keys if keys.count(key) > 1))
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _finite(digits: str) -> float:
    # 1e999 reads as infinity, which could not be written again.
    if (number := float(digits)) in {float("inf"), float("-inf")}:
        raise ValueError(digits)
    return number


def _decode(data: bytes) -> str:
    if not data:
        raise LedgerDamaged("line 1, byte 0: it is empty")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise LedgerDamaged("line 1, byte 0: it is UTF-16, as an editor saved it, not UTF-8")
    if data.startswith(b"\xef\xbb\xbf"):
        raise LedgerDamaged("line 1, byte 0: it begins with a byte order mark, as an editor saved it")
    if (nul := data.find(b"\0")) >= 0:
        raise LedgerDamaged(f"{_place(data[:nul])}: NUL bytes, as a power failure or a full disk leaves them")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise LedgerDamaged(f"{_place(data[: error.start])}: not UTF-8") from None


def _place(before: bytes) -> str:
    newlines = before.count(b"\n")
    return f"line {newlines + 1}, byte {len(before)}"


def _place_of(text: str, position: int) -> str:
    return _place(text[:position].encode())


def _not_json(text: str, error: json.JSONDecodeError) -> str:
    if mark := _CONFLICT.search(text):
        return f"{_place_of(text, mark.start())}: conflict marks of a merge"
    if not text[error.pos :].strip() or error.msg.startswith("Unterminated string"):
        return f"{_place_of(text, len(text))}: it ends in the middle"
    if error.msg == "Extra data":
        return f"{_place_of(text, error.pos)}: something follows after its end"
    return f"{_place_of(text, error.pos)}: not JSON ({error.msg})"


def _second_key(text: str) -> int:
    """Where the first repeated key is. The JSON reader found it and is not told where, so look again."""
    repeated = []
    seen: list[set[str] | None] = []
    before = ""
    for token in _TOKEN.finditer(text):
        word = token[0]
        keys = seen[-1] if seen else None
        if word in {"{", "["}:
            seen.append(set() if word == "{" else None)
        elif word in {"}", "]"}:
            seen.pop()
        elif keys is not None and before in {"{", ","}:
            key = json.loads(word)
            if key in keys:
                repeated.append(token.start())
            keys.add(key)
        before = word
    return repeated[0]


def _odd_number(text: str) -> int:
    """Where the first number is that the JSON reader refused, for the same reason as above."""
    return next(token.start() for token in _TOKEN.finditer(text) if not _is_readable(token[0]))


def _is_readable(word: str) -> bool:
    try:
        return word[0] not in "-0123456789IN" or _load(word) is not None
    except ValueError:
        return False


# ---- what a document must be ----


def _wrong(where: str, said: str) -> NoReturn:
    raise LedgerDamaged(f"{where}: {said}")


def _check_document(document: object) -> None:
    if not isinstance(document, dict):
        _wrong("line 1, byte 0", f"an object is wanted, and it is {_kind(document)}")
    version = document.get("version")
    if type(version) is not int or version < 0:
        _wrong("version", f"a number is wanted, and it is {_kind(version)}")
    if version > VERSION:
        raise StateUnusable(
            f"its version is {version}, and this sendonce knows {VERSION}: a newer sendonce wrote it"
        )
    for name in ("job", "api"):
        if not (isinstance(document.get(name), str) and document[name]):
            _wrong(name, f"a text is wanted, and it is {_kind(document.get(name))}")
    batches = document.get("batches")
    if not isinstance(batches, dict):
        _wrong("batches", f"an object is wanted, and it is {_kind(batches)}")
    for day, raw in batches.items():
        _check_raw_batch(day, raw)
    resets = document.get("resets", [])
    if not isinstance(resets, list):
        _wrong("resets", f"a list is wanted, and it is {_kind(resets)}")
    for index, raw in enumerate(resets):
        _check_raw_reset(f"resets[{index}]", raw)
    pause = document.get("pause")
    if pause is not None and not isinstance(pause, dict):
        _wrong("pause", f"an object is wanted, and it is {_kind(pause)}")
    past = document.get("pauses")
    if past is not None and not (isinstance(past, list) and all(isinstance(one, dict) for one in past)):
        _wrong("pauses", "a list of objects is wanted")


def _check_raw_batch(day: str, raw: object) -> None:
    if not _is_day(day):
        _wrong("batches", f"{day!a} is not a date")
    if not isinstance(raw, dict):
        _wrong(day, f"an object is wanted, and it is {_kind(raw)}")
    state = raw.get("state")
    if not isinstance(state, str) or state not in _STATES:
        _wrong(f"{day}.state", f"no state is called {state!a}")
    _campaigns(day, raw)


def _campaigns(where: str, raw: Mapping[str, Any]) -> list[dict[str, Any]]:
    entries = raw.get("campaigns", [])
    if not isinstance(entries, list):
        _wrong(f"{where}.campaigns", f"a list is wanted, and it is {_kind(entries)}")
    for entry in entries:
        if not isinstance(entry, dict):
            _wrong(f"{where}.campaigns", f"an object is wanted, and it is {_kind(entry)}")
        # what an operator ordered has an entry, with a state, before there is a campaign
        if not (isinstance(entry.get("id"), str) and (entry["id"] or entry.get("state"))):
            _wrong(f"{where}.campaigns", "a campaign without an id")
    return entries


def _check_raw_reset(where: str, raw: object) -> None:
    if not isinstance(raw, dict):
        _wrong(where, f"an object is wanted, and it is {_kind(raw)}")
    if not (isinstance(raw.get("date"), str) and _is_day(raw["date"])):
        _wrong(f"{where}.date", f"{raw.get('date')!a} is not a date")
    if not isinstance(raw.get("was"), dict):
        _wrong(f"{where}.was", f"an object is wanted, and it is {_kind(raw.get('was'))}")
    if raw["was"]:
        _check_raw_batch(raw["date"], raw["was"])


def _kind(value: object) -> str:
    match value:
        case None:
            return "missing or null"
        case bool():
            return "true or false"
        case int() | float():
            return f"the number {value}"
        case str():
            return "a text" if value else "an empty text"
        case list():
            return "a list"
        case _:
            return "an object"


def _is_day(text: str) -> bool:
    if not _DAY.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_open(day: str, raw: Mapping[str, Any]) -> bool:
    main = next((entry for entry in _campaigns(day, raw) if entry.get("role", "main") == "main"), {})
    match raw["state"]:
        case State.SENDING:
            # one that stopped half-way and was completed is closed
            return repair_of(_read_batch(day, raw)) is None
        case State.SENT:
            return main.get("emails_sent") is None
        case State.SKIPPED:
            return False  # a person's matter, whatever Mailchimp does
        case State.READY if main.get("quiet_since") is not None:
            return True  # nobody was told each time that it waited for its writers
        case _:
            return main.get("scheduled_for") is not None


# ---- from text to records ----


class _Fields:
    """The known fields of one object of the document; a field of another type is damage."""

    def __init__(self, where: str, raw: Mapping[str, Any]) -> None:
        self._where = where
        self._raw = raw

    def text(self, name: str, default: str = "") -> str:
        value = self._raw.get(name, default)
        if not isinstance(value, str):
            _wrong(f"{self._where}.{name}", f"a text is wanted, and it is {_kind(value)}")
        return value

    def state(self, name: str) -> State:
        value = self.text(name, State.NONE)
        if value not in _STATES:
            _wrong(f"{self._where}.{name}", f"no state is called {value!a}")
        return State(value)

    def count(self, name: str) -> int | None:
        value = self._raw.get(name)
        if value is not None and type(value) is not int:
            _wrong(f"{self._where}.{name}", f"a whole number is wanted, and it is {_kind(value)}")
        return value

    def time(self, name: str) -> datetime | None:
        value = self._raw.get(name)
        if value is None:
            return None
        if isinstance(value, str) and _STAMP.fullmatch(value):
            try:
                return datetime.fromisoformat(value)
            except ValueError:
                pass
        _wrong(f"{self._where}.{name}", f"{value!a} is not a time such as 2026-11-30T08:00:04Z")

    def needed_time(self, name: str) -> datetime:
        value = self.time(name)
        if value is None:
            _wrong(f"{self._where}.{name}", "a time is wanted, and it is missing or null")
        return value


def _read_batch(day: str, raw: Mapping[str, Any]) -> Batch:
    fields = _Fields(day, raw)
    entries = tuple(_read_entry(day, entry) for entry in _campaigns(day, raw))
    if said := _twice(entries):
        _wrong(f"{day}.campaigns", said)
    attempts = raw.get("attempts", [])
    if not (isinstance(attempts, list) and all(isinstance(attempt, dict) for attempt in attempts)):
        _wrong(f"{day}.attempts", "a list of objects is wanted")
    return Batch(
        date=day,
        state=State(raw["state"]),
        nonce=fields.text("nonce"),
        campaigns=entries,
        attempts=tuple(_read_attempt(day, attempt) for attempt in attempts),
        reason=fields.text("reason"),
    )


def _twice(entries: tuple[Entry, ...]) -> str:
    ids = [entry.id for entry in entries if entry.id]
    if len(set(ids)) != len(ids):
        return "one campaign stands there twice"
    leading = [entry.role for entry in entries if entry.role == "main" or entry.state is not State.NONE]
    twice = next((role for role in leading if leading.count(role) > 1), "")
    return f"two campaigns have the role {twice}" if twice else ""


def _read_entry(day: str, raw: Mapping[str, Any]) -> Entry:
    fields = _Fields(f"{day}.campaigns", raw)
    return Entry(
        id=fields.text("id"),
        title=fields.text("title"),
        role=fields.text("role", "main"),
        web_id=fields.count("web_id"),
        by=fields.text("by", "sendonce"),
        requested_at=fields.time("requested_at"),
        gave_up_at=fields.time("gave_up_at"),
        sent_at=fields.time("sent_at"),
        emails_sent=fields.count("emails_sent"),
        scheduled_for=fields.time("scheduled_for"),
        recipients=fields.count("recipients"),
        state=fields.state("state"),
        nonce=fields.text("nonce"),
        reason=fields.text("reason"),
        order=fields.text("order"),
        draft_hash=fields.text("draft_hash"),
        quiet_since=fields.time("quiet_since"),
    )


def _read_attempt(day: str, raw: Mapping[str, Any]) -> Attempt:
    fields = _Fields(f"{day}.attempts", raw)
    return Attempt(
        run=fields.text("run"),
        host=fields.text("host"),
        pid=fields.count("pid") or 0,
        started_at=fields.needed_time("started_at"),
        ended_at=fields.time("ended_at"),
        outcome=fields.text("outcome"),
        detail=fields.text("detail"),
    )


def _read_pause(raw: Mapping[str, Any]) -> Pause:
    fields = _Fields("pause", raw)
    until = fields.text("until")
    if until and not _is_day(until):
        _wrong("pause.until", f"{until!a} is not a date")
    ended = fields.time("ended_at"), fields.text("ended_by")
    return Pause(fields.text("reason"), fields.text("by"), fields.needed_time("at"), until, *ended)


def _read_reset(index: int, raw: Mapping[str, Any]) -> Reset:
    fields = _Fields(f"resets[{index}]", raw)
    return Reset(
        date=fields.text("date"),
        at=fields.needed_time("at"),
        by=fields.text("by"),
        reason=fields.text("reason"),
        was=raw["was"],
    )


# ---- from records to text ----


def _write_time(moment: datetime, *, up: bool = False) -> str:
    """`moment` in whole seconds of UTC.

    A time from which a wait is counted is rounded up, so that no wait is ever too short.
    """
    if moment.tzinfo is None:
        raise InvariantBroken(f"a time without a zone for the ledger: {moment.isoformat()}")
    whole = moment.astimezone(UTC).replace(microsecond=0)
    if up and moment.microsecond:
        whole += timedelta(seconds=1)
    return whole.strftime("%Y-%m-%dT%H:%M:%SZ").rjust(len("2026-11-30T08:00:04Z"), "0")


def _write_batch(batch: Batch, known: Mapping[str, Any]) -> dict[str, Any]:
    entries = {entry["id"]: entry for entry in reversed(_campaigns(batch.date, known))}
    attempts = {attempt["run"]: attempt for attempt in known.get("attempts", []) if "run" in attempt}
    made = {
        **known,
        "state": batch.state.value,
        "nonce": batch.nonce,
        "campaigns": [_write_entry(entry, entries.get(entry.id, {})) for entry in batch.campaigns],
        "attempts": [
            _write_attempt(attempt, attempts.get(attempt.run, {}))
            for attempt in batch.attempts[-ATTEMPTS_KEPT:]
        ],
    }
    return _with_or_without(made, reason=batch.reason or None)


def _write_pause(pause: Pause, known: Mapping[str, Any]) -> dict[str, Any]:
    made = {**known, "reason": pause.reason, "by": pause.by, "at": _write_time(pause.at)}
    ended_at = None if pause.ended_at is None else _write_time(pause.ended_at)
    return _with_or_without(
        made, until=pause.until or None, ended_at=ended_at, ended_by=pause.ended_by or None
    )


def _write_entry(entry: Entry, known: Mapping[str, Any]) -> dict[str, Any]:
    made = {
        **known,
        "role": entry.role,
        "id": entry.id,
        "web_id": entry.web_id,
        "title": entry.title,
        "by": entry.by,
        "requested_at": _maybe(entry.requested_at),
        "gave_up_at": _maybe(entry.gave_up_at),
        "sent_at": _maybe(entry.sent_at),
        "emails_sent": entry.emails_sent,
    }
    return _with_or_without(
        made,
        scheduled_for=_maybe(entry.scheduled_for),
        recipients=entry.recipients,
        state=None if entry.state is State.NONE else entry.state.value,
        nonce=entry.nonce or None,
        reason=entry.reason or None,
        order=entry.order or None,
        draft_hash=entry.draft_hash or None,
        quiet_since=_maybe(entry.quiet_since),
    )


def _write_attempt(attempt: Attempt, known: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **known,
        "run": attempt.run,
        "host": attempt.host,
        "pid": attempt.pid,
        "started_at": _write_time(attempt.started_at),
        "ended_at": None if attempt.ended_at is None else _write_time(attempt.ended_at),
        "outcome": attempt.outcome,
        "detail": attempt.detail,
    }


def _maybe(moment: datetime | None) -> str | None:
    return None if moment is None else _write_time(moment, up=True)


def _with_or_without(made: dict[str, Any], **rare: object) -> dict[str, Any]:
    """Fields that most records lack stand there only where they say something."""
    kept = {name: value for name, value in made.items() if name not in rare}
    return kept | {name: value for name, value in rare.items() if value is not None}


# ---- legal changes ----


def check_transition(old: Batch, new: Batch) -> None:
    """Raise InvariantBroken unless the ledger may go from `old` to `new`, two records of one date.

    The rules are those without which a campaign could be mailed twice: what was requested stays on record,
    and a batch that is sent, or that an operator skipped, stays so.
    """
    _check_batch(new)
    if old.date != new.date:
        raise InvariantBroken(f"the batch of {old.date} would become one of {new.date}")
    if new.state not in _AFTER[old.state]:
        raise InvariantBroken(f"{new.date}: {old.state.value} may not become {new.state.value}")
    requested = {entry.id for entry in new.campaigns if entry.requested_at is not None}
    for entry in old.campaigns:
        if entry.requested_at is not None and entry.id not in requested:
            raise InvariantBroken(f"{new.date}: the request to send {entry.id} would be forgotten")
    if old.state is new.state is State.SENDING and _main_id(old) != _main_id(new):
        raise InvariantBroken(f"{new.date}: {_main_id(old)} is being sent, not {_main_id(new)}")
    if any(entry.state is not State.NONE for entry in (*old.campaigns, *new.campaigns)):
        _check_parts(old, new)


def _check_parts(old: Batch, new: Batch) -> None:
    """What was ordered beside the day's campaign keeps to the same rules, each order for itself."""
    from sendonce.core.parts import part, roles  # noqa: PLC0415 - hardly any date has one

    for role in dict.fromkeys((*roles(old), *roles(new))):
        check_transition(part(old, role), part(new, role))


def _main_id(batch: Batch) -> str:
    return batch.main.id if batch.main else "none"


def _check_batch(batch: Batch) -> None:
    _check_day(batch.date)
    if said := _twice(batch.campaigns):
        raise InvariantBroken(f"{batch.date}: {said}")
    if not all(entry.id or entry.state is not State.NONE for entry in batch.campaigns):
        raise InvariantBroken(f"{batch.date}: a campaign without an id")
    main = batch.main
    if batch.state in {State.SENDING, State.SENT} and main is None:
        raise InvariantBroken(f"{batch.date}: {batch.state.value}, and no campaign")
    if batch.state is State.SENDING and (main is None or main.requested_at is None):
        raise InvariantBroken(f"{batch.date}: sending, and no time of the request")


def _check_day(day: str) -> None:
    if not _is_day(day):
        raise InvariantBroken(f"{day!a} is not a date")
