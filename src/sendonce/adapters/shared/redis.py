"""Lease and ledger in Redis: one script for each change, so that each is one step there.

All keys of a job begin with `sendonce:{JOB}:`, the braces put them on one node of a cluster. `lease` is JSON under
`NX` and `PX`: it expires by the server's clock. `head` is a hash, `batch:DATE` a hash with the record and its
state, `dates` and `open` are sorted sets of dates, `resets` the dates of all resets in their order and
`resets:DATE` the records of one.

A connection that breaks is tried again, and each script may therefore run twice for one call: one that finds its
own effect says that it is done.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from sendonce.adapters.shared.backend import (
    ANSWER_WAIT_S,
    PAGE_ROWS,
    Grip,
    Head,
    Owner,
    Rows,
    Verdict,
    why_unreached,
)
from sendonce.core.errors import LedgerDamaged, StateUnusable, StoreDown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from redis import Redis

    from sendonce.adapters.shared.backend import Change

_TRIES_AFTER_THE_FIRST: Final = 2

_TAKE: Final = """
local value = cjson.decode(ARGV[1])
local held = redis.call('GET', KEYS[1])
if not held then
  local fence = math.max(redis.call('INCR', KEYS[2]), tonumber(redis.call('HGET', KEYS[3], 'fence') or '0') + 1)
  redis.call('SET', KEYS[2], fence)
  value.fence = fence
  held = cjson.encode(value)
  redis.call('SET', KEYS[1], held, 'NX', 'PX', ARGV[2])
end
return {held, redis.call('PTTL', KEYS[1])}
"""
_RENEW: Final = """
local held = redis.call('GET', KEYS[1])
if not held or cjson.decode(held).token ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], held, 'XX', 'PX', ARGV[2])
return 1
"""
_GIVE_BACK: Final = """
local held = redis.call('GET', KEYS[1])
if not held or cjson.decode(held).token ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
"""
_CHECK: Final = """
local held = redis.call('GET', KEYS[1])
if not held then return 'claim lost' end
held = cjson.decode(held)
if held.token ~= ARGV[1] or held.fence ~= tonumber(ARGV[2]) then return 'claim lost' end
local head = redis.call('HMGET', KEYS[2], 'stamp', 'fence')
if tonumber(head[2] or '0') > tonumber(ARGV[2]) then return 'claim lost' end
if (head[1] or '') ~= ARGV[3] then return 'changed by somebody else' end
"""
# it writes, though nothing that counts: a primary that has become a replica, and may be behind, refuses that
_CHECK_ON_PRIMARY: Final = (
    _CHECK
    + """
if head[1] then redis.call('HSET', KEYS[2], 'fence', ARGV[2]) end
return 'done'
"""
)
_WRITE: Final = (
    """
local prefix = ARGV[5]
if redis.call('HGET', KEYS[2], 'stamp') == ARGV[4] then return 'done' end
"""
    + _CHECK
    + """
local at = 6
local function more() at = at + 1; return ARGV[at - 1] end
local is_whole = more() == '1'
redis.call('HSET', KEYS[2], 'stamp', ARGV[4], 'fence', ARGV[2], 'version', more(), 'job', more(), 'api', more(),
  'pause', more())
if is_whole then
  for _, day in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do redis.call('DEL', prefix .. 'batch:' .. day) end
  for _, day in ipairs(redis.call('LRANGE', KEYS[5], 0, -1)) do redis.call('DEL', prefix .. 'resets:' .. day) end
  redis.call('DEL', KEYS[3], KEYS[4], KEYS[5])
end
for _ = 1, tonumber(more()) do
  local day = more()
  redis.call('DEL', prefix .. 'batch:' .. day)
  redis.call('ZREM', KEYS[3], day)
  redis.call('ZREM', KEYS[4], day)
end
for _ = 1, tonumber(more()) do
  local day, state, is_open, record = more(), more(), more(), more()
  redis.call('HSET', prefix .. 'batch:' .. day, 'state', state, 'record', record)
  redis.call('ZADD', KEYS[3], 0, day)
  redis.call(is_open == '1' and 'ZADD' or 'ZREM', KEYS[4], unpack(is_open == '1' and {0, day} or {day}))
