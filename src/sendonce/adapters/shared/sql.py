"""Lease and ledger in an SQL database, through SQLAlchemy Core: PostgreSQL, MySQL or MariaDB, SQLite.

A step is one transaction, READ COMMITTED (SQLite: BEGIN IMMEDIATE), that first locks the job's row in
`sendonce_leases` and only then asks the server what time it is: two runs are one after the other there, and no wait
for the lock makes a lease look younger than it is. No lock outlives its transaction and no connection its step, so
that nothing hangs on a pooled connection that died unseen.

Tables are made by `prepare` (`sendonce init`), never by a send.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    create_engine,
    delete,
    event,
    func,
    insert,
    inspect,
    literal,
    make_url,
    select,
    text,
    update,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    IntegrityError,
    InterfaceError,
    InternalError,
    NoSuchModuleError,
    OperationalError,
)
from sqlalchemy.pool import NullPool

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
from sendonce.core.errors import StateUnusable, StoreDown, Temporary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sqlalchemy import Connection, Engine

    from sendonce.adapters.shared.backend import Change

SCHEMA: Final = 3
"""The version of the tables. Each later one gets a step in `_MIGRATIONS`; there is no way back."""

_META: Final = MetaData()
_LONG: Final = Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")
_JOB: Final = String(40)
_DATE: Final = String(10)

_schema = Table(
    "sendonce_schema",
    _META,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("version", Integer, nullable=False),
)
_leases = Table(
    "sendonce_leases",
    _META,
    Column("job", _JOB, primary_key=True),
    Column("token", String(32), nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("lease_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
    Column("host", String(255), nullable=False),
    Column("pid", BigInteger, nullable=False),
)
_ledgers = Table(
    "sendonce_ledgers",
    _META,
    Column("job", _JOB, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("api", String(255), nullable=False),
    Column("stamp", String(32), nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("pause", _LONG, nullable=True),
)
_batches = Table(
    "sendonce_batches",
    _META,
    Column("job", _JOB, primary_key=True),
    Column("date", _DATE, primary_key=True),
    Column("state", String(16), nullable=False),
    Column("is_open", Boolean, nullable=False),
    Column("record", _LONG, nullable=False),
    Index("sendonce_batches_open", "job", "is_open", "date"),
)
_resets = Table(
    "sendonce_resets",
    _META,
    Column("id", Integer, primary_key=True),
    Column("job", _JOB, nullable=False),
    Column("date", _DATE, nullable=False),
    Column("record", _LONG, nullable=False),
    Index("sendonce_resets_date", "job", "date"),
)
_kept = Table(
    "sendonce_kept",
    _META,
    Column("job", _JOB, primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("record", Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb"), nullable=False),
)

# who got what: adapters/shared/recipients.py
_EMAIL_ID: Final = LargeBinary(16).with_variant(mysql.BINARY(16), "mysql", "mariadb")
recipient_records = Table(
    "sendonce_recipient_records",
    _META,
    Column("job", _JOB, primary_key=True),
    Column("salt", LargeBinary(32), nullable=False),
)
recipient_campaigns = Table(
    "sendonce_recipient_campaigns",
    _META,
    Column("number", Integer, primary_key=True),
    Column("job", _JOB, nullable=False),
    Column("id", String(20), nullable=False),
    Column("web_id", BigInteger),
    Column("date", _DATE, nullable=False),
    Column("role", String(40), nullable=False),
    Column("title", Text, nullable=False),
    Column("sent_at", String(40)),
    Column("total", Integer, nullable=False),
    Column("keeps_addresses", Boolean, nullable=False),
    Column("is_complete", Boolean, nullable=False),
    Column("synced_at", String(40), nullable=False),
    Index("sendonce_recipient_campaigns_date", "job", "date"),
)
recipient_pages = Table(
    "sendonce_recipient_pages",
    _META,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("page", Integer, primary_key=True, autoincrement=False),
    Column("record", _LONG, nullable=False),
)
recipients = Table(
    "sendonce_recipients",
    _META,
    Column("email_id", _EMAIL_ID, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("status", SmallInteger, nullable=False),
    Column("address", String(320)),
    Index("sendonce_recipients_number", "number"),
    sqlite_with_rowid=False,
)
recipients_forgotten = Table(
    "sendonce_recipients_forgotten",
    _META,
    Column("job", _JOB, primary_key=True),
    Column("email_id", _EMAIL_ID, primary_key=True),
)

_NOW_MS: Final = {
    # clock_timestamp and SYSDATE are the time of asking; now() and NOW() are that of the transaction or statement
    "postgresql": "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
    "mysql": "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000 AS SIGNED)",
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
}
_AT_CONNECT: Final = {
    # UNIX_TIMESTAMP reads its argument in the session's zone, where an hour may come twice
    # and a machine that is gone, or frozen, in the middle of a step must not hold the lease's row
    "mysql": (
        f"SET time_zone = '+00:00', innodb_lock_wait_timeout = {ANSWER_WAIT_S}, wait_timeout = {ANSWER_WAIT_S}",
    ),
    "sqlite": ("PRAGMA synchronous = FULL", "PRAGMA secure_delete = ON"),
    "postgresql": (),
}
_AT_BEGIN: Final = {
    # of the transaction, not of the session: a pooler between may give the session to somebody else
    # the third: a machine that is gone, or frozen, in the middle of a step must not hold the lease's row
    "postgresql": (
        (
            f"SET LOCAL statement_timeout = '{ANSWER_WAIT_S}s'; SET LOCAL lock_timeout = '{ANSWER_WAIT_S}s'; "
            f"SET LOCAL idle_in_transaction_session_timeout = '{ANSWER_WAIT_S}s'"
        ),
    ),
    "mysql": (),
    "sqlite": ("BEGIN IMMEDIATE",),
}
_ONE_AT_A_TIME: Final = {
    # two that make tables at the same time are in each other's way; both locks are gone with the connection
    "postgresql": ("SELECT pg_advisory_xact_lock(hashtext('sendonce_schema'))",),
    "mysql": (f"SELECT GET_LOCK(CONCAT('sendonce_schema ', DATABASE()), {ANSWER_WAIT_S})",),
    "sqlite": (),
}
_CONNECT_ARGUMENTS: Final[Mapping[str, Mapping[str, object]]] = {
    # no prepared statements: a pooler may run the next transaction on another session
    "postgresql": {
        "connect_timeout": ANSWER_WAIT_S,
        "prepare_threshold": None,
        # a machine that is gone answers nothing, ever; by default that is noticed after two hours
        "tcp_user_timeout": 1000 * ANSWER_WAIT_S,
        "keepalives_idle": ANSWER_WAIT_S,
        "keepalives_interval": 2,
        "keepalives_count": 3,
    },
    "mysql": {
        "connect_timeout": ANSWER_WAIT_S,
        "write_timeout": 2 * ANSWER_WAIT_S,
    },
    # no transactions of the driver's own making: BEGIN IMMEDIATE is ours
    "sqlite": {"timeout": ANSWER_WAIT_S, "isolation_level": None},
}
LONG_S: Final = 600
"""So long a step may take that is about all recipients of a date; a report of a million goes in at once."""
_ISOLATION: Final = {"postgresql": "READ COMMITTED", "mysql": "READ COMMITTED"}


class SqlBackend:
    """One job's lease and ledger in a database; satisfies `Backend`.

    `url` may hold a password and is shown to nobody; `place` is how it is named.
    """

    def __init__(self, url: str, place: str, job: str) -> None:
        self.place = f"{place} (job {job})"
        self._job = job
        self._is_schema_checked = False
        with self._translated():
            self._engine, self._patient_engine = _engine(url, 2 * ANSWER_WAIT_S), _engine(url, LONG_S)
        self._kind = self._engine.dialect.name.replace("mariadb", "mysql")

    # ---- the lease ----

    def take(self, owner: Owner, lease_s: float) -> Grip:
        """Take the lease if it is free or expired; see `Backend`."""
        grip = self._take(owner, lease_s)
        if grip is None:
            self._make_lease_row()
            grip = self._take(owner, lease_s)
        if grip is None:
            raise StateUnusable(
                f"The database at {self.place} does not show us the row of sendonce_leases that it has. Nothing is "
                f"sent: {_RIGHTS}."
            )
        return grip

    def _take(self, owner: Owner, lease_s: float) -> Grip | None:
        """As `take`; None if the job never had a lease."""
        with self._step() as db:
            grip = self._locked(db)
            if grip is None or grip.owner == owner or (grip.owner.token and grip.left_s > 0):
                return grip
            newest = db.scalar(select(_ledgers.c.fence).where(_ledgers.c.job == self._job)) or 0
            fence = max(grip.fence, newest) + 1
            db.execute(
                self._lease_row(update(_leases)).values(
                    token=owner.token,
                    host=owner.host,
                    pid=owner.pid,
                    fence=fence,
                    lease_ms=_ms(lease_s),
                    expires_ms=self._now_ms(db) + _ms(lease_s),
                )
            )
        return Grip(owner, fence, lease_s, lease_s)

    def renew(self, token: str, lease_s: float) -> bool:
        """Renew the lease if `token` holds it and it has not expired."""
        with self._step() as db:
            grip = self._locked(db)
            if grip is None or grip.owner.token != token or grip.left_s <= 0:
                return False
            values = {"lease_ms": _ms(lease_s), "expires_ms": self._now_ms(db) + _ms(lease_s)}
            db.execute(self._lease_row(update(_leases)).values(**values))
        return True

    def give_back(self, token: str) -> bool:
        """Free the lease if `token` holds it. The row stays, with its fence."""
        with self._step() as db:
            freed = db.execute(
                self._lease_row(update(_leases))
                .where(_leases.c.token == token)
                .values(token="", expires_ms=0)
            )
            return freed.rowcount == 1

    def grip(self) -> Grip | None:
        """Who holds the lease, or held it last until it expired; None if it was given back."""
        with self._step(is_read=True) as db:
            grip = self._seen(db)
        return grip if grip and grip.owner.token else None

    def _make_lease_row(self) -> None:
        """In a step of its own: two that take it in the same one would each hold what the other waits for."""
        row = {
            "job": self._job,
            "token": "",
            "fence": 0,
            "lease_ms": 0,
            "expires_ms": 0,
            "host": "",
            "pid": 0,
        }
        # what is suppressed: another run was faster
        with self._step() as db, suppress(IntegrityError), db.begin_nested():
            db.execute(insert(_leases).values(row))

    def _locked(self, db: Connection) -> Grip | None:
        """The lease, its row locked until the step ends. The time is asked after the lock was had."""
        return self._seen(db, is_locked=True)

    def _seen(self, db: Connection, *, is_locked: bool = False) -> Grip | None:
        query = select(_leases).where(_leases.c.job == self._job)
        row = db.execute(query.with_for_update() if is_locked else query).one_or_none()
        if row is None:
            return None
        left_s = (row.expires_ms - self._now_ms(db)) / 1000
        if left_s > row.lease_ms / 1000 + 1:
            left_s = 0.0  # the server's clock was set back: without this a dead holder could keep it for days
        return Grip(Owner(row.token, row.host, row.pid), row.fence, row.lease_ms / 1000, left_s)

    def _lease_row(self, statement: Any) -> Any:
        return statement.where(_leases.c.job == self._job)

    def _now_ms(self, db: Connection) -> int:
        return int(db.scalar(select(text(_NOW_MS[self._kind]))))

    # ---- the ledger ----

    def read(self, date: str) -> Rows:
        """Give the batch of `date`, its resets and the open batches before it. The head is read first: not younger."""
        of_job = _batches.c.job == self._job
        rows = select(_batches.c.date, _batches.c.record)
        with self._step(is_read=True) as db:
            head = self._head(db)
            found = db.execute(rows.where(of_job, _batches.c.date == date)).all()
            is_open = _batches.c.is_open == literal(value=True)
            found = [*found, *db.execute(rows.where(of_job, is_open, _batches.c.date < date))]
            reset = select(_resets.c.record).where(_resets.c.job == self._job, _resets.c.date == date)
            resets = db.scalars(reset.order_by(_resets.c.id)).all()
        return Rows(head, {day: _bytes(record) for day, record in found}, [_bytes(r) for r in resets])

    def read_one(self, date: str) -> Rows:
        """Give the batch of `date` alone."""
        with self._step(is_read=True) as db:
            head = self._head(db)
            record = db.scalar(
                select(_batches.c.record).where(_batches.c.job == self._job, _batches.c.date == date)
            )
        return Rows(head, {} if record is None else {date: _bytes(record)})

    def pages(self, first: str, last: str) -> Iterator[Rows]:
        """Give the batches of these dates, a page at a time."""
        rows = select(_batches.c.date, _batches.c.record).order_by(_batches.c.date).limit(PAGE_ROWS)
        after = _batches.c.date >= first
        while True:
            with self._step(is_read=True) as db:
                head = self._head(db)
                page = db.execute(
                    rows.where(_batches.c.job == self._job, _batches.c.date <= last, after)
                ).all()
            yield Rows(head, {day: _bytes(record) for day, record in page})
            if len(page) < PAGE_ROWS:
                return
            after = _batches.c.date > page[-1].date

    def resets(self) -> Sequence[bytes]:
        """Give all resets in their order."""
        with self._step(is_read=True) as db:
            query = select(_resets.c.record).where(_resets.c.job == self._job).order_by(_resets.c.id)
            return [_bytes(record) for record in db.scalars(query)]

    def check(self, stamp: str, token: str, fence: int) -> Verdict:
        """Whether a write would go through now."""
        with self._step() as db:
            return self._judged(db, stamp, token, fence)

    def write(self, stamp: str, token: str, fence: int, change: Change) -> Verdict:
        """Make the change if it may be made: all of it in one transaction."""
        with self._step() as db:
            verdict = self._judged(db, stamp, token, fence)
            if verdict is Verdict.DONE:
                self._put_head(db, stamp, fence, change.head)
                self._put_rows(db, change)
        return verdict

    def _judged(self, db: Connection, stamp: str, token: str, fence: int) -> Verdict:
        grip = self._locked(db)
        if grip is None or (grip.owner.token, grip.fence) != (token, fence) or grip.left_s <= 0:
            return Verdict.CLAIM_LOST
        row = db.execute(select(_ledgers).where(_ledgers.c.job == self._job).with_for_update()).one_or_none()
        if row is not None and row.fence > fence:
            return Verdict.CLAIM_LOST
        return Verdict.DONE if (row.stamp if row is not None else "") == stamp else Verdict.CHANGED

    def _put_head(self, db: Connection, stamp: str, fence: int, head: Head) -> None:
        values: dict[str, object] = {"version": head.version, "api": head.api, "stamp": head.stamp}
        values |= {"fence": fence, "pause": head.pause.decode() or None}
        if stamp:
            db.execute(
                update(_ledgers)
                .where(_ledgers.c.job == self._job, _ledgers.c.stamp == stamp, _ledgers.c.fence <= fence)
                .values(**values)
            )
        else:
            db.execute(insert(_ledgers).values(job=self._job, **values))

    def _put_rows(self, db: Connection, change: Change) -> None:
        if change.is_whole:
            db.execute(delete(_batches).where(_batches.c.job == self._job))
            db.execute(delete(_resets).where(_resets.c.job == self._job))
        else:
            old = [*change.removed, *change.batches]
            db.execute(delete(_batches).where(_batches.c.job == self._job, _batches.c.date.in_(old)))
        if change.batches:
            rows = [
                {
                    "job": self._job,
                    "date": day,
                    "state": row.state,
                    "is_open": row.is_open,
                    "record": row.text,
                }
                for day, row in change.batches.items()
            ]
            db.execute(insert(_batches), rows)
        if change.resets:
            db.execute(
                insert(_resets),
                [{"job": self._job, "date": day, "record": record} for day, record in change.resets],
            )

    def keep(self, name: str, text: bytes) -> str:
        """Put a text into `sendonce_kept`."""
        with self._step() as db:
            db.execute(insert(_kept).values(job=self._job, name=name, record=text.decode("utf-8", "replace")))
        return f"the row {name} of sendonce_kept at {self.place}"

    def prepare(self) -> Sequence[str]:
        """Make the tables, or bring older ones up to date; what of the server's settings lets a ledger down."""
        if self._kind == "sqlite":
            self._make_file()
        with self._translated(), self._engine.begin() as db:
            for statement in _ONE_AT_A_TIME[self._kind]:
                is_held = db.exec_driver_sql(statement).scalar()
                if self._kind == "mysql" and is_held != 1:  # MySQL answers so where PostgreSQL raises
                    raise Temporary(
                        f"Another process has held the making of tables in the database at {self.place} for "
                        f"{ANSWER_WAIT_S} s. Nothing was changed: run `sendonce init` again."
                    )
            known = _schema_version(db)
            if known > SCHEMA:
                raise self._too_new(known)
            for version in range(known + 1, SCHEMA + 1):
                _MIGRATIONS[version](db)
                db.execute(delete(_schema))
                db.execute(insert(_schema).values(id=1, version=version))
            return _warnings(db, self._kind)

    def look(self) -> Sequence[str]:
        """What of the server's settings lets a ledger down; StateUnusable without tables, or if we may not write."""
        with self._step() as db:
            for table in (_leases, _ledgers, _batches):  # a replica refuses this, and so do missing rights
                db.execute(update(table).where(table.c.job == "").values(job=""))
            return _warnings(db, self._kind)

    def _head(self, db: Connection) -> Head | None:
        row = db.execute(select(_ledgers).where(_ledgers.c.job == self._job)).one_or_none()
        if row is None:
            return None
        return Head(row.version, row.job, row.api, row.stamp, b"" if row.pause is None else _bytes(row.pause))

    @contextmanager
    def transaction(self, *, is_read: bool = False, is_long: bool = False) -> Iterator[Connection]:
        """One transaction, for what else is kept there; errors are translated as everywhere here.

        `is_long`: a statement in it may take LONG_S seconds. It must not touch the lease.
        """
        with self._step(is_read=is_read, is_long=is_long) as db:
            if is_long and self._kind == "postgresql":
                db.exec_driver_sql(f"SET LOCAL statement_timeout = '{LONG_S}s'")
            yield db

    # ---- how ----

    @contextmanager
    def _step(self, *, is_read: bool = False, is_long: bool = False) -> Iterator[Connection]:
        """One transaction; the tables are looked at before the first."""
        engine = self._patient_engine if is_long else self._engine
        if self._kind == "sqlite":
            self._check_file()
        with self._translated(), engine.execution_options(is_read=is_read).begin() as db:
            if not self._is_schema_checked:
                self._check_schema(_schema_version(db))
                self._is_schema_checked = True
            yield db

    def _check_file(self) -> None:
        """SQLite would make a file that is not there: an unmounted volume must not look like a first start."""
        try:
            Path(self._engine.url.database or "").stat()
        except FileNotFoundError:
            raise StateUnusable(
                f"The database at {self.place} does not exist. An unmounted volume looks like this, so it is not made "
                "anew and nothing is sent: mount it, or run `sendonce init` if this is the first start."
            ) from None
        except OSError:
            return  # SQLite finds the same, and says it as a fault of the database

    def _make_file(self) -> None:
        """With the rights of a ledger; SQLite would let everybody read it."""
        path = self._engine.url.database or ""
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            raise StateUnusable(
                f"The database at {self.place} cannot be made ({error.strerror}). Nothing was changed: its folder must "
                "exist, and the user who runs sendonce must be able to write there."
            ) from None

    def _check_schema(self, known: int) -> None:
        if known > SCHEMA:
            raise self._too_new(known)
        if known < SCHEMA:
            raise StateUnusable(
                f"The database at {self.place} "
                f"{f'has tables of version {known}' if known else 'has no tables of sendonce yet'}. "
                "Nothing is sent: run `sendonce init`."
            )

    def _too_new(self, known: int) -> StateUnusable:
        return StateUnusable(
            f"The database at {self.place} has tables of version {known}, and this sendonce knows {SCHEMA}: a newer "
            "sendonce made them. Nothing is sent: use that one, or a newer one."
        )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn the driver's errors into ours. Their texts are not shown: one may quote the URL with its password."""
        try:
            yield
        except DBAPIError as error:
            code = _code(error)
            if remedy := _refusal(error, code):
                raise StateUnusable(
                    f"The database at {self.place} says no: {remedy}. Nothing further is sent."
                ) from None
            if not isinstance(error, OperationalError | InterfaceError | InternalError):
                what = type(error.orig).__name__ + (f" {code}" if code else "")
                raise StateUnusable(
                    f"The database at {self.place} says no ({what}). Nothing further is sent."
                ) from None
            raise StoreDown(
                f"The database at {self.place} could not be reached: {why_unreached(error.orig)} "
                f"({type(error.orig).__name__}{f' {code}' if code else ''}). Run again when it is back, that is safe."
            ) from None
        except (ArgumentError, NoSuchModuleError, ValueError, TypeError) as error:
            raise StateUnusable(
                f"{self.place} cannot be used as SENDONCE_STATE ({type(error).__name__}). Nothing is sent: wanted is "
                "postgresql+psycopg://USER:PASSWORD@HOST/DATABASE, mysql+pymysql://… or sqlite:////PATH."
            ) from None


