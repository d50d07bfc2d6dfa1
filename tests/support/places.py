"""A place for one job's lease and ledger, in each of the stores: what every store must be able to do is tested on it."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sendonce.adapters.clock import SystemClock
from sendonce.adapters.lease import FileLease
from sendonce.adapters.shared.lease import SharedLease
from sendonce.adapters.shared.ledger import SharedLedger
from sendonce.adapters.stores import FileLedger
from sendonce.compose import shared_backend
from sendonce.settings.state_url import StateUrl, read_url
from support import servers

if TYPE_CHECKING:
    from sendonce.adapters.shared.backend import Backend
    from sendonce.core.ports import Clock

KINDS: Final = ("file", "redis", "sqlite", "postgresql", "mariadb")
SHARED: Final = KINDS[1:]
SQL: Final = KINDS[2:]
API: Final = "us19.api.mailchimp.com"


class Recorder:
    """A witness that keeps what it is told."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.events: list[tuple[str, dict[str, object]]] = []

    def note(self, event: str, **facts: object) -> None:
        self.events.append((event, facts))

    def warn(self, message: str) -> None:
        self.warnings.append(message)

    def fence(self) -> object:
        """The fence of the lease that was taken last."""
        return [facts["fence"] for event, facts in self.events if event == "lease taken"][-1]


@dataclass(frozen=True)
class Place:
    """Where `job` keeps its lease and ledger. `where` is a folder or a URL."""

    kind: str
    where: str
    job: str

    @property
    def is_shared(self) -> bool:
        """Whether it is on a server, or in a database."""
        return self.kind != "file"

    def state(self) -> Path | StateUrl:
        """SENDONCE_STATE, as the settings have it."""
        if not self.is_shared:
            return Path(self.where)
        url = read_url(self.where)
        assert isinstance(url, StateUrl)
        return url

    def backend(self) -> Backend:
        """A connection of its own to the server."""
        state = self.state()
        assert isinstance(state, StateUrl)
        return shared_backend(state, self.job)

    def lease(
        self,
        *,
        lease_s: float = 3,
        wait_s: float = 0,
        clock: Clock | None = None,
        witness: Recorder | None = None,
    ) -> FileLease | SharedLease:
        """A lease of another run, as it were; not taken yet."""
        clock, witness = clock or SystemClock(), witness or Recorder()
        if not self.is_shared:
            path = Path(self.where) / f"{self.job}.lock"
            return FileLease(path, lease_s=lease_s, wait_s=wait_s, clock=clock, witness=witness)
        return SharedLease(self.backend(), lease_s=lease_s, wait_s=wait_s, clock=clock, witness=witness)

    def ledger(
        self, lease: FileLease | SharedLease | None = None, *, api: str = API
    ) -> FileLedger | SharedLedger:
        """The ledger; without a lease it can only be read."""
        clock = SystemClock()
        if not self.is_shared:
            assert not isinstance(lease, SharedLease)
            path = Path(self.where) / f"{self.job}.json"
            return FileLedger(path, job=self.job, api=api, claim=lease, clock=clock)
        assert not isinstance(lease, FileLease)
        backend = lease.backend if lease else self.backend()
        return SharedLedger(backend, job=self.job, api=api, claim=lease, clock=clock)

    # ---- behind the store's back ----

    def record(self, date: str) -> dict[str, Any]:
        """What stands there for a date, in the store's own words."""
        if not self.is_shared:
            found = self._document()["batches"][date]
        elif self.kind == "redis":
            found = json.loads(self._redis().hget(self._key(f"batch:{date}"), "record"))
        else:
            [(text,)] = self._sql(
                "SELECT record FROM sendonce_batches WHERE job = :job AND date = :date", date=date
            )
            found = json.loads(text)
        return dict(found)

    def put_record(self, date: str, text: str) -> None:
        """Have other text stand there for a date that has a record."""
        if not self.is_shared:
            document = self._document()
            document["batches"][date] = "HERE"
            self._file().write_text(json.dumps(document).replace('"HERE"', text))
        elif self.kind == "redis":
            self._redis().hset(self._key(f"batch:{date}"), "record", text)
        else:
            self._sql(
                "UPDATE sendonce_batches SET record = :text WHERE job = :job AND date = :date",
                date=date,
                text=text,
            )

    def set_version(self, version: int) -> None:
        """Have the ledger say that another version of sendonce wrote it."""
        if not self.is_shared:
            self._file().write_text(json.dumps(self._document() | {"version": version}))
        elif self.kind == "redis":
            self._redis().hset(self._key("head"), "version", version)
        else:
            self._sql("UPDATE sendonce_ledgers SET version = :version WHERE job = :job", version=version)

    def kept(self, where: str) -> str:
        """What was put aside."""
        if not self.is_shared:
            return Path(where).read_text()
        if self.kind == "redis":
            return str(self._redis().get(where.split()[2]))
        [(text,)] = self._sql(
            "SELECT record FROM sendonce_kept WHERE job = :job AND name = :name", name=where.split()[2]
        )
        return str(text)

    def _file(self) -> Path:
        return Path(self.where) / f"{self.job}.json"

    def _document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self._file().read_text())
        return document

    def _key(self, name: str) -> str:
        return f"sendonce:{{{self.job}}}:{name}"

    def _redis(self) -> Any:
        import redis

        return redis.Redis.from_url(self.where, decode_responses=True, protocol=2)

    def _sql(self, statement: str, **values: object) -> list[Any]:
        import sqlalchemy

        # pymysql would send a password that is a text in Latin-1
        more = {"password": servers.PASSWORD.encode()} if self.kind == "mariadb" else {}
        engine = sqlalchemy.create_engine(self.where, poolclass=sqlalchemy.NullPool, connect_args=more)
        with engine.begin() as db:
            found = db.execute(sqlalchemy.text(statement), {"job": self.job, **values})
            return list(found.all()) if found.returns_rows else []


def new_place(kind: str, folder: Path) -> Place:
    """A place that no other test knows, ready for use; skip the test if there is no such server."""
    job = f"job-{secrets.token_hex(6)}"
    if kind == "file":
        state = folder / f"state-{job}"
        state.mkdir(mode=0o700)
        return Place(kind, str(state), job)
    if kind == "sqlite":
        place = Place(kind, f"sqlite:///{folder / job}.db", job)
        place.backend().prepare()
        return place
    place = Place(kind, servers.shared(kind).url(), job)
    with servers.locked(f"{kind}-tables.lock"):
        place.backend().prepare()
    return place
