"""What every record of recipients does, in a file and in each database: the same, to the letter."""

from __future__ import annotations

import os
import sqlite3
import stat
import tracemalloc
from datetime import UTC, datetime, timedelta
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event, update

from sendonce.adapters.clock import SystemClock
from sendonce.adapters.recipients import LOOK_UP, FileRecipients
from sendonce.adapters.shared import sql
from sendonce.adapters.shared.backend import ANSWER_WAIT_S
from sendonce.adapters.shared.recipients import SqlRecipients, look_up
from sendonce.adapters.shared.sql import SqlBackend
from sendonce.core.errors import LeaseBusy, StateUnusable, StoreDown, Temporary
from sendonce.core.recipients import Duplicate, Got, Mailed, Recipient, Row, tombstone_of
from support import servers
from support.places import SQL, Place, new_place
from support.runs import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sendonce.core.ports import RecipientRecord

DAY = "2026-01-05"
AT = datetime(2026, 1, 5, 8, 0, 4, tzinfo=UTC)
MAIN = Mailed("1a2b3c4d5e", DAY, "Früh­stück ☕ \U0001f600 'x' \"%s\"", "main", 4711, AT)
TWIN = Mailed("2b3c4d5e6f", DAY, "twin", "twin", None, AT + timedelta(minutes=1))
NEXT = Mailed("3c4d5e6f7a", "2026-01-06", "next", "main", 4713, None)
ANN, BEN, CAT, DAN = (bytes([n]) * 16 for n in (0xA1, 0xB2, 0xC3, 0xD4))
KINDS = ("file", *SQL)


@pytest.fixture(params=KINDS)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], RecipientRecord]:
    """Open the record of a job that no other test knows, each time as another process would."""
    kind: str = request.param
    if kind == "file":
        return lambda: FileRecipients(tmp_path / "x.recipients.db", job="x", api="", clock=SystemClock())
    place = new_place(kind, tmp_path)
    return lambda: in_database(place)


def in_database(place: Place) -> SqlRecipients:
    backend = place.backend()
    assert isinstance(backend, SqlBackend)
    return SqlRecipients(backend, job=place.job, clock=SystemClock())


def is_waiting(kind: str) -> bool:
    """Whether somebody waits for a lock of that server."""
    query = {
        "postgresql": "SELECT '', count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
        "mariadb": "SHOW STATUS LIKE 'Innodb_row_lock_current_waits'",
    }[kind]
    [(_, count)] = servers.shared(kind).asked(query)
    return int(count) > 0


def people(*names: bytes, status: str = "sent", address: str = "") -> list[Recipient]:
    return [Recipient(name, status, address) for name in names]


def put(record: RecipientRecord, campaign: Mailed, *pages: list[Recipient], keeps: bool = False) -> int:
    """Have a report on record; how many people it has there."""
    total = sum(map(len, pages))
    with record.writing() as writer:
        there = writer.begin(campaign, total, keeps_addresses=keeps)
        for number, rows in enumerate(pages):
            if number not in there:
                writer.put(campaign, number, rows)
        return writer.complete(campaign, total).total


def ids(record: RecipientRecord, who: bytes) -> list[str]:
    return [got.campaign.id for got in record.got(who)]


def test_an_empty_record_knows_nobody(opened: Callable[[], RecipientRecord]) -> None:
    record = opened()
    assert record.campaigns("", "9999-99-99") == ()
    assert record.got(ANN) == ()
    assert list(record.duplicates("", "9999-99-99")) == []
    assert list(record.rows(DAY)) == []
    assert record.count(DAY) == 0
    assert list(record.addresses_of(DAY, 10)) == []


def test_what_is_put_in_comes_out_to_the_letter(opened: Callable[[], RecipientRecord]) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    assert put(opened(), MAIN, people(BEN, status="hard"), people(ANN)) == 2
    record = opened()
    [recorded] = record.campaigns(DAY, DAY)
    assert (recorded.campaign, recorded.total) == (MAIN, 2)
    assert before <= recorded.synced_at <= datetime.now(UTC)
    assert record.got(BEN) == (Got(MAIN, "hard"),)
    assert record.got(CAT) == ()
    assert list(record.rows(DAY)) == [Row(MAIN, ANN, "sent"), Row(MAIN, BEN, "hard")]
    assert record.campaigns("2026-01-06", "9999-99-99") == ()


def test_a_report_that_is_not_complete_does_not_count(opened: Callable[[], RecipientRecord]) -> None:
    with opened().writing() as writer:
        writer.begin(MAIN, 4, keeps_addresses=True)
        writer.put(MAIN, 0, people(ANN, BEN, address="a@example.com"))
    record = opened()
    assert record.campaigns("", "9999-99-99") == ()
    assert record.got(ANN) == ()
    assert list(record.rows(DAY)) == []
    assert list(record.addresses_of(DAY, 9)) == []
    assert record.count(DAY) == 0