def _engine(url: str, answer_s: int) -> Engine:
    kind = url.partition(":")[0].partition("+")[0]
    arguments = dict(_CONNECT_ARGUMENTS[kind])
    if kind == "mysql":
        arguments["read_timeout"] = answer_s  # its limit for a statement, which the server does not set
    if kind == "mysql" and (password := make_url(url).password) is not None:
        arguments["password"] = str(password).encode()  # as a text it would be sent in Latin-1
    more = {"isolation_level": _ISOLATION[kind]} if kind in _ISOLATION else {}
    engine = create_engine(url, poolclass=NullPool, connect_args=arguments, **more)

    @event.listens_for(engine, "connect")
    def at_connect(connection: Any, _record: object) -> None:
        for statement in _AT_CONNECT[kind]:
            cursor = connection.cursor()
            cursor.execute(statement)
            cursor.close()

    @event.listens_for(engine, "begin")
    def at_begin(db: Connection) -> None:
        is_read = db.get_execution_options().get("is_read", False)
        for statement in ("BEGIN",) if kind == "sqlite" and is_read else _AT_BEGIN[kind]:
            db.exec_driver_sql(statement)

    return engine


def _schema_version(db: Connection) -> int:
    """The version of the tables, 0 if there are none."""
    if not inspect(db).has_table(_schema.name):
        return 0
    return db.scalar(select(func.max(_schema.c.version))) or 0


