"""The record of recipients on a disk: an SQLite file of a job.

A report comes in page by page, and none of it may count before all of it is there. So pages go to a second file
beside the record (`.part`), each in a transaction of its own, and go over into the record in one. The record is
clustered by person: a look-up reads a page or two, and a report goes in sorted, in one pass. Who writes holds the
kernel lock of a third file (`.guard`), which ends with the process.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sendonce.adapters.rights import kind, may_others_write, whose
from sendonce.core.errors import LeaseBusy, StateUnusable, Temporary
from sendonce.core.recipients import (
    ID_BYTES,
    STATUSES,
    Duplicate,
    Got,
    Mailed,
    Recorded,
    Row,
    buried,
    status_at,
    tombstone_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from sendonce.core.ports import Clock
    from sendonce.core.recipients import Recipient

Found = TypeVar("Found")

VERSION: Final = 1
BUSY_S: Final = 60
"""So long a look-up waits for a report that is just going in."""
SALT_BYTES: Final = 32
MAX_SALT_BYTES: Final = 64
"""blake2b takes no longer key."""
CACHE_KIB: Final = 32_000
READ_BYTES: Final = 1 << 20
CLEAN: Final = 1
"""`user_version` of a file that holds nothing of who was forgotten. One made before, or just used, has 0."""
_TABLES: Final = """
CREATE TABLE about (
    id INTEGER PRIMARY KEY CHECK (id = 1), version INTEGER NOT NULL, job TEXT NOT NULL, api TEXT NOT NULL,
    salt BLOB NOT NULL);
CREATE TABLE campaigns (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, web_id INTEGER, date TEXT NOT NULL, role TEXT NOT NULL,
    title TEXT NOT NULL, sent_at TEXT, total INTEGER NOT NULL, synced_at TEXT NOT NULL);
CREATE INDEX campaigns_date ON campaigns (date);
CREATE TABLE recipients (
    email_id BLOB NOT NULL, number INTEGER NOT NULL, status INTEGER NOT NULL, address TEXT,
    PRIMARY KEY (email_id, number)) WITHOUT ROWID;