def test_pages_that_were_put_in_are_there_for_the_next_process(opened: Callable[[], RecipientRecord]) -> None:
    with opened().writing() as writer:
        assert set(writer.begin(MAIN, 3, keeps_addresses=False)) == set()
        writer.put(MAIN, 1, people(CAT))
    with opened().writing() as writer:
        assert set(writer.begin(MAIN, 3, keeps_addresses=False)) == {1}
        writer.put(MAIN, 1, people(DAN))  # it is there already, and stays
        writer.put(MAIN, 0, people(ANN, BEN))
        assert writer.complete(MAIN, 3).total == 3
    assert [row.email_id for row in opened().rows(DAY)] == [ANN, BEN, CAT]


@pytest.mark.parametrize(("total", "keeps"), [(4, False), (3, True)])
def test_a_report_of_another_total_or_with_addresses_starts_over(
    opened: Callable[[], RecipientRecord], total: int, keeps: bool
) -> None:
    with opened().writing() as writer:
        writer.begin(MAIN, 3, keeps_addresses=False)
        writer.put(MAIN, 1, people(CAT))
        writer.begin(TWIN, 3, keeps_addresses=False)
        writer.put(TWIN, 1, people(CAT))
    with opened().writing() as writer:
        assert set(writer.begin(MAIN, total, keeps_addresses=keeps)) == set()
        assert set(writer.begin(TWIN, 3, keeps_addresses=False)) == {1}  # the other goes on


def test_a_report_that_names_somebody_twice_leaves_the_record_as_it_was(
    opened: Callable[[], RecipientRecord],
) -> None:
    put(opened(), TWIN, people(ANN))
    with pytest.raises(Temporary, match="changed while it was read"):
        put(opened(), MAIN, people(ANN, BEN), people(BEN, CAT))
    record = opened()
    assert [one.campaign for one in record.campaigns("", "9999-99-99")] == [TWIN]
    assert ids(record, ANN) == [TWIN.id]
    assert ids(record, BEN) == []
    with record.writing() as writer:
        assert set(writer.begin(MAIN, 4, keeps_addresses=False)) == set()  # and starts over


def test_a_report_with_a_page_missing_leaves_the_record_as_it_was(
    opened: Callable[[], RecipientRecord],
) -> None:
    with opened().writing() as writer:
        writer.begin(MAIN, 3, keeps_addresses=False)
        writer.put(MAIN, 0, people(ANN, BEN))
        with pytest.raises(Temporary, match="changed while it was read"):
            writer.complete(MAIN, 3)
    assert opened().campaigns("", "9999-99-99") == ()


def test_a_report_of_nobody_counts(opened: Callable[[], RecipientRecord]) -> None:
    assert put(opened(), MAIN, []) == 0
    assert [one.total for one in opened().campaigns(DAY, DAY)] == [0]


def test_a_dropped_report_is_gone(opened: Callable[[], RecipientRecord]) -> None:
    with opened().writing() as writer:
        writer.begin(MAIN, 1, keeps_addresses=False)
        writer.put(MAIN, 0, people(ANN))
        writer.drop(MAIN)
        assert set(writer.begin(MAIN, 1, keeps_addresses=False)) == set()


def test_a_report_that_is_read_again_renews_and_loses_nobody(opened: Callable[[], RecipientRecord]) -> None:
    """Who was deleted in Mailchimp since did get it all the same."""
    put(opened(), MAIN, people(ANN, BEN, address="old@example.com"), keeps=True)
    put(opened(), NEXT, people(ANN))
    assert put(opened(), MAIN, people(BEN, status="hard"), people(CAT)) == 3
    record = opened()
    assert [(one.campaign.id, one.total) for one in record.campaigns("", "9999-99-99")] == [
        (MAIN.id, 3),
        (NEXT.id, 1),
    ]
    assert record.got(BEN) == (Got(MAIN, "hard"),)
    assert ids(record, ANN) == [MAIN.id, NEXT.id]
    assert ids(record, CAT) == [MAIN.id]
    assert record.count(DAY) == 3


def test_where_addresses_are_not_kept_any_more_a_report_that_is_read_again_takes_away_those_of_before(
    opened: Callable[[], RecipientRecord],
) -> None:
    """Also of who is in no report any more; those of other campaigns stay until theirs is read again."""
    for campaign in (MAIN, NEXT):
        put(opened(), campaign, people(ANN, BEN, address="old@example.com"), keeps=True)
    assert put(opened(), MAIN, people(BEN)) == 2
    record = opened()
    assert list(record.rows(DAY)) == [Row(MAIN, ANN, "sent"), Row(MAIN, BEN, "sent")]
    assert list(record.addresses_of(DAY, 9)) == []
    assert len(list(record.addresses_of(NEXT.date, 9))) == 2