def _add_pause(db: Connection) -> None:
    """Version 2 keeps a pause. Tables made just now have it already."""
    if "pause" not in {column["name"] for column in inspect(db).get_columns(_ledgers.name)}:
        kind = _LONG.compile(dialect=db.dialect)
        db.exec_driver_sql(f"ALTER TABLE {_ledgers.name} ADD COLUMN pause {kind}")


_OF_VERSION_1: Final = (_schema, _leases, _ledgers, _batches, _resets, _kept)
_MIGRATIONS: Final[Mapping[int, Callable[[Connection], None]]] = {
    1: lambda db: _META.create_all(db, tables=_OF_VERSION_1),
    2: _add_pause,
    3: _META.create_all,  # who got what
}


def _warnings(db: Connection, kind: str) -> list[str]:
    """With these settings a server forgets, when its machine fails, what it said it had written."""
    wanted = {
        "postgresql": {
            "SHOW fsync": {"on"},
            "SHOW synchronous_commit": {"on", "remote_write", "remote_apply"},
        },
        "mysql": {"SELECT @@GLOBAL.innodb_flush_log_at_trx_commit": {"1"}},
        "sqlite": {},
    }[kind]
    found = {query: str(db.exec_driver_sql(query).scalar()) for query in wanted}
    return [
        f"{query.split(' ', 1)[1]} is {value} on the server: what is recorded may be lost when its machine fails. "
        "Nothing is sent twice then, but history is gone."
        for query, value in found.items()
        if value not in wanted[query]
    ]