CREATE TABLE forgotten (email_id BLOB PRIMARY KEY, at TEXT NOT NULL) WITHOUT ROWID
"""
_PART_TABLES: Final = """
CREATE TABLE IF NOT EXISTS part.reports (
    id TEXT PRIMARY KEY, total INTEGER NOT NULL, keeps_addresses INTEGER NOT NULL, over TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS part.pages (
    id TEXT NOT NULL, page INTEGER NOT NULL, PRIMARY KEY (id, page)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS part.staged (
    id TEXT NOT NULL, email_id BLOB NOT NULL, status INTEGER NOT NULL, address TEXT)
"""
_PART_LOOKS: Final = (
    "SELECT id, total, keeps_addresses, over FROM part.reports LIMIT 0",
    "SELECT id, page FROM part.pages LIMIT 0",
    "SELECT id, email_id, status, address FROM part.staged LIMIT 0",
)
_OF_DAMAGE: Final = frozenset({"SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_ERROR"})
LOOK_UP: Final = (
    "SELECT c.*, r.email_id, r.status, r.address FROM recipients r JOIN campaigns c ON c.number = r.number "
    "WHERE r.email_id IN (?, ?) ORDER BY c.date, c.sent_at, c.id"
)
_DUPLICATES: Final = (
    "SELECT c.date, r.email_id, group_concat(c.id, ' ') AS ids, max(r.address) AS address "
    "FROM recipients r JOIN campaigns c ON c.number = r.number WHERE c.date BETWEEN ? AND ? AND c.date IN "
    "(SELECT date FROM campaigns GROUP BY date HAVING count(*) > 1) "
    "GROUP BY r.email_id, c.date HAVING count(*) > 1 ORDER BY c.date, r.email_id"
)
# sorted: pages of the table are written once each, and a person who is there twice shows in the number
_MERGE: Final = (
    "INSERT INTO main.recipients SELECT email_id, ?, max(status), max(address) FROM part.staged WHERE id = ? "
    "GROUP BY email_id ON CONFLICT (email_id, number) DO UPDATE SET status = excluded.status, address = excluded.address"
)
_PLACE: Final = {status: place for place, status in enumerate(STATUSES)}


class FileRecipients:
    """The record of one job in a file; satisfies `RecipientRecord`. A file that is not there is an empty record.

    `api` is the API host that it is bound to, "" where that is not known.
    """

    def __init__(self, path: Path, *, job: str, api: str, clock: Clock) -> None:
        self._path, self._job, self._api, self._clock = path, job, api, clock
        self.warn: Callable[[str], None] = lambda _: None
        """Gets what a person should know though all goes on."""

    # ---- reading ----

    def campaigns(self, first: str, last: str) -> tuple[Recorded, ...]:
        """Return the campaigns on record; see `RecipientRecord`."""
        query = "SELECT * FROM campaigns WHERE date BETWEEN ? AND ? ORDER BY date, sent_at, id"
        return tuple(self._rows(_recorded, query, first, last))

    def got(self, email_id: bytes) -> tuple[Got, ...]:
        """Return what a person got; see `RecipientRecord`."""
        with self._translated(), self._opened() as db:
            if db is None:
                return ()
            stone = tombstone_of(email_id, _salt(db))
            found = db.execute(LOOK_UP, (email_id, stone)).fetchall()
        with self._legible():
            rows = [_row(row) for row in found]
        return tuple(Got(r.campaign, r.status, r.address, r.email_id == stone) for r in rows)

    def duplicates(self, first: str, last: str) -> Iterator[Duplicate]:
        """Go through who got more than one campaign of a date; see `RecipientRecord`."""
        yield from self._rows(_duplicate, _DUPLICATES, first, last)

    def rows(self, date: str) -> Iterator[Row]:
        """Go through all recipients of a date; see `RecipientRecord`."""
        query = (
            "SELECT c.*, r.email_id, r.status, r.address FROM recipients r JOIN campaigns c ON c.number = r.number "
            "WHERE c.date = ? ORDER BY r.email_id, c.sent_at, c.id"
        )
        yield from self._rows(_row, query, date)

    def count(self, date: str) -> int:
        """Count the people of a date; see `RecipientRecord`."""
        of_date = "r.number IN (SELECT number FROM campaigns WHERE date = ?)"
        query = f"SELECT count(DISTINCT r.email_id) AS people FROM recipients r WHERE {of_date}"  # noqa: S608 - our own words
        return next(self._rows(lambda row: int(row["people"]), query, date), 0)

    def addresses_of(self, date: str, limit: int) -> Iterator[str]:
        """Go through the addresses kept of a date; see `RecipientRecord`."""
        query = (
            "SELECT max(r.address) AS address FROM recipients r JOIN campaigns c ON c.number = r.number "
            "WHERE c.date = ? AND r.address <> '' GROUP BY r.email_id LIMIT ?"
        )
        yield from self._rows(lambda row: _text(row["address"]), query, date, limit)

    def _rows(self, read: Callable[[sqlite3.Row], Found], query: str, *values: object) -> Iterator[Found]:
        with self._translated(), self._opened() as db:
            for row in db.execute(query, values) if db is not None else ():
                with self._legible():
                    found = read(row)
                yield found

    # ---- writing ----

    @contextmanager
    def writing(self) -> Iterator[_Writer]:
        """Write reports; see `RecipientRecord`."""
        with self._guard(), self._translated():
            part = _named(self._path, ".part")
            for path in (self._path, part):
                self._make(path)
            with self._opened(is_written=True) as db:
                if db is None:
                    raise self._unusable("it was removed meanwhile")
                self._attach(db, part)
                writer = _Writer(db, self._translated, self._clock)
                try:
                    yield writer
                finally:
                    if writer.close():
                        self._remove_part()

    def _attach(self, db: sqlite3.Connection, part: Path) -> None:
        """Open the second file; one that is damaged is dropped, as all that it holds can be read again."""
        try:
            _attach(db, part)
        except sqlite3.DatabaseError as error:
            if _name_of(error) not in _OF_DAMAGE:
                raise
            with suppress(sqlite3.Error):  # it may never have come so far
                db.execute("DETACH part")
            self._remove_part()
            self._make(part)
            self.warn(f"{part} was damaged, and is dropped: the report that was half way in is read anew.")
            _attach(db, part)

    def forget(self, email_id: bytes) -> int:
        """Put a tombstone in a person's place; see `RecipientRecord`."""
        with self._guard(), self._translated():
            self._remove_part()  # a report that is half way in would bring the person back: it starts over
            self._make(self._path)
            with self._opened(is_written=True) as db:
                if db is None:
                    raise self._unusable("it was removed meanwhile")
                stone = tombstone_of(email_id, _salt(db))
                was_clean = db.execute("PRAGMA user_version").fetchone()[0] == CLEAN
                db.execute("BEGIN IMMEDIATE")
                db.execute("PRAGMA user_version = 0")  # until the old bytes are seen to be gone
                now = self._clock.now().isoformat(timespec="seconds")
                db.execute("INSERT OR IGNORE INTO forgotten VALUES (?, ?)", (stone, now))
                kept = "SELECT address FROM recipients WHERE email_id = ? AND address IS NOT NULL"
                with self._legible():
                    addresses = {_text(row["address"]).encode() for row in db.execute(kept, (email_id,))}
                changed = db.execute(
                    "UPDATE OR REPLACE recipients SET email_id = ?, address = NULL WHERE email_id = ?",
                    (stone, email_id),
                ).rowcount
                db.execute("COMMIT")
                if not was_clean or self._has({email_id, *addresses}):
                    self._write_anew(db)
                db.execute(f"PRAGMA user_version = {CLEAN}")
        return changed

    def _has(self, texts: set[bytes]) -> bool:
        """Whether one of these stands anywhere in the file.

        When SQLite moves rows from page to page it leaves copies behind, of which secure_delete knows nothing. No
        transaction may be open: to close a file frees every lock that this process has on it.
        """
        rest = b""
        with self._path.open("rb", buffering=0) as file:
            while piece := file.read(READ_BYTES):
                piece = rest + piece
                if any(text in piece for text in texts):
                    return True
                rest = piece[1 - max(map(len, texts)) :]
        return False

    def _write_anew(self, db: sqlite3.Connection) -> None:
        """Have SQLite write the whole file from its rows."""
        try:
            db.execute("VACUUM")
        except sqlite3.Error as error:
            left = (
                "The person is forgotten there, and old bytes of theirs may still stand in the file: run "
                "`sendonce recipients forget` again"
            )
            if _name_of(error) in {"SQLITE_BUSY", "SQLITE_LOCKED"}:
                raise Temporary(f"The record of recipients {self._path} is in use. {left}.") from None
            raise StateUnusable(
                f"The record of recipients {self._path} cannot be used: it could not be written anew ({error}). {left} "
                "when there is room for a copy of it, in its folder and in that for temporary files."
            ) from None

    def _remove_part(self) -> None:
        for suffix in (".part", ".part-wal", ".part-shm", ".part-journal"):
            _named(self._path, suffix).unlink(missing_ok=True)

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Hold the kernel lock beside the record. Raise LeaseBusy if another process has it."""
        self._check_folder(is_written=True)
        path = _named(self._path, ".guard")
        with self._translated():
            self._is_there(path, is_written=True)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LeaseBusy(
                    f"Another process is writing the record of recipients {self._path}. Nothing was changed: run "
                    "again when it is done."
                ) from None
            yield
        finally:
            os.close(fd)

    # ---- the file ----

    def _check_folder(self, *, is_written: bool) -> None:
        folder = self._path.parent
        with self._translated():
            if not folder.is_dir():
                raise StateUnusable(
                    f"The folder of the record of recipients {self._path} does not exist. An unmounted volume looks like "
                    "this, so it is not made anew: mount it, or run `sendonce init` if this is the first start."
                )
            found = folder.stat()
        us = os.geteuid()
        if us == 0 and not is_written:
            return  # an administrator may read what is another user's
        if found.st_uid not in {0, us}:
            raise self._unusable(
                f"its folder {folder} belongs to somebody else ({whose(found)}); run sendonce as that user, or give "
                f"the folder to this one (chown {us})"
            )
        if may_others_write(found):
            raise self._unusable(
                f"its folder {folder} may be written by other users ({whose(found)}); run chmod go-w {folder}"
            )

    def _is_there(self, path: Path, *, is_written: bool) -> bool:
        """Whether there is such a file. Raise StateUnusable if it is not ours alone: who got what is nobody else's.

        In a folder where only we can write it stays what it is; no descriptor is needed, which SQLite's locks bear ill.
        """
        try:
            found = path.lstat()
        except FileNotFoundError:
            return False
        it = "it" if path == self._path else path
        if stat.S_ISLNK(found.st_mode):
            raise self._unusable(
                f"{it} is a link; remove it, and name the file it leads to in SENDONCE_RECIPIENTS_FILE"
            )
        if not stat.S_ISREG(found.st_mode):
            raise self._unusable(f"{it} is {kind(found.st_mode)}, not a file; move it out of the way")
        us = os.geteuid()
        if found.st_uid != us and (is_written or us != 0):
            raise self._unusable(
                f"{it} belongs to somebody else ({whose(found)}); run sendonce as that user, or give it to this one "
                f"(chown {us})"
            )
        if found.st_mode & 0o077:
            raise self._unusable(f"{it} is open to other users ({whose(found)}); run chmod 600 {path}")
        return True

    def _make(self, path: Path) -> None:
        if not self._is_there(path, is_written=True):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))

    @contextmanager
    def _opened(self, *, is_written: bool = False) -> Iterator[sqlite3.Connection | None]:
        """Open the file, with its tables; None if there is no file."""
        self._check_folder(is_written=is_written)
        if not self._is_there(self._path, is_written=is_written):
            yield None
            return
        uri = f"{self._path.absolute().as_uri()}?mode=rw"
        # no transactions of the module's own making
        with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None)) as db:
            db.row_factory = sqlite3.Row
            db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            db.execute(
                "PRAGMA secure_delete = ON"
            )  # also of the second file; without it old rows stay in free room
            self._check(db)
            yield db

    def _check(self, db: sqlite3.Connection) -> None:
        """Make the tables in an empty file; see that another one is a record of this job."""
        if db.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is None:
            db.execute("BEGIN IMMEDIATE")
            if db.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is None:  # nobody was faster
                for statement in _TABLES.split(";"):
                    db.execute(statement)
                about = (VERSION, self._job, self._api, os.urandom(SALT_BYTES))
                db.execute("INSERT INTO about VALUES (1, ?, ?, ?, ?)", about)
            db.execute("COMMIT")
        # each by its name: of a table of somebody else's SQLite says that it lacks them
        found = db.execute("SELECT version, job, api, salt FROM about").fetchone()
        kinds = [] if found is None else list(map(type, found))
        if kinds != [int, str, str, bytes] or not 0 < len(found["salt"]) <= MAX_SALT_BYTES:
            raise self._unusable(_WHY["SQLITE_ERROR"])
        if found["version"] > VERSION:
            raise self._unusable("a newer sendonce made it; use that one")
        if found["job"] != self._job:
            raise self._unusable(f"it is that of the job {found['job']!a}, and this is {self._job!a}")
        if self._api and found["api"] not in {"", self._api}:
            raise self._unusable(f"it is about {found['api']}, and the settings say {self._api}")

    def _unusable(self, why: str) -> StateUnusable:
        return StateUnusable(
            f"The record of recipients {self._path} cannot be used: {why}. It is left as it is."
        )

    @contextmanager
    def _legible(self) -> Iterator[None]:
        """Round the reading of a row: one that is not as `_Writer` writes it is damage, and no bug of ours."""
        try:
            yield
        except (LookupError, TypeError, ValueError):
            raise self._unusable(_WHY["SQLITE_CORRUPT"]) from None

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn faults of SQLite and of the disk into ours."""
        try:
            yield
        except sqlite3.Error as error:
            name = _name_of(error)
            if name in {"SQLITE_BUSY", "SQLITE_LOCKED"}:
                raise Temporary(
                    f"The record of recipients {self._path} is in use. Nothing was changed: run again."
                ) from None
            raise self._unusable(_WHY.get(name, name or str(error))) from None
        except OSError as error:
            raise self._unusable(f"{error.filename or self._path}: {error.strerror}") from None


_WHY: Final = {
    "SQLITE_FULL": "its disk is full; free some space and run again",
    "SQLITE_IOERR": "its disk cannot be written or read; is it full, or is there a limit on file sizes (ulimit -f)",
    "SQLITE_READONLY": "it may not be written; give it to the user that runs sendonce (chmod 600)",
    "SQLITE_PERM": "it may not be written; give it to the user that runs sendonce (chmod 600)",
    "SQLITE_CANTOPEN": "it cannot be opened; give it to the user that runs sendonce (chmod 600)",
    "SQLITE_NOTADB": "it is no record; move it away and run `sendonce recipients sync` again",
    "SQLITE_CORRUPT": "it is damaged; move it away and run `sendonce recipients sync` again",
    "SQLITE_ERROR": "it is no record of sendonce; move it away and run `sendonce recipients sync` again",
}


class _Writer:
    """Reports on their way into the record; satisfies `RecipientWriter`."""

    def __init__(self, db: sqlite3.Connection, translated: Any, clock: Clock) -> None:
        self._db, self._translated, self._clock = db, translated, clock
        self._is_spoiled = False
        self._salt = _salt(db)
        self._forgotten = {row["email_id"] for row in db.execute("SELECT email_id FROM forgotten")}

    def begin(self, campaign: Mailed, total: int, *, keeps_addresses: bool) -> frozenset[int]:
        """Begin a report, or go on with it; see `RecipientWriter`."""
        with self._step() as db:
            on_record = db.execute("SELECT synced_at FROM campaigns WHERE id = ?", (campaign.id,)).fetchone()
            # over which record it goes: pages that are in there already, from before a crash, must not pass for new ones
            wanted = (total, int(keeps_addresses), on_record["synced_at"] if on_record else "")
            query = "SELECT total, keeps_addresses, over FROM part.reports WHERE id = ?"
            found = db.execute(query, (campaign.id,)).fetchone()
            if found is None or tuple(found) != wanted:
                self._delete(campaign)
                db.execute("INSERT INTO part.reports VALUES (?, ?, ?, ?)", (campaign.id, *wanted))
            pages = db.execute("SELECT page FROM part.pages WHERE id = ?", (campaign.id,))
            return frozenset(row["page"] for row in pages)

    def put(self, campaign: Mailed, page: int, rows: Collection[Recipient]) -> None:
        """Keep a page; see `RecipientWriter`."""
        with self._step("BEGIN") as db:  # of the second file alone
            done = db.execute("INSERT OR IGNORE INTO part.pages VALUES (?, ?)", (campaign.id, page))
            if not done.rowcount:
                return
            which = campaign.id
            kept = [
                (which, email_id, _PLACE[status], address or None)
                for email_id, status, address in buried(rows, self._forgotten, self._salt)
            ]
            db.executemany("INSERT INTO part.staged VALUES (?, ?, ?, ?)", kept)

    def complete(self, campaign: Mailed, total: int) -> Recorded:
        """Have the pages count; see `RecipientWriter`."""
        now = self._clock.now()
        with self._step() as db:
            found = db.execute("SELECT number FROM campaigns WHERE id = ?", (campaign.id,)).fetchone()
            values = _values(campaign, total, now)
            number = found["number"] if found else None
            if number is None:
                put = "INSERT INTO campaigns VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)"
                number = db.execute(put, values).lastrowid
            people = db.execute(_MERGE, (number, campaign.id)).rowcount
            is_whole = people == total
            if is_whole and found:
                self._drop_addresses(campaign, number)
                # who was deleted in Mailchimp since did get it all the same, and stays
                query = "SELECT count(*) AS people FROM recipients WHERE number = ?"
                total = db.execute(query, (number,)).fetchone()["people"]
                renew = (
                    "UPDATE campaigns SET id = ?, web_id = ?, date = ?, role = ?, title = ?, sent_at = ?, total = ?, "
                    "synced_at = ? WHERE number = ?"
                )
                db.execute(renew, (*_values(campaign, total, now), number))
            if not is_whole:
                db.execute("ROLLBACK")
        try:
            self.drop(campaign)
        except StateUnusable:  # it is on record, and the disk full: the file goes whole
            self._is_spoiled = True
        if not is_whole:
            raise Temporary(
                f"The report of campaign {campaign.id} changed while it was read: its {total} rows name only {people} "
                "people. The record is as it was: run again."
            )
        return Recorded(campaign, total, now)

    def _drop_addresses(self, campaign: Mailed, number: object) -> None:
        """Where addresses are not kept any more: also those of whom this report does not name, from before."""
        query = "SELECT keeps_addresses FROM part.reports WHERE id = ?"
        begun = self._db.execute(query, (campaign.id,)).fetchone()
        if begun is not None and not begun["keeps_addresses"]:
            empty = "UPDATE main.recipients SET address = NULL WHERE number = ? AND address IS NOT NULL"
            self._db.execute(empty, (number,))

    def drop(self, campaign: Mailed) -> None:
        """Drop the pages of a report; see `RecipientWriter`."""
        with self._step():
            self._delete(campaign)

    def close(self) -> bool:
        """Let go of the second file; whether there is nothing in it that is still needed."""
        with suppress(sqlite3.Error):
            is_empty = self._db.execute("SELECT 1 FROM part.reports LIMIT 1").fetchone() is None
            self._db.execute("DETACH part")
            return is_empty or self._is_spoiled
        return self._is_spoiled

    def _delete(self, campaign: Mailed) -> None:
        is_only_one = not self._db.execute(
            "SELECT 1 FROM part.reports WHERE id <> ? LIMIT 1", (campaign.id,)
        ).fetchone()
        for table in ("reports", "pages", "staged"):
            # without a condition SQLite throws away the table whole
            which = "" if is_only_one else " WHERE id = ?"
            self._db.execute(f"DELETE FROM part.{table}{which}", () if is_only_one else (campaign.id,))  # noqa: S608 - our own words

    @contextmanager
    def _step(self, begin: str = "BEGIN IMMEDIATE") -> Iterator[sqlite3.Connection]:
        """One transaction; rolled back if it fails, or was before."""
        with self._translated():
            self._db.execute(begin)
            try:
                yield self._db
                if self._db.in_transaction:
                    self._db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    if self._db.in_transaction:
                        self._db.execute("ROLLBACK")
                raise


def _attach(db: sqlite3.Connection, part: Path) -> None:
    """Open the second file as `part`, and see that it can be gone on with. Raise DatabaseError if not."""
    db.execute("ATTACH ? AS part", (str(part),))
    # the guard keeps others away, so that a log needs no memory shared with them, and no file system that has it
    db.execute("PRAGMA part.locking_mode = EXCLUSIVE")
    db.execute("PRAGMA part.journal_mode = WAL")
    # after a power failure some of the last pages may be missing, and are read again
    db.execute("PRAGMA part.synchronous = NORMAL")
    for statement in _PART_TABLES.split(";"):
        db.execute(statement)
    for look in _PART_LOOKS:
        db.execute(look)
    # its pages each by each: else one shows only when its report is to count, and then every time
    if (found := db.execute("PRAGMA part.quick_check(1)").fetchone()[0]) != "ok":
        damage = sqlite3.DatabaseError(found)
        damage.sqlite_errorname = "SQLITE_CORRUPT"
        raise damage


def _name_of(error: sqlite3.Error) -> str:
    return "_".join(str(getattr(error, "sqlite_errorname", "")).split("_")[:2])


def _salt(db: sqlite3.Connection) -> bytes:
    salt: bytes = db.execute("SELECT salt FROM about").fetchone()["salt"]
    return salt


def _values(campaign: Mailed, total: int, now: datetime) -> tuple[object, ...]:
    sent_at = campaign.sent_at.isoformat() if campaign.sent_at else None
    it = campaign
    return (it.id, it.web_id, it.date, it.role, it.title, sent_at, total, now.isoformat())


def _campaign(row: sqlite3.Row) -> Mailed:
    sent_at = datetime.fromisoformat(row["sent_at"]) if row["sent_at"] else None
    web_id = None if row["web_id"] is None else int(row["web_id"])
    which, date, title, role = (_text(row[name]) for name in ("id", "date", "title", "role"))
    return Mailed(which, date, title, role, web_id, sent_at)


def _recorded(row: sqlite3.Row) -> Recorded:
    return Recorded(_campaign(row), int(row["total"]), datetime.fromisoformat(row["synced_at"]))


def _row(row: sqlite3.Row) -> Row:
    address = _text(row["address"] or "")
    return Row(_campaign(row), _id(row["email_id"]), status_at(row["status"]), address)


def _duplicate(row: sqlite3.Row) -> Duplicate:
    ids = tuple(sorted(_text(row["ids"]).split()))
    return Duplicate(_text(row["date"]), _id(row["email_id"]), ids, _text(row["address"] or ""))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _id(value: object) -> bytes:
    if not isinstance(value, bytes) or len(value) != ID_BYTES:
        raise TypeError(value)
    return value


def _named(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