def test_pages_of_before_do_not_pass_for_those_of_a_report_that_is_read_again(path: Path) -> None:
    """A crash between the commit of the record and the removal of its pages."""
    with in_file(path).writing() as writer:
        writer.begin(MAIN, 1, keeps_addresses=False)
        writer.put(MAIN, 0, people(ANN))
        before = {p: p.read_bytes() for p in path.parent.iterdir() if ".part" in p.name}
        writer.complete(MAIN, 1)
    for copy, data in before.items():
        copy.touch(mode=0o600)
        copy.write_bytes(data)
    with in_file(path).writing() as writer:
        assert set(writer.begin(MAIN, 1, keeps_addresses=False)) == set()


def test_who_got_two_campaigns_of_a_date_is_found_and_two_dates_are_no_duplicate(
    opened: Callable[[], RecipientRecord],
) -> None:
    put(opened(), MAIN, people(ANN, BEN, CAT))
    put(opened(), NEXT, people(ANN, DAN))
    record = opened()
    assert list(record.duplicates("", "9999-99-99")) == []
    put(record, TWIN, people(CAT, DAN, ANN))
    both = (MAIN.id, TWIN.id)
    assert list(record.duplicates("", "9999-99-99")) == [Duplicate(DAY, ANN, both), Duplicate(DAY, CAT, both)]
    assert list(record.duplicates(DAY, DAY)) == [Duplicate(DAY, ANN, both), Duplicate(DAY, CAT, both)]
    assert list(record.duplicates("2026-01-06", "2026-01-06")) == []
    assert record.count(DAY) == 4


def test_who_is_forgotten_counts_on_and_is_named_nowhere(opened: Callable[[], RecipientRecord]) -> None:
    put(
        opened(),
        MAIN,
        people(ANN, address="ann@example.com"),
        people(BEN, address="ben@example.com"),
        keeps=True,
    )
    put(opened(), TWIN, people(ANN, address="ann@example.com"), keeps=True)
    assert opened().forget(ANN) == 2
    record = opened()
    assert record.got(ANN) == (
        Got(MAIN, "sent", is_forgotten=True),
        Got(TWIN, "sent", is_forgotten=True),
    )
    assert record.count(DAY) == 2
    assert [len(d.campaigns) for d in record.duplicates(DAY, DAY)] == [2]
    assert ANN not in {row.email_id for row in record.rows(DAY)}
    assert list(record.addresses_of(DAY, 9)) == ["ben@example.com"]
    assert record.forget(ANN) == 0


def test_no_later_report_brings_back_who_is_forgotten(opened: Callable[[], RecipientRecord]) -> None:
    put(opened(), MAIN, people(ANN, BEN))
    opened().forget(ANN)
    opened().forget(CAT)  # of whom nothing is on record yet
    put(opened(), MAIN, people(ANN, BEN, address="x@example.com"), keeps=True)
    put(opened(), NEXT, people(ANN, BEN, CAT, address="x@example.com"), keeps=True)
    record = opened()
    named = {row.email_id for day in (DAY, NEXT.date) for row in record.rows(day)}
    assert named & {ANN, BEN, CAT} == {BEN}
    assert [(got.campaign.id, got.is_forgotten, got.address) for got in record.got(ANN)] == [
        (MAIN.id, True, ""), (NEXT.id, True, ""),
    ]  # fmt: skip
    assert [got.is_forgotten for got in record.got(CAT)] == [True]
    assert (record.count(DAY), record.count(NEXT.date)) == (2, 3)


def test_a_report_that_is_half_way_in_when_somebody_is_forgotten_starts_over(
    opened: Callable[[], RecipientRecord],
) -> None:
    with opened().writing() as writer:
        writer.begin(MAIN, 2, keeps_addresses=True)
        writer.put(MAIN, 0, people(ANN, address="ann@example.com"))
    assert opened().forget(ANN) == 0
    with opened().writing() as writer:
        assert set(writer.begin(MAIN, 2, keeps_addresses=True)) == set()


def test_addresses_come_once_each_and_as_many_as_are_asked_for(opened: Callable[[], RecipientRecord]) -> None:
    rows = [
        Recipient(ANN, "sent", "ann@example.com"),
        Recipient(BEN, "sent", "ben@example.com"),
        Recipient(CAT, "sent"),
    ]
    put(opened(), MAIN, rows, keeps=True)
    put(opened(), TWIN, rows, keeps=True)
    record = opened()
    assert list(record.addresses_of(DAY, 9)) == ["ann@example.com", "ben@example.com"]
    assert list(record.addresses_of(DAY, 1)) == ["ann@example.com"]
    assert list(record.addresses_of(DAY, 0)) == []
    assert list(record.addresses_of(NEXT.date, 9)) == []