def _bytes(record: str) -> bytes:
    return record.encode("utf-8", "surrogatepass")


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


_LOGIN: Final = "it does not accept user and password of the URL"
_NO_DATABASE: Final = "it has no such database"
_RIGHTS: Final = "the user in the URL may not do what is needed there"
_READ_ONLY: Final = "it is read-only, as a replica is: name the primary in SENDONCE_STATE"
_FULL: Final = "its disk is full"
_NO_TABLE: Final = "a table of sendonce is missing: run `sendonce init`"
_REFUSALS: Final = {
    # PostgreSQL, by SQLSTATE
    "28P01": _LOGIN, "28000": _LOGIN, "3D000": _NO_DATABASE, "42501": _RIGHTS, "25006": _READ_ONLY,
    "53100": _FULL, "42P01": _NO_TABLE, "42703": _NO_TABLE,
    # MySQL and MariaDB, by error number
    "1045": _LOGIN, "1698": _LOGIN, "1049": _NO_DATABASE, "1044": _RIGHTS, "1142": _RIGHTS, "1143": _RIGHTS,
    "1290": _READ_ONLY, "1792": _READ_ONLY, "1836": _READ_ONLY, "1021": _FULL, "1114": _FULL, "1146": _NO_TABLE,
    "1054": _NO_TABLE,
    # SQLite, by name
    "SQLITE_READONLY": _READ_ONLY, "SQLITE_FULL": _FULL, "SQLITE_PERM": _RIGHTS, "SQLITE_AUTH": _RIGHTS,
    "SQLITE_NOTADB": "the file is no SQLite database", "SQLITE_CORRUPT": "the file is damaged",
    "SQLITE_CANTOPEN": "the file cannot be opened: does its folder exist, and may we write there",
    "SQLITE_ERROR": _NO_TABLE,
}  # fmt: skip
_TEXTS: Final = (
    # what libpq says before there is a session has no SQLSTATE
    ("password authentication failed", _LOGIN),
    ("no password supplied", _LOGIN),
    ("no pg_hba.conf entry", _LOGIN),
    (r'role ".*" does not exist', _LOGIN),
    (r'database ".*" does not exist', _NO_DATABASE),
    (
        r"invalid \S+ value|invalid connection option",
        "an option after the ? of the URL is not one, or is wrong",
    ),
    (
        r"certificate|SSL is not|server does not support SSL",
        "TLS between us and it does not come about as the URL wants it",
    ),
)


def _code(error: DBAPIError) -> str:
    """The server's own code for an error, "" if it has none."""
    origin: Any = error.orig
    # first: MySQL's SQLSTATE is one for many faults, and its number says which
    number = origin.args[0] if origin is not None and origin.args else None
    if isinstance(number, int):
        return str(number)
    if state := getattr(origin, "sqlstate", None):
        return str(state)
    if name := getattr(origin, "sqlite_errorname", None):
        return "_".join(str(name).split("_")[:2])
    return ""


def _refusal(error: DBAPIError, code: str) -> str | None:
    """What a person must mend; None if it may pass by itself."""
    if code in _REFUSALS:
        return _REFUSALS[code]
    said = str(error.orig)
    return next((remedy for form, remedy in _TEXTS if re.search(form, said)), None)