end
for _ = 1, tonumber(more()) do
  local day, record = more(), more()
  redis.call('RPUSH', KEYS[5], day)
  redis.call('RPUSH', prefix .. 'resets:' .. day, record)
end
return 'done'
"""
)


class RedisBackend:
    """One job's lease and ledger in Redis; satisfies `Backend`.

    `url` may hold a password and is shown to nobody; `place` is how it is named.
    """

    def __init__(self, url: str, place: str, job: str) -> None:
        self.place = f"{place} (job {job})"
        self._prefix = f"sendonce:{{{job}}}:"
        with _translated(self.place):
            self._client = _connect(url)

    # ---- the lease ----

    def take(self, owner: Owner, lease_s: float) -> Grip:
        """Take the lease if it is free; see `Backend`."""
        wanted = {"token": owner.token, "host": owner.host, "pid": owner.pid, "lease_s": lease_s}
        held, left_ms = self._run(_TAKE, ("lease", "fence", "head"), json.dumps(wanted), _ms(lease_s))
        return self._grip(held, left_ms)

    def renew(self, token: str, lease_s: float) -> bool:
        """Renew the lease. It is set anew, not prolonged: a server without memory for a write says so now."""
        return bool(self._run(_RENEW, ("lease",), token, _ms(lease_s)))

    def give_back(self, token: str) -> bool:
        """Free the lease if `token` holds it."""
        return bool(self._run(_GIVE_BACK, ("lease",), token))

    def grip(self) -> Grip | None:
        """Who holds the lease; Redis forgets an expired one by itself."""
        with _translated(self.place):
            held, left_ms = self._pipe().get(self._key("lease")).pttl(self._key("lease")).execute()
        return None if held is None else self._grip(held, left_ms)

    def _grip(self, held: bytes, left_ms: int) -> Grip:
        try:
            found = json.loads(held)
            owner = Owner(found["token"], found["host"], int(found["pid"]))
            return Grip(owner, int(found["fence"]), float(found["lease_s"]), left_ms / 1000)
        except (ValueError, KeyError, TypeError):
            raise StateUnusable(
                f"The lease at {self.place} is not one of sendonce's. Nothing is sent: look at the key "
                f"{self._key('lease')}, and remove it if nothing else needs it."
            ) from None

    # ---- the ledger ----

    def read(self, date: str) -> Rows:
        """The batch of `date`, its resets and the open batches before it, as they are at one moment."""
        before = {"min": "-", "max": f"({date}"}
        with _translated(self.place):
            pipe = self._of_day(date)
            pipe.lrange(self._key(f"resets:{date}"), 0, -1).zrangebylex(self._key("open"), **before)
            head, known, record, resets, open_days = pipe.execute()
            earlier = self._records(cast("list[bytes]", open_days))
        return Rows(self._head(head), _of_one(date, known, record) | earlier, resets)

    def read_one(self, date: str) -> Rows:
        """Give the batch of `date` alone."""
        with _translated(self.place):
            head, known, record = self._of_day(date).execute()
        return Rows(self._head(head), _of_one(date, known, record))

    def pages(self, first: str, last: str) -> Iterator[Rows]:
        """Give the batches of these dates, a page at a time."""
        low = f"[{first}"
        while True:
            with _translated(self.place):
                pipe = self._pipe().hgetall(self._key("head"))
                head, days = pipe.zrangebylex(self._key("dates"), low, f"[{last}", 0, PAGE_ROWS).execute()
                records = self._records(days)
            yield Rows(self._head(head), records)
            if len(days) < PAGE_ROWS:
                return
            low = f"({days[-1].decode()}"

    def resets(self) -> Sequence[bytes]:
        """Give all resets in their order."""
        with _translated(self.place):
            days = cast("list[bytes]", self._client.lrange(self._key("resets"), 0, -1))
            pipe = self._pipe()
            each = list(dict.fromkeys(days))
            for day in each:
                pipe.lrange(self._key(f"resets:{day.decode()}"), 0, -1)
            of_day = dict(zip(each, map(iter, pipe.execute()), strict=True))
        return [record for day in days if (record := next(of_day[day], None)) is not None]

    def check(self, stamp: str, token: str, fence: int) -> Verdict:
        """Whether a write would go through now."""
        verdict = self._run(_CHECK_ON_PRIMARY, ("lease", "head"), token, fence, stamp)
        return Verdict(verdict.decode())

    def write(self, stamp: str, token: str, fence: int, change: Change) -> Verdict:
        """Make the change if it may be made."""
        head = change.head
        rows = [
            part
            for day, row in change.batches.items()
            for part in (day, row.state, int(row.is_open), row.text)
        ]
        resets = [part for reset in change.resets for part in reset]
        verdict = self._run(
            _WRITE,
            ("lease", "head", "dates", "open", "resets"),
            *(token, fence, stamp, head.stamp, self._prefix, int(change.is_whole)),
            *(head.version, head.job, head.api, head.pause),
            *(len(change.removed), *change.removed),
            *(len(change.batches), *rows),
            *(len(change.resets), *resets),
        )
        return Verdict(verdict.decode())

    def keep(self, name: str, text: bytes) -> str:
        """Put a text under a key of its own."""
        key = self._key(f"kept:{name}")
        with _translated(self.place):
            self._client.set(key, text)
        return f"the key {key} at {self.place}"

    def prepare(self) -> Sequence[str]:
        """Nothing has to be made."""
        return self.look()

    def look(self) -> Sequence[str]:
        """Name settings of the server with which a ledger does not last."""
        with _translated(self.place):
            self._client.delete(self._key("nothing"))  # a write that changes nothing: a replica refuses it
        try:
            with _translated(self.place):
                # one at a time: servers before Redis 7 take no more
                found = dict[str, str]()
                for name in ("appendonly", "maxmemory-policy"):
                    found |= cast("dict[str, str]", self._client.config_get(name))
        except StateUnusable:
            found = {}
        return _warnings({_text(name): _text(value) for name, value in found.items()})

    # ---- how ----

    def _key(self, name: str) -> str:
        return self._prefix + name

    def _pipe(self) -> Any:
        """Commands that are carried out as one (the client's own types for a chain of them are of no use)."""
        return self._client.pipeline(transaction=True)

    def _run(self, script: str, keys: Iterable[str], *arguments: object) -> Any:
        names = [self._key(name) for name in keys]
        with _translated(self.place):
            return self._client.eval(script, len(names), *names, *cast("tuple[str, ...]", arguments))

    def _of_day(self, date: str) -> Any:
        """What asks for the head, whether there is a record of a date, and for that record."""
        pipe = self._pipe().hgetall(self._key("head")).zscore(self._key("dates"), date)
        return pipe.hget(self._key(f"batch:{date}"), "record")

    def _records(self, days: Sequence[bytes]) -> dict[str, bytes]:
        """The records of dates that have one; an empty one, which is damage, where a server has evicted it."""
        names = [day.decode() for day in days]
        pipe = self._pipe()
        for day in names:
            pipe.hget(self._key(f"batch:{day}"), "record")
        return {day: record or b"" for day, record in zip(names, pipe.execute(), strict=True)}

    def _head(self, found: dict[bytes, bytes]) -> Head | None:
        if not found:
            return None
        try:
            pause = found.get(b"pause", b"")  # what it says is judged with the rows
            fields = {name.decode(): value.decode() for name, value in found.items() if name != b"pause"}
            return Head(int(fields["version"]), fields["job"], fields["api"], fields["stamp"], pause)
        except (ValueError, KeyError):
            raise LedgerDamaged(
                f"The ledger at {self.place} is damaged: the hash {self._key('head')} does not say what it must. "
                "Nothing is sent, and it is left as it is: put it right, or move the job to another database with "
                "`sendonce ledger rebuild`."
            ) from None


def _of_one(date: str, known: float | None, record: bytes | None) -> dict[str, bytes]:
    """A batch of which there is a date and no record has been evicted: an empty record, which is damage."""
    return {} if known is None and record is None else {date: record or b""}


def _connect(url: str) -> Redis:
    from redis import Redis as _Redis  # noqa: PLC0415 - heavy, and only for who has it
    from redis.backoff import ExponentialBackoff  # noqa: PLC0415 - as above
    from redis.exceptions import ConnectionError as _ConnectionError  # noqa: PLC0415 - as above
    from redis.retry import Retry  # noqa: PLC0415 - as above

    # not after a wait for an answer: tries to connect and tries of a command multiply
    tries = Retry(ExponentialBackoff(cap=1, base=0.1), _TRIES_AFTER_THE_FIRST, (_ConnectionError,))

    client = _Redis.from_url(
        url,
        socket_timeout=ANSWER_WAIT_S,
        socket_connect_timeout=ANSWER_WAIT_S,
        retry=tries,
        protocol=2,
    )
    # whatever the URL's query says of them: answers are read as bytes here
    client.connection_pool.connection_kwargs.update(decode_responses=False)
    return client


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _warnings(found: dict[str, str]) -> list[str]:
    if not found:
        return [
            "The server does not tell its settings: see that it has appendonly yes and maxmemory-policy noeviction."
        ]
    warnings = []
    if found.get("appendonly") != "yes":
        warnings.append(
            f"The server has appendonly {found.get('appendonly', '?')}: what is recorded may be lost when it restarts. "
            "Nothing is sent twice then, but history is gone. Set appendonly yes."
        )
    if found.get("maxmemory-policy") != "noeviction":
        warnings.append(
            f"The server has maxmemory-policy {found.get('maxmemory-policy', '?')}: it may drop records when it is "
            "full. Set maxmemory-policy noeviction."
        )
    return warnings


_SAYS_NO: Final = (
    ("READONLY", "it is a read-only replica: name the primary in SENDONCE_STATE"),
    ("OOM", "it is out of memory: raise maxmemory there, or make room"),
    ("MISCONF", "it cannot write to its disk: look at its log"),
    ("NOREPLICAS", "too few of its replicas are connected for it to take a write"),
    ("NOPERM", "the user in the URL may not do what is needed (keys sendonce:*, scripts)"),
    ("WRONGTYPE", "a key of ours holds something else: somebody else uses sendonce:* there"),
    ("Authentication required", "it wants a password, and the URL has none"),
    ("NOAUTH", "it wants a password, and the URL has none"),
    ("WRONGPASS", "it does not accept user and password of the URL"),
    ("invalid username-password", "it does not accept user and password of the URL"),
    ("invalid password", "it does not accept the password of the URL"),
    ("DB index", "it has no database of that number: correct the number at the end of the URL"),
)


@contextmanager
def _translated(place: str) -> Iterator[None]:
    """Turn the client's errors into ours. Their texts are not shown: one may quote an address with its password."""
    from redis import exceptions  # noqa: PLC0415 - heavy, and only for who has it

    try:
        yield
    except exceptions.RedisError as error:
        # the client takes the code off the texts of those that have a class of their own
        codes: dict[type[Exception], str] = {
            exceptions.ReadOnlyError: "READONLY",
            exceptions.OutOfMemoryError: "OOM",
            exceptions.NoPermissionError: "NOPERM",
        }
        said = f"{codes.get(type(error), '')} {error}".strip()
        refusal = next((remedy for code, remedy in _SAYS_NO if code in said), None)
        if refusal is None and isinstance(error, exceptions.AuthenticationError):
            refusal = "it does not accept user and password of the URL"
        if refusal is not None:
            raise StateUnusable(
                f"The server at {place} says no: {refusal}. Nothing further is sent."
            ) from None
        passing = (
            exceptions.ConnectionError,
            exceptions.TimeoutError,
            exceptions.ClusterDownError,
            exceptions.TryAgainError,
            exceptions.MasterDownError,
        )
        if isinstance(error, passing):
            raise StoreDown(
                f"The server at {place} could not be reached: {why_unreached(error)} ({type(error).__name__}). "
                "Run again when it is back, that is safe."
            ) from None
        raise StateUnusable(
            f"The server at {place} says no ({type(error).__name__}: {said.split(' ')[0]}). Nothing further is sent."
        ) from None
    except (OSError, ValueError, TypeError) as error:
        raise StateUnusable(
            f"{place} cannot be used as SENDONCE_STATE ({type(error).__name__}). Nothing is sent: wanted is "
            "redis://USER:PASSWORD@HOST:PORT/NUMBER, rediss://… for TLS, or unix:///PATH?db=NUMBER."
        ) from None