def test_many_rows_come_in_the_order_of_people_across_every_page(
    opened: Callable[[], RecipientRecord],
) -> None:
    """More than are read at a time, and people with two rows at the seams."""
    everybody = [n.to_bytes(16) for n in range(6001)]
    put(opened(), MAIN, people(*everybody[:3000]), people(*everybody[3000:]))
    put(opened(), TWIN, people(*everybody))
    rows = [(row.email_id, row.campaign.id) for row in opened().rows(DAY)]
    assert rows == [(who, one) for who in everybody for one in (MAIN.id, TWIN.id)]


def test_no_address_is_found_without_reading_a_row(tmp_path: Path) -> None:
    place = new_place("sqlite", tmp_path)
    put(in_database(place), MAIN, people(*(n.to_bytes(16) for n in range(6000))))
    record = in_database(place)
    statements: list[str] = []
    for engine in (record._backend._engine, record._backend._patient_engine):
        event.listen(engine, "before_cursor_execute", lambda *it: statements.append(it[2]))
    assert list(record.addresses_of(DAY, 5)) == []
    [query] = [it for it in statements if "FROM sendonce_recipients" in it]
    assert "address IS NOT NULL" in query


@pytest.mark.parametrize("opened", SQL, indirect=True)
def test_who_got_two_is_read_as_it_is_asked_for(opened: Callable[[], RecipientRecord]) -> None:
    everybody = [n.to_bytes(16) for n in range(15_000)]
    for campaign in (MAIN, TWIN):
        put(opened(), campaign, people(*everybody))
    record = opened()
    record.campaigns(DAY, DAY)  # by now all that is made once is there
    tracemalloc.start()
    try:
        assert sum(1 for _ in record.duplicates(DAY, DAY)) == 15_000
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4_000_000, peak_bytes


def test_a_step_about_everybody_may_take_longer_on_mysql_than_one_of_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "ANSWER_WAIT_S", 0.5)  # twice that is the limit
    place = new_place("mariadb", tmp_path)
    record = in_database(place)
    with pytest.raises(StoreDown), record._backend.transaction() as db:
        db.exec_driver_sql("SELECT SLEEP(1.5)")
    with record._backend.transaction(is_long=True) as db:
        db.exec_driver_sql("SELECT SLEEP(1.5)")
    long_ones: list[str] = []
    event.listen(
        record._backend._patient_engine, "before_cursor_execute", lambda *it: long_ones.append(it[2])
    )
    put(record, MAIN, people(ANN))
    assert any(it.startswith("INSERT INTO sendonce_recipients ") for it in long_ones)
    record.count(DAY)
    assert "count(" in long_ones[-1]


# ------------------------------------------------------------------------------------------------- the file alone


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "daily.recipients.db"


def in_file(path: Path, job: str = "daily", api: str = "us1.api.mailchimp.com") -> FileRecipients:
    return FileRecipients(path, job=job, api=api, clock=SystemClock())


def test_every_file_is_for_its_owner_alone_and_none_is_made_by_reading(path: Path) -> None:
    assert in_file(path).got(ANN) == ()
    assert list(path.parent.iterdir()) == []
    with in_file(path).writing() as writer:
        writer.begin(MAIN, 1, keeps_addresses=False)
        writer.put(MAIN, 0, people(ANN))
        modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in path.parent.iterdir()}
        assert {"daily.recipients.db", "daily.recipients.db.part", "daily.recipients.db.guard"} <= set(modes)
        assert set(modes.values()) == {0o600}
        writer.complete(MAIN, 1)
    assert sorted(p.name for p in path.parent.iterdir()) == [
        "daily.recipients.db",
        "daily.recipients.db.guard",
    ]


def test_two_processes_do_not_write_one_record(path: Path) -> None:
    with in_file(path).writing():
        with pytest.raises(LeaseBusy, match="Another process is writing"), in_file(path).writing():
            pass
        with pytest.raises(LeaseBusy, match="Another process is writing"):
            in_file(path).forget(ANN)
    assert in_file(path).forget(ANN) == 0


def test_nothing_of_who_is_forgotten_stays_in_the_file(path: Path) -> None:
    everybody = [Recipient(bytes([n]) * 16, "sent", f"somebody{n}@example.com") for n in range(200)]
    put(in_file(path), MAIN, everybody, keeps=True)
    assert b"somebody77@example.com" in path.read_bytes()
    in_file(path).forget(bytes([77]) * 16)
    left = b"".join(p.read_bytes() for p in path.parent.iterdir())
    assert b"somebody77@example.com" not in left
    assert bytes([77]) * 16 not in left
    assert b"somebody78@example.com" in left


@pytest.fixture
def careless(monkeypatch: pytest.MonkeyPatch) -> None:
    """An SQLite that leaves what is deleted where it is, as many are built; Debian's is not."""
    connect = sqlite3.connect

    def connected(*args: Any, **options: Any) -> sqlite3.Connection:
        db: sqlite3.Connection = connect(*args, **options)
        db.execute("PRAGMA secure_delete = OFF")
        return db

    monkeypatch.setattr(sqlite3, "connect", connected)


def bytes_of(path: Path) -> bytes:
    """All that stands in the record and beside it."""
    return b"".join(p.read_bytes() for p in path.parent.iterdir())


NAMED = [Recipient(bytes([n]) * 16, "sent", f"somebody{n}@example.com") for n in range(200)]


def leave(path: Path, text: bytes) -> None:
    """Have these bytes in a page of the file that is free: an SQLite may be built to leave old rows so."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA secure_delete = OFF")
    db.execute("CREATE TABLE room (what)")
    db.execute("INSERT INTO room VALUES (?)", (text,))
    db.commit()
    db.execute("DROP TABLE room")
    db.commit()
    db.close()
    assert text in bytes_of(path)


def test_nothing_of_who_is_forgotten_stays_in_a_file_that_was_written_before(path: Path) -> None:
    """Not even an address that no row has any more."""
    put(in_file(path), MAIN, [row._replace(address="") for row in NAMED])
    leave(path, b"somebody77@example.com")
    assert in_file(path).forget(bytes([77]) * 16) == 1
    assert b"somebody77@example.com" not in bytes_of(path)
    assert bytes([77]) * 16 not in bytes_of(path)
    assert bytes([78]) * 16 in bytes_of(path)


@pytest.mark.parametrize("text", [bytes([77]) * 16, b"somebody77@example.com"])
def test_no_copy_of_a_row_that_sqlite_left_behind_outlives_who_is_forgotten(path: Path, text: bytes) -> None:
    """As when rows are moved from page to page: also in a file that was written anew before."""
    put(in_file(path), MAIN, NAMED, keeps=True)
    in_file(path).forget(CAT)
    leave(path, text)
    in_file(path).forget(bytes([77]) * 16)
    assert bytes([77]) * 16 not in bytes_of(path)
    assert b"somebody77@example.com" not in bytes_of(path)


@pytest.mark.usefixtures("careless")
def test_what_is_deleted_is_overwritten_however_sqlite_is_built(path: Path) -> None:
    """Here a page of a report that turned out to be none."""
    with in_file(path).writing() as writer:
        writer.begin(TWIN, 2, keeps_addresses=True)
        for campaign in (MAIN, TWIN):
            writer.begin(campaign, 2, keeps_addresses=True)
            writer.put(campaign, 0, people(ANN, address=f"{campaign.title[:2]}@example.com"))
        writer.drop(MAIN)
    left = sqlite3.connect(path.with_name(f"{path.name}.part"))
    left.close()
    assert b"tw@example.com" in bytes_of(path)
    assert f"{MAIN.title[:2]}@example.com".encode() not in bytes_of(path)


def test_a_file_that_cannot_be_written_anew_is_so_when_somebody_is_forgotten_next(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(in_file(path), MAIN, NAMED, keeps=True)
    leave(path, b"somebody77@example.com")
    connect = sqlite3.connect

    def refusing(*args: Any, **options: Any) -> sqlite3.Connection:
        db: sqlite3.Connection = connect(*args, **options)
        db.set_authorizer(lambda what, *_: sqlite3.SQLITE_DENY if what == sqlite3.SQLITE_ATTACH else 0)
        return db

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", refusing)  # to be written anew is to be attached another file
        with pytest.raises(StateUnusable, match=r"could not be written anew.* forget` again"):
            in_file(path).forget(bytes([77]) * 16)
    assert b"somebody77@example.com" in bytes_of(path)
    assert in_file(path).forget(bytes([77]) * 16) == 0
    assert b"somebody77@example.com" not in bytes_of(path)


def make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


@pytest.mark.parametrize(
    "name", ["daily.recipients.db", "daily.recipients.db.part", "daily.recipients.db.guard"]
)
@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda p: p.chmod(0o666), r"open to other users \(owner uid \d+, mode 0666.*chmod 600 "),
        (lambda p: p.chmod(0o640), r"open to other users"),
        (lambda p: p.rename(p.with_name("x")) and p.symlink_to("x"), "is a link; .*SENDONCE_RECIPIENTS_FILE"),
        (lambda p: p.unlink() or p.symlink_to("nothing"), "is a link; .*SENDONCE_RECIPIENTS_FILE"),
        (make_pipe, "is a pipe .*not a file"),
    ],
    ids=["open", "readable", "link", "dangling link", "pipe"],
)
def test_a_file_that_is_not_ours_alone_is_not_written(
    path: Path, name: str, made: Callable[[Path], object], said: str
) -> None:
    put(in_file(path), MAIN, people(ANN))
    path.with_name(name).touch(mode=0o600)
    made(path.with_name(name))
    with pytest.raises(StateUnusable, match=said), in_file(path).writing():
        pass
    if name == path.name:
        with pytest.raises(StateUnusable, match=said):
            in_file(path).got(ANN)


def test_a_record_in_a_folder_where_others_write_is_not_used(path: Path) -> None:
    put(in_file(path), MAIN, people(ANN))
    path.parent.chmod(0o777)
    with pytest.raises(StateUnusable, match=f"may be written by other users .*chmod go-w {path.parent}"):
        in_file(path).forget(ANN)
    path.parent.chmod(0o700)
    assert ids(in_file(path), ANN) == [MAIN.id]


# .ci/run has the suite run as root and as nobody: this is not skipped by the first
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("which", ["file", "folder"])
def test_what_is_somebody_elses_is_not_written_and_an_administrator_may_read_it(
    path: Path, which: str
) -> None:
    put(in_file(path), MAIN, people(ANN))
    os.chown(path if which == "file" else path.parent, 65534, 65534)
    with pytest.raises(StateUnusable, match=r"belongs to somebody else .*owner uid 65534"):
        in_file(path).forget(ANN)
    assert ids(in_file(path), ANN) == [MAIN.id]


def test_a_look_up_uses_the_index_of_people(path: Path) -> None:
    put(in_file(path), MAIN, people(ANN))
    db = sqlite3.connect(path)
    plan = [
        row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {LOOK_UP}", (ANN, tombstone_of(ANN, bytes(32))))
    ]
    db.close()
    assert "SEARCH r USING PRIMARY KEY (email_id=?)" in plan
    assert not any("SCAN" in step for step in plan), plan


@pytest.mark.parametrize(
    ("kind", "word", "said"),
    [
        ("sqlite", "EXPLAIN QUERY PLAN", "sendonce_recipients USING PRIMARY KEY (email_id=?)"),
        ("postgresql", "EXPLAIN", "on sendonce_recipients_pkey|using sendonce_recipients_pkey"),
        (
            "mariadb",
            "EXPLAIN",
            "'sendonce_recipients', 'range', 'PRIMARY', 'PRIMARY', '16'",
        ),
    ],
)
def test_a_look_up_in_a_database_uses_the_index_of_people(
    kind: str, word: str, said: str, tmp_path: Path
) -> None:
    place = new_place(kind, tmp_path)
    put(in_database(place), MAIN, people(*(n.to_bytes(16) for n in range(5000))))
    backend = place.backend()
    assert isinstance(backend, SqlBackend)
    with backend.transaction() as db:
        if kind == "postgresql":
            db.exec_driver_sql("ANALYZE sendonce_recipients")
        query = look_up([ANN, BEN])
        made = query.compile(dialect=db.dialect, compile_kwargs={"render_postcompile": True})
        names = made.positiontup
        values = made.params if names is None else tuple(made.params[name] for name in names)
        plan = "\n".join(str(row) for row in db.exec_driver_sql(f"{word} {made}", values))
    assert any(part in plan for part in said.split("|")), plan


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (
            lambda p: p.write_bytes(b"no database at all, but long enough to be looked at" * 20),
            "it is no record",
        ),
        (lambda p: put(in_file(p, job="other"), MAIN, []), "it is that of the job 'other'"),
        (
            lambda p: put(in_file(p, api="us2.api.mailchimp.com"), MAIN, []),
            "it is about us2.api.mailchimp.com",
        ),
        (
            lambda p: sqlite3.connect(p).execute("CREATE TABLE x (y)").connection.close(),
            "it is no record of sendonce",
        ),
        (lambda p: p.mkdir(), "it is a folder, not a file"),
        (lambda p: damage(p, "DROP TABLE about; CREATE TABLE about (x)"), "it is no record of sendonce"),
        (lambda p: damage(p, "DELETE FROM about"), "it is no record of sendonce"),
        (lambda p: damage(p, "UPDATE about SET version = 'x'"), "it is no record of sendonce"),
        (lambda p: damage(p, "UPDATE about SET salt = 'x'"), "it is no record of sendonce"),
        (lambda p: damage(p, "UPDATE about SET salt = zeroblob(65)"), "it is no record of sendonce"),
    ],
    ids=[
        "no database", "other job", "other account", "other database", "folder",
        "other columns", "no row", "no version", "no salt", "long salt",
    ],
)  # fmt: skip
def test_a_file_that_is_not_the_record_is_left_as_it_is(
    path: Path, made: Callable[[Path], object], said: str
) -> None:
    made(path)
    if path.is_file():
        path.chmod(0o600)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(StateUnusable, match=said):
        in_file(path).got(ANN)
    with pytest.raises(StateUnusable):
        in_file(path).forget(ANN)
    assert (path.read_bytes() if path.is_file() else b"") == before


def damage(path: Path, script: str) -> None:
    """Make a record of two campaigns of a date, with Ann in both, and do this to it."""
    put(in_file(path), MAIN, people(ANN, address="ann@example.com"), keeps=True)
    put(in_file(path), TWIN, people(ANN))
    db = sqlite3.connect(path)
    db.executescript(script)
    db.close()


@pytest.mark.parametrize(
    "script",
    [
        "UPDATE recipients SET status = 9",
        "UPDATE recipients SET status = -1",
        "UPDATE recipients SET status = 'x'",
        "UPDATE recipients SET address = x'00'",
        "UPDATE campaigns SET sent_at = 'x'",
        "UPDATE campaigns SET title = x'00'",
        "UPDATE campaigns SET web_id = 'x'",
        "ALTER TABLE campaigns RENAME title TO x",
    ],
)
def test_a_row_that_was_never_written_like_that_is_damage_and_no_bug(path: Path, script: str) -> None:
    damage(path, script)
    for ask in (lambda: in_file(path).got(ANN), lambda: list(in_file(path).rows(DAY))):
        with pytest.raises(StateUnusable, match="it is damaged; move it away"):
            ask()


@pytest.mark.parametrize(
    "script",
    ["UPDATE campaigns SET synced_at = 'x'", "UPDATE campaigns SET total = 'x'"],
)
def test_a_campaign_that_was_never_written_like_that_is_damage_and_no_bug(path: Path, script: str) -> None:
    damage(path, script)
    with pytest.raises(StateUnusable, match="it is damaged; move it away"):
        in_file(path).campaigns("", "9999-99-99")


def test_duplicates_and_addresses_of_damaged_rows_are_no_bug(path: Path) -> None:
    damage(path, "UPDATE recipients SET address = x'00'")
    with pytest.raises(StateUnusable, match="it is damaged"):
        list(in_file(path).duplicates("", "9999-99-99"))
    with pytest.raises(StateUnusable, match="it is damaged"):
        list(in_file(path).addresses_of(DAY, 9))
    with pytest.raises(StateUnusable, match="it is damaged"):
        in_file(path).forget(ANN)


@pytest.mark.parametrize("kind", SQL)
def test_a_status_in_a_database_that_is_none_is_no_bug(kind: str, tmp_path: Path) -> None:
    place = new_place(kind, tmp_path)
    put(in_database(place), MAIN, people(ANN))
    backend = place.backend()
    assert isinstance(backend, SqlBackend)
    with backend.transaction() as db:
        db.execute(update(sql.recipients).where(sql.recipients.c.email_id == ANN).values(status=9))
    with pytest.raises(StateUnusable, match="it has the status 9"):
        in_database(place).got(ANN)


def half_way(path: Path) -> None:
    """Have a report half way in, of enough people to fill many pages of the file."""
    with in_file(path).writing() as writer:
        writer.begin(MAIN, 1000, keeps_addresses=False)
        writer.put(MAIN, 0, people(*(n.to_bytes(16) for n in range(500))))


def other_tables(part: Path) -> None:
    part.unlink()
    db = sqlite3.connect(part)
    db.execute("CREATE TABLE reports (x)")
    db.close()
    part.chmod(0o600)


def cut(part: Path, at: int, length: int) -> None:
    text = part.read_bytes()
    part.write_bytes(text[:at] + bytes([0xFF]) * length + text[at + length :])


@pytest.mark.parametrize(
    "damaging",
    [
        lambda part: part.write_bytes(b"no database at all, but long enough to be looked at" * 99),
        lambda part: part.write_bytes(part.read_bytes()[:9000]),
        lambda part: cut(part, part.stat().st_size - 9000, 8000),
        other_tables,
    ],
    ids=["no database", "cut off", "damaged pages", "other tables"],
)
def test_a_half_read_report_that_is_damaged_is_dropped_with_a_warning_and_begun_anew(
    path: Path, damaging: Callable[[Path], object]
) -> None:
    put(in_file(path), TWIN, people(BEN))
    half_way(path)
    damaging(path.with_name("daily.recipients.db.part"))
    record, warned = in_file(path), list[str]()
    record.warn = warned.append
    assert put(record, MAIN, people(*(n.to_bytes(16) for n in range(1, 501))), people(ANN)) == 501
    [warning] = warned
    assert "daily.recipients.db.part was damaged, and is dropped" in warning
    assert (ids(in_file(path), ANN), ids(in_file(path), BEN)) == ([MAIN.id], [TWIN.id])
    assert not path.with_name("daily.recipients.db.part").exists()


def test_a_half_read_report_that_is_sound_is_not_dropped(path: Path) -> None:
    half_way(path)
    record, warned = in_file(path), list[str]()
    record.warn = warned.append
    with record.writing() as writer:
        assert writer.begin(MAIN, 1000, keeps_addresses=False) == {0}
    assert warned == []


def test_a_record_of_a_newer_sendonce_is_left_to_it(path: Path) -> None:
    put(in_file(path), MAIN, [])
    db = sqlite3.connect(path)
    db.execute("UPDATE about SET version = 2")
    db.commit()
    db.close()
    with pytest.raises(StateUnusable, match="a newer sendonce made it"):
        in_file(path).campaigns("", "9999-99-99")


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    record = in_file(tmp_path / "away" / "daily.recipients.db")
    with pytest.raises(StateUnusable, match="does not exist"):
        record.got(ANN)
    with pytest.raises(StateUnusable, match="does not exist"), record.writing():
        pass
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------------------------------- a database alone


def test_tables_of_the_version_before_are_brought_up_to_date_by_init_and_not_before(tmp_path: Path) -> None:
    """On SQLite: the tables of a server are those of other tests, too."""
    place = new_place("sqlite", tmp_path)
    place._sql("DROP TABLE sendonce_recipients")
    place._sql("DROP TABLE sendonce_recipient_campaigns")
    place._sql("DROP TABLE sendonce_recipient_pages")
    place._sql("DROP TABLE sendonce_recipient_records")
    place._sql("DROP TABLE sendonce_recipients_forgotten")
    place._sql("UPDATE sendonce_schema SET version = 1")
    with pytest.raises(StateUnusable, match=r"has tables of version 1\. .*run `sendonce init`"):
        in_database(place).got(ANN)
    place.backend().prepare()
    assert put(in_database(place), MAIN, people(ANN)) == 1


def test_two_jobs_in_one_database_do_not_see_each_other(tmp_path: Path) -> None:
    place = new_place("sqlite", tmp_path)
    other = Place(place.kind, place.where, "other")
    put(in_database(place), MAIN, people(ANN, BEN))
    put(in_database(other), MAIN, people(ANN))
    in_database(other).forget(ANN)
    assert in_database(place).got(ANN) == (Got(MAIN, "sent"),)
    assert in_database(other).got(ANN) == (Got(MAIN, "sent", is_forgotten=True),)
    assert (in_database(place).count(DAY), in_database(other).count(DAY)) == (2, 1)


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_somebody_is_forgotten_between_two_steps_of_a_page_and_the_page_does_not_outlive_it(
    kind: str, tmp_path: Path
) -> None:
    place = new_place(kind, tmp_path)
    record = in_database(place)
    record.begin(MAIN, 2, keeps_addresses=True)
    [(number,)] = place._sql("SELECT number FROM sendonce_recipient_campaigns WHERE job = :job")
    forgets = Thread(target=in_database(place).forget, args=(ANN,))

    def forget_first(_db: object, _cursor: object, statement: str, *_: object) -> None:
        """Just before the page goes in: have somebody forgotten, or begin to wait for that."""
        if statement.startswith("INSERT INTO sendonce_recipient_pages"):
            forgets.start()
            wait_until(lambda: not forgets.is_alive() or is_waiting(kind), what="it is forgotten, or waits")

    event.listen(record._backend._engine, "before_cursor_execute", forget_first)
    record.put(MAIN, 0, people(ANN, address="ann@example.com"))
    forgets.join()
    assert place._sql("SELECT * FROM sendonce_recipient_pages WHERE number = :number", number=number) == []
    assert set(in_database(place).begin(MAIN, 2, keeps_addresses=True)) == set()


def test_an_init_that_another_one_keeps_waiting_on_mysql_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    [asks] = sql._ONE_AT_A_TIME["mysql"]
    monkeypatch.setitem(sql._ONE_AT_A_TIME, "mysql", (asks.replace(f" {ANSWER_WAIT_S})", " 0)"),))
    server = servers.shared("mariadb")
    place = Place("mariadb", server.url(server.new_database()), "x")
    first, second = place.backend(), place.backend()
    assert isinstance(first, SqlBackend)
    with first._engine.begin() as db:
        assert db.exec_driver_sql(asks).scalar() == 1
        with pytest.raises(Temporary, match=r"has held the making of tables.* Nothing was changed"):
            second.prepare()
    second.prepare()
