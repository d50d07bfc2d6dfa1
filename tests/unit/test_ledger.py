"""The ledger as text: what is damage, what survives a rewrite, which changes are legal."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from time import tzset
from typing import Any

import pytest

from sendonce.core.errors import InvariantBroken, LedgerDamaged, StateUnusable
from sendonce.core.ledger import Ledger, Row, assemble, check_transition, empty, joined, parse
from sendonce.core.model import Attempt, Batch, Entry, Pause, Reset, State

DAY = "2026-11-30"
ENTRY: dict[str, Any] = {
    "role": "main",
    "id": "1a2b3c4d5e",
    "web_id": 4711,
    "title": "Daily digest 2026-11-30 [5e0e96f7]",
    "by": "sendonce",
    "requested_at": "2026-11-30T08:00:04Z",
    "gave_up_at": None,
    "sent_at": "2026-11-30T08:00:05Z",
    "emails_sent": 4812,
}
ATTEMPT: dict[str, Any] = {
    "run": "r1",
    "host": "web1",
    "pid": 812,
    "started_at": "2026-11-30T08:00:00Z",
    "ended_at": "2026-11-30T08:00:06Z",
    "outcome": "sent",
    "detail": "",
}
SENT: dict[str, Any] = {"state": "sent", "nonce": "5e0e96f7", "campaigns": [ENTRY], "attempts": [ATTEMPT]}


def document(**parts: Any) -> dict[str, Any]:
    whole = {
        "version": 1,
        "job": "digest",
        "api": "us19.api.mailchimp.com",
        "batches": {DAY: SENT},
        "resets": [],
    }
    return whole | parts


def text(**parts: Any) -> bytes:
    return json.dumps(document(**parts), indent=1).encode()


def with_sent(**fields: Any) -> bytes:
    return text(batches={DAY: SENT | fields})


def with_entry(**fields: Any) -> bytes:
    return with_sent(campaigns=[ENTRY | fields])


def time(hour: int, minute: int, second: int, microsecond: int = 0) -> datetime:
    return datetime(2026, 11, 30, hour, minute, second, microsecond, tzinfo=UTC)


def entry(**fields: Any) -> Entry:
    return Entry("c1", "digest 2026-11-30")._replace(**fields)


# ---- reading ----


def test_a_batch_reads_as_its_record() -> None:
    assert parse(text()).batch(DAY) == Batch(
        date=DAY,
        state=State.SENT,
        nonce="5e0e96f7",
        campaigns=(
            Entry(
                id="1a2b3c4d5e",
                title="Daily digest 2026-11-30 [5e0e96f7]",
                role="main",
                web_id=4711,
                by="sendonce",
                requested_at=time(8, 0, 4),
                sent_at=time(8, 0, 5),
                emails_sent=4812,
            ),
        ),
        attempts=(Attempt("r1", "web1", 812, time(8, 0, 0), time(8, 0, 6), "sent"),),
    )


def test_a_date_without_a_record_has_no_state() -> None:
    assert parse(text()).batch("2026-12-01") == Batch("2026-12-01", State.NONE)


def test_the_head_names_job_and_api_host() -> None:
    ledger = parse(text())

    assert (ledger.job, ledger.api) == ("digest", "us19.api.mailchimp.com")


def test_a_sparse_batch_of_an_older_version_is_read_and_its_version_raised_on_writing() -> None:
    old = {"version": 0, "job": "digest", "api": "x", "batches": {DAY: {"state": "planned"}}}
    ledger = parse(json.dumps(old).encode())

    assert ledger.batch(DAY) == Batch(DAY, State.PLANNED)
    assert ledger.resets() == ()
    assert json.loads(ledger.dump())["version"] == 1


def test_what_a_campaign_and_an_attempt_of_an_older_version_do_not_say_is_as_it_was_then() -> None:
    sparse = {
        "state": "ready",
        "campaigns": [{"id": "c1"}],
        "attempts": [{"started_at": "2026-11-30T08:00:00Z"}],
    }

    batch = parse(text(batches={DAY: sparse})).batch(DAY)

    assert batch.campaigns == (Entry("c1", "", role="main", by="sendonce"),)
    assert batch.attempts == (Attempt("", "", 0, time(8, 0, 0)),)


def test_a_campaign_that_does_not_say_its_role_is_the_one_that_tells_whether_a_batch_is_open() -> None:
    entry = {name: value for name, value in ENTRY.items() if name != "role"}
    ledger = parse(text(batches={"2026-11-29": {"state": "sent", "campaigns": [entry]}}))

    assert ledger.open_before(DAY) == ()


def test_a_date_that_was_only_attempted_keeps_its_attempts() -> None:
    tried = Batch(DAY, State.NONE, attempts=(Attempt("r1", "web1", 812, time(8, 0, 0), outcome="temporary"),))

    assert parse(empty("digest", "x").with_batch(tried).dump()).batch(DAY) == tried


def test_batches_come_oldest_first_whatever_their_order_in_the_file() -> None:
    ledger = parse(text(batches={"2026-12-01": SENT, "2025-01-02": SENT, DAY: SENT}))

    assert [batch.date for batch in ledger.batches()] == ["2025-01-02", DAY, "2026-12-01"]


def test_batches_that_mailchimp_is_yet_to_be_asked_about_are_open() -> None:
    scheduled = {
        "state": "ready",
        "campaigns": [ENTRY | {"sent_at": None, "scheduled_for": "2026-11-30T08:00:00Z"}],
    }
    twin = {
        "state": "ready",
        "campaigns": [ENTRY | {"role": "twin", "scheduled_for": "2026-11-30T08:00:00Z"}],
    }
    ledger = parse(
        text(
            batches={
                "2026-11-20": {"state": "sending", "campaigns": [ENTRY]},
                "2026-11-21": scheduled,
                "2026-11-22": {"state": "sent", "campaigns": [ENTRY | {"emails_sent": None}]},
                "2026-11-23": {"state": "sent", "campaigns": [ENTRY | {"emails_sent": 0}]},
                "2026-11-24": twin,
                "2026-11-25": {"state": "ready", "campaigns": [ENTRY]},
                "2026-11-26": {"state": "skipped"},
                "2026-11-27": {"state": "refused"},
                "2026-11-28": {"state": "planned"},
                "2026-11-29": {"state": "-"},
                DAY: {"state": "sending", "campaigns": [ENTRY]},
                "2026-12-01": {"state": "sending", "campaigns": [ENTRY]},
            }
        )
    )

    assert [batch.date for batch in ledger.open_before(DAY)] == ["2026-11-20", "2026-11-21", "2026-11-22"]


def test_resets_of_a_date_bring_back_the_records_they_put_aside() -> None:
    def reset(day: str, was: dict[str, Any]) -> dict[str, Any]:
        return {"date": day, "at": "2026-11-30T09:00:00Z", "by": "root@web1", "reason": "oops", "was": was}

    ledger = parse(
        text(resets=[reset("2026-11-29", SENT), reset(DAY, {}), reset(DAY, SENT | {"state": "sending"})])
    )

    assert [(batch.date, batch.state) for batch in ledger.forgotten(DAY)] == [(DAY, State.SENDING)]
    assert ledger.forgotten(DAY)[0].campaigns[0].id == "1a2b3c4d5e"
    assert ledger.resets()[1] == Reset(DAY, time(9, 0, 0), "root@web1", "oops", {})


# ---- damage ----

DAMAGED: dict[str, tuple[bytes, str]] = {
    "nothing at all": (b"", "line 1, byte 0: it is empty"),
    "only NULs": (b"\0" * 40, "line 1, byte 0: NUL"),
    "a tail of NULs": (b'{\n"version": 1\n}\n' + b"\0" * 9, "line 4, byte 17: NUL"),
    "the first half": (b'{\n"version": 1,\n"job": "dig', "line 3, byte 27: it ends in the middle"),
    "all but the last byte": (b'{"version": 1\n', "line 2, byte 14: it ends in the middle"),
    "two documents": (
        b'{"version": 1}\n{"version": 1}\n',
        "line 2, byte 15: something follows after its end",
    ),
    "a byte order mark": (b"\xef\xbb\xbf{}", "line 1, byte 0: it begins with a byte order mark"),
    "UTF-16": (b"\xff\xfe{\0}\0", "line 1, byte 0: it is UTF-16"),
    "UTF-16, the other way round": (b"\xfe\xff\0{\0}", "line 1, byte 0: it is UTF-16"),
    "Latin-1": (b'{\n"note": "caf\xe9"}', "line 2, byte 14: not UTF-8"),
    "conflict marks": (
        b'{\n<<<<<<< HEAD\n"version": 1\n=======\n"version": 1\n>>>>>>> other\n}',
        "line 2, byte 2: conflict marks of a merge",
    ),
    "a comma too many": (b'{\n"version": 1,}', "line 2, byte 15: not JSON"),
    "a repeated date, the first one lost": (
        b'{"batches": {\n"2026-11-30": {"a": [{}, "{", ","]}, "2026-11-29": 1,\n"2026-11-30": null}}',
        "line 3, byte 68: the key '2026-11-30' stands twice",
    ),
    "a repeated key that is not the first one": (
        b'{"a": 1, "b": 2, "b": 3}',
        "line 1, byte 17: the key 'b' stands twice",
    ),
    "a repeated key after a list of equal texts": (
        b'{"x": ["a", "a", "a"], "b": 2, "b": 3}',
        "line 1, byte 31: the key 'b' stands twice",
    ),
    "a repeated key of other spelling": (
        b'{"job": 1, "x": {"job": 1}, "\\u006aob": 2}',
        "byte 28: the key 'job'",
    ),
    "not a number": (b'{"NaN": "NaN",\n"x": NaN}', "line 2, byte 20: not a number of JSON"),
    "infinity": (b'{"x": -Infinity}', "line 1, byte 6: not a number of JSON"),
    "a number beyond floats": (b'{"w": 1, "x": 1e999}', "line 1, byte 14: not a number of JSON"),
    "a number beyond reading": (
        b'{"w": 1, "x": ' + b"9" * 5000 + b"}",
        "line 1, byte 14: not a number of JSON",
    ),
    "deep nesting": (b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
    "a list": (b"[]\n", "line 1, byte 0: an object is wanted, and it is a list"),
    "null": (b"null\n", "an object is wanted, and it is missing or null"),
    "a string": (b'"2026-01-05"\n', "an object is wanted, and it is a text"),
    "a number": (b"7\n", "an object is wanted, and it is the number 7"),
    "an empty object": (b"{}\n", "version: a number is wanted, and it is missing or null"),
    "a version that is true": (text(version=True), "version: a number is wanted, and it is true or false"),
    "a version below zero": (text(version=-1), "version: a number is wanted, and it is the number -1"),
    "no job": (text(job=""), "job: a text is wanted, and it is an empty text"),
    "an api that is a list": (text(api=[]), "api: a text is wanted, and it is a list"),
    "batches in a list": (text(batches=[]), "batches: an object is wanted, and it is a list"),
    "a date that does not exist": (text(batches={"2026-02-30": SENT}), "batches: '2026-02-30' is not a date"),
    "a date of another form": (text(batches={"20261130": SENT}), "batches: '20261130' is not a date"),
    "a date in other digits": (text(batches={"２０２６-11-30": SENT}), "is not a date"),
    "a batch that is null": (
        text(batches={DAY: None}),
        "2026-11-30: an object is wanted, and it is missing or null",
    ),
    "a batch in a list": (text(batches={DAY: []}), "2026-11-30: an object is wanted, and it is a list"),
    "a state nobody knows": (with_sent(state="sentt"), "2026-11-30.state: no state is called 'sentt'"),
    "a state that is a list": (with_sent(state=[]), "2026-11-30.state: no state is called []"),
    "campaigns in an object": (
        with_sent(campaigns={}),
        "2026-11-30.campaigns: a list is wanted, and it is an object",
    ),
    "a campaign that is a text": (
        with_sent(campaigns=["c1"]),
        "2026-11-30.campaigns: an object is wanted, and it is a text",
    ),
    "a campaign without an id": (with_entry(id=""), "2026-11-30.campaigns: a campaign without an id"),
    "a campaign with a number for an id": (
        with_entry(id=7),
        "2026-11-30.campaigns: a campaign without an id",
    ),
    "resets in an object": (text(resets={}), "resets: a list is wanted, and it is an object"),
    "a reset that is a number": (
        text(resets=[7]),
        "resets[0]: an object is wanted, and it is the number 7",
    ),
    "a reset without a date": (text(resets=[{"was": {}}]), "resets[0].date: None is not a date"),
    "a reset of an odd date": (
        text(resets=[{"date": "today", "was": {}}]),
        "resets[0].date: 'today' is not a date",
    ),
    "a reset without a record": (text(resets=[{"date": DAY}]), "resets[0].was: an object is wanted"),
    "a reset of a record in a list": (
        text(resets=[{"date": DAY, "was": []}]),
        "resets[0].was: an object is wanted, and it is a list",
    ),
    "a reset of an odd record": (
        text(resets=[{"date": DAY, "was": {"state": "x"}}]),
        "2026-11-30.state: no state",
    ),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_damage_is_refused_with_its_place(kind: str) -> None:
    data, said = DAMAGED[kind]

    with pytest.raises(LedgerDamaged) as caught:
        parse(data)

    assert said in caught.value.message


ODD_WITHIN: dict[str, tuple[bytes, str]] = {
    "a title that is a number": (
        with_entry(title=7),
        "2026-11-30.campaigns.title: a text is wanted, and it is the number 7",
    ),
    "a count that is a text": (with_entry(emails_sent="4812"), "emails_sent: a whole number is wanted"),
    "a count that is true": (with_entry(emails_sent=True), "emails_sent: a whole number is wanted"),
    "a count with a fraction": (
        with_entry(web_id=1.5),
        "web_id: a whole number is wanted, and it is the number 1.5",
    ),
    "a time of another zone": (
        with_entry(sent_at="2026-11-30T09:00:05+01:00"),
        "sent_at: '2026-11-30T09:00:05+01:00'",
    ),
    "a time that does not exist": (
        with_entry(sent_at="2026-11-30T25:00:05Z"),
        "sent_at: '2026-11-30T25:00:05Z' is not",
    ),
    "a time that is a number": (
        with_entry(requested_at=1_796_000_000),
        "requested_at: 1796000000 is not a time",
    ),
    "one campaign twice": (
        with_sent(campaigns=[ENTRY, ENTRY | {"role": "twin"}]),
        "2026-11-30.campaigns: one campaign stands there twice",
    ),
    "a nonce that is a number": (with_sent(nonce=7), "2026-11-30.nonce: a text is wanted"),
    "two main campaigns": (
        with_sent(campaigns=[ENTRY, ENTRY | {"id": "c2"}]),
        "two campaigns have the role main",
    ),
    "attempts in an object": (with_sent(attempts={}), "2026-11-30.attempts: a list of objects is wanted"),
    "an attempt that is a text": (
        with_sent(attempts=["r1"]),
        "2026-11-30.attempts: a list of objects is wanted",
    ),
    "an attempt without a start": (
        with_sent(attempts=[{"run": "r1"}]),
        "2026-11-30.attempts.started_at: a time is wanted",
    ),
}


@pytest.mark.parametrize("kind", ODD_WITHIN)
def test_an_odd_field_is_refused_when_its_batch_is_asked_for(kind: str) -> None:
    data, said = ODD_WITHIN[kind]
    ledger = parse(data)

    with pytest.raises(LedgerDamaged) as caught:
        ledger.batch(DAY)

    assert said in caught.value.message


def test_an_odd_reset_is_refused_when_resets_are_asked_for() -> None:
    ledger = parse(text(resets=[{"date": DAY, "at": "yesterday", "was": {}}]))

    with pytest.raises(LedgerDamaged, match=r"resets\[0\]\.at: 'yesterday' is not a time"):
        ledger.resets()


def test_a_ledger_of_a_newer_sendonce_is_not_called_damaged() -> None:
    with pytest.raises(StateUnusable, match=r"version is 99, .* newer sendonce wrote it"):
        parse(text(version=99))


# ---- writing ----


def test_what_is_written_has_sorted_dates_and_a_newline_at_its_end() -> None:
    ledger = empty("digest", "x")
    for day in ("2026-12-01", DAY):
        ledger = ledger.with_batch(Batch(day, State.PLANNED, nonce="5e0e96f7"))

    assert ledger.dump().decode() == (
        '{\n "version": 1,\n "job": "digest",\n "api": "x",\n "batches": {\n'
        '  "2026-11-30": {\n   "state": "planned",\n   "nonce": "5e0e96f7",\n   "campaigns": [],\n   "attempts": []\n  },\n'
        '  "2026-12-01": {\n   "state": "planned",\n   "nonce": "5e0e96f7",\n   "campaigns": [],\n   "attempts": []\n  }\n'
        ' },\n "resets": []\n}\n'
    )


def test_a_ledger_is_not_changed_by_the_ledgers_made_from_it() -> None:
    ledger = parse(text())
    before = ledger.dump()

    ledger.with_batch(Batch("2026-12-01", State.SKIPPED, reason="holiday"))
    ledger.with_reset(Reset(DAY, time(9, 0, 0), "root@web1", "oops", {}))
    ledger.rebuilt([])

    assert ledger.dump() == before


def test_fields_that_nobody_here_knows_survive_a_rewrite() -> None:
    known = SENT | {
        "x_batch": 1,
        "campaigns": [ENTRY | {"x_entry": [2]}],
        "attempts": [ATTEMPT | {"x_attempt": None}, ATTEMPT | {"run": "r2"}],
    }
    ledger = parse(text(x_top={"a": 0.5}, batches={DAY: known}))
    batch = ledger.batch(DAY)
    second = Entry("c2", "twin", role="twin")

    written = json.loads(ledger.with_batch(batch._replace(campaigns=(second, *batch.campaigns))).dump())

    assert written["x_top"] == {"a": 0.5}
    raw = written["batches"][DAY]
    assert raw["x_batch"] == 1
    assert [campaign["id"] for campaign in raw["campaigns"]] == ["c2", "1a2b3c4d5e"]
    assert raw["campaigns"][1]["x_entry"] == [2]
    assert "x_entry" not in raw["campaigns"][0]
    assert raw["attempts"][0] == ATTEMPT | {"x_attempt": None}


def test_fields_that_most_batches_lack_are_written_only_where_they_say_something() -> None:
    rare = entry(scheduled_for=time(9, 0, 0), recipients=12, draft_hash="0e9f", quiet_since=time(8, 0, 1))
    said = empty("digest", "x").with_batch(
        Batch(DAY, State.REFUSED, campaigns=(rare,), reason="no such draft")
    )
    silent = said.with_batch(Batch(DAY, State.READY, campaigns=(entry(),)))

    raw = json.loads(said.dump())["batches"][DAY]
    assert (raw["reason"], raw["campaigns"][0]["recipients"]) == ("no such draft", 12)
    assert raw["campaigns"][0]["scheduled_for"] == "2026-11-30T09:00:00Z"
    raw = json.loads(silent.dump())["batches"][DAY]
    rarely = {"reason", "scheduled_for", "recipients", "draft_hash", "quiet_since"}
    assert not rarely & {*raw, *raw["campaigns"][0]}


def test_times_from_which_a_wait_is_counted_are_rounded_up_and_others_down() -> None:
    moment = time(8, 0, 4, 1)
    waited = entry(
        requested_at=moment, gave_up_at=time(8, 0, 4), sent_at=moment, scheduled_for=time(23, 59, 59, 999_999)
    )
    attempt = Attempt("r1", "web1", 812, started_at=time(8, 0, 4, 999_999), ended_at=time(8, 0, 5, 999_999))
    ledger = empty("digest", "x").with_batch(
        Batch(DAY, State.READY, campaigns=(waited,), attempts=(attempt,))
    )

    raw = json.loads(ledger.dump())["batches"][DAY]
    assert raw["campaigns"][0]["requested_at"] == "2026-11-30T08:00:05Z"
    assert raw["campaigns"][0]["gave_up_at"] == "2026-11-30T08:00:04Z"
    assert raw["campaigns"][0]["sent_at"] == "2026-11-30T08:00:05Z"
    assert raw["campaigns"][0]["scheduled_for"] == "2026-12-01T00:00:00Z"
    assert raw["attempts"][0]["started_at"] == "2026-11-30T08:00:04Z"
    assert raw["attempts"][0]["ended_at"] == "2026-11-30T08:00:05Z"


def test_a_time_of_another_zone_is_written_in_utc() -> None:
    in_tokyo = datetime(2026, 11, 30, 17, 0, 4, tzinfo=timezone(timedelta(hours=9)))
    ledger = empty("digest", "x").with_batch(
        Batch(DAY, State.READY, campaigns=(entry(requested_at=in_tokyo),))
    )

    assert json.loads(ledger.dump())["batches"][DAY]["campaigns"][0]["requested_at"] == "2026-11-30T08:00:04Z"


def test_a_time_is_written_in_utc_whatever_the_machines_zone_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as machine:
        machine.setenv("TZ", "Asia/Kolkata")
        tzset()
        ledger = empty("digest", "x").with_batch(
            Batch(DAY, State.READY, campaigns=(entry(requested_at=time(8, 0, 4)),))
        )
    tzset()

    assert json.loads(ledger.dump())["batches"][DAY]["campaigns"][0]["requested_at"] == "2026-11-30T08:00:04Z"


def test_a_year_before_1000_is_written_with_four_digits() -> None:
    long_ago = entry(requested_at=datetime(987, 11, 30, 8, 0, 4, tzinfo=UTC))
    ledger = empty("digest", "x").with_batch(Batch(DAY, State.READY, campaigns=(long_ago,)))

    assert json.loads(ledger.dump())["batches"][DAY]["campaigns"][0]["requested_at"] == "0987-11-30T08:00:04Z"


def test_a_time_without_a_zone_is_a_bug() -> None:
    naive = entry(requested_at=time(8, 0, 4).replace(tzinfo=None))

    with pytest.raises(InvariantBroken, match="without a zone"):
        empty("digest", "x").with_batch(Batch(DAY, State.READY, campaigns=(naive,)))


def test_only_the_newest_twenty_attempts_are_kept() -> None:
    attempts = tuple(Attempt(f"r{number}", "web1", 812, time(8, number, 0)) for number in range(25))
    ledger = empty("digest", "x").with_batch(Batch(DAY, State.PLANNED, attempts=attempts))

    assert [attempt.run for attempt in ledger.batch(DAY).attempts] == [
        f"r{number}" for number in range(5, 25)
    ]


def test_half_a_surrogate_pair_in_a_title_can_be_written_and_read() -> None:
    odd = Batch(DAY, State.READY, campaigns=(entry(title="caf\xe9 \ud83d 😀"),))
    written = empty("digest", "x").with_batch(odd).dump()

    assert parse(written).batch(DAY) == odd
    assert "café".encode() in written


def test_a_ledger_too_deep_to_be_written_is_damaged() -> None:
    nested: Any = 1
    for _ in range(100_000):
        nested = [nested]

    with pytest.raises(LedgerDamaged, match="nested too deeply"):
        Ledger(document(x=nested)).dump()


def test_a_reset_keeps_the_whole_record_and_makes_room_for_a_new_one() -> None:
    ledger = parse(text(batches={DAY: SENT | {"x_batch": 1}, "2026-11-29": SENT}))

    after = ledger.with_reset(Reset(DAY, time(9, 0, 0, 500_000), "root@web1", "wrong list", {}))

    written = json.loads(after.dump())
    assert written["resets"] == [
        {
            "date": DAY,
            "at": "2026-11-30T09:00:00Z",
            "by": "root@web1",
            "reason": "wrong list",
            "was": SENT | {"x_batch": 1},
        }
    ]
    assert list(written["batches"]) == ["2026-11-29"]
    assert after.batch(DAY).state is State.NONE


def test_a_reset_of_a_date_without_a_record_can_be_read_again() -> None:
    ledger = parse(empty("digest", "x").with_reset(Reset(DAY, time(9, 0, 0), "root@web1", "oops", {})).dump())

    assert ledger.resets() == (Reset(DAY, time(9, 0, 0), "root@web1", "oops", {}),)
    assert ledger.forgotten(DAY) == ()


def test_a_second_reset_does_not_replace_the_first() -> None:
    first = parse(text()).with_reset(Reset(DAY, time(9, 0, 0), "root@web1", "first", {}))
    second = first.with_batch(Batch(DAY, State.PLANNED)).with_reset(
        Reset(DAY, time(10, 0, 0), "root@web1", "2nd", {})
    )

    assert [batch.state for batch in second.forgotten(DAY)] == [State.SENT, State.PLANNED]


def test_a_reset_of_something_that_is_no_date_is_a_bug() -> None:
    with pytest.raises(InvariantBroken, match="'today' is not a date"):
        empty("digest", "x").with_reset(Reset("today", time(9, 0, 0), "root@web1", "", {}))


# ---- rows: a store that keeps each batch by itself ----


def reset_record(day: str, by: str) -> dict[str, Any]:
    return {"date": day, "at": "2026-11-30T09:00:00Z", "by": by, "reason": "oops", "was": {}}


def test_a_ledger_comes_back_whole_from_its_rows() -> None:
    resets = [reset_record(DAY, "root@web1"), reset_record("2026-11-28", "root@web2")]
    ledger = parse(text(batches={"2026-12-01": SENT, DAY: SENT | {"x_batch": "café"}}, resets=resets))

    batches = {day: row.text.encode("ascii") for day, row in ledger.rows().items()}
    again = assemble(1, "digest", ledger.api, batches, [said.encode() for _, said in ledger.reset_rows()])

    assert again.dump() == ledger.dump()
    assert list(batches) == [DAY, "2026-12-01"]
    assert [day for day, _ in ledger.reset_rows()] == [DAY, "2026-11-28"]


@pytest.mark.parametrize(("state", "is_open"), [("sending", True), ("sent", False)])
def test_a_row_says_the_state_of_its_batch_and_whether_it_is_open(state: str, is_open: bool) -> None:
    record = SENT | {"state": state}

    row = parse(text(batches={DAY: record})).row(DAY)

    assert row == Row(state, is_open, json.dumps(record))


def test_a_row_too_deep_to_be_written_is_damage() -> None:
    nested: Any = 1
    for _ in range(100_000):
        nested = [nested]
    ledger = Ledger(document(batches={DAY: SENT | {"x": nested}}))

    with pytest.raises(LedgerDamaged, match="a record is nested too deeply"):
        ledger.row(DAY)


ODD_ROWS: dict[str, tuple[bytes, str]] = {
    "nothing at all": (b"", "line 1, byte 0: it is empty"),
    "half of it": (b'{"state": ', "not JSON (Expecting value"),
    "a repeated key": (b'{"state": "sent", "state": "sent"}', "the key 'state' stands twice"),
    "deep nesting": (b"[" * 100_000 + b"]" * 100_000, "it is nested too deeply"),
}


@pytest.mark.parametrize("kind", ODD_ROWS)
def test_a_damaged_row_is_refused_and_named(kind: str) -> None:
    data, said = ODD_ROWS[kind]

    with pytest.raises(LedgerDamaged) as caught:
        assemble(1, "digest", "x", {DAY: data}, [])
    assert caught.value.message.startswith(f"the row of 2026-11-30: {said}")
    with pytest.raises(LedgerDamaged) as caught:
        assemble(1, "digest", "x", {}, [data])
    assert caught.value.message.startswith(f"the row of a reset: {said}")


def test_rows_are_checked_as_a_whole_ledger_is() -> None:
    with pytest.raises(LedgerDamaged, match=r"2026-11-30\.state: no state is called 'lost'"):
        assemble(1, "digest", "x", {DAY: b'{"state": "lost"}'}, [])
    with pytest.raises(LedgerDamaged, match="job: a text is wanted"):
        assemble(1, "", "x", {}, [])
    with pytest.raises(StateUnusable, match="newer sendonce wrote it"):
        assemble(99, "digest", "x", {}, [])


def test_parts_of_a_ledger_make_one_with_all_batches_and_the_resets_one_after_the_other() -> None:
    first = parse(text(batches={DAY: SENT}, resets=[reset_record(DAY, "one")]))
    second = parse(text(batches={"2026-12-01": SENT}, resets=[reset_record(DAY, "two")]))
    before = (first.dump(), second.dump())

    whole = joined(iter([first, second, empty("digest", "x")]))

    assert (whole.job, whole.api) == (first.job, first.api)
    assert [batch.date for batch in whole.batches()] == [DAY, "2026-12-01"]
    assert [reset.by for reset in whole.resets()] == ["one", "two"]
    assert (first.dump(), second.dump()) == before


def test_a_rebuilt_ledger_keeps_what_mailchimp_cannot_tell() -> None:
    reset = {"date": DAY, "at": "2026-11-30T09:00:00Z", "by": "", "reason": "", "was": SENT}
    skipped = {"state": "skipped", "reason": "holiday", "x": 1}
    old = {"2026-11-01": skipped, "2026-11-02": skipped, "2026-11-03": {"state": "planned"}}
    found = Batch("2026-11-02", State.SENT, campaigns=(entry(by="by hand"),))

    written = json.loads(parse(text(x_top=1, batches=old, resets=[reset])).rebuilt([found]).dump())

    assert written["x_top"] == 1
    assert written["resets"] == [reset]
    assert list(written["batches"]) == ["2026-11-01", "2026-11-02"]
    assert written["batches"]["2026-11-01"] == skipped
    assert written["batches"]["2026-11-02"]["state"] == "sent"


def test_two_batches_of_one_date_cannot_be_rebuilt() -> None:
    with pytest.raises(InvariantBroken, match="two batches for 2026-11-30"):
        empty("digest", "x").rebuilt([Batch(DAY, State.PLANNED), Batch(DAY, State.PLANNED)])


# ---- legal changes ----

OPEN = {State.NONE, State.PLANNED, State.READY, State.REFUSED}
LEGAL = (
    {(old, new) for old in OPEN for new in OPEN | {State.SENT, State.SKIPPED}}
    | {(State.READY, State.SENDING)}
    | {(State.SENDING, new) for new in (State.SENDING, State.SENT, State.READY, State.REFUSED)}
    | {(State.SENT, State.SENT), (State.SKIPPED, State.SKIPPED)}
)


@pytest.mark.parametrize("old", State)
@pytest.mark.parametrize("new", State)
def test_states_follow_each_other_as_the_protocol_says(old: State, new: State) -> None:
    requested = (entry(requested_at=time(8, 0, 4)),)
    before, after = Batch(DAY, old, campaigns=requested), Batch(DAY, new, campaigns=requested)

    if (old, new) in LEGAL:
        check_transition(before, after)
    else:
        with pytest.raises(InvariantBroken, match=f"{old.value} may not become {new.value}"):
            check_transition(before, after)


def test_there_are_thirty_one_legal_changes() -> None:
    assert len(LEGAL) == 31


ILLEGAL: dict[str, tuple[Batch, Batch, str]] = {
    "another date": (Batch(DAY), Batch("2026-12-01"), "would become one of"),
    "no date": (Batch("tomorrow"), Batch("tomorrow"), "'tomorrow' is not a date"),
    "a request that is erased": (
        Batch(DAY, State.SENDING, campaigns=(entry(requested_at=time(8, 0, 4)),)),
        Batch(DAY, State.READY, campaigns=(entry(),)),
        "the request to send c1 would be forgotten",
    ),
    "a requested campaign that is dropped": (
        Batch(DAY, State.REFUSED, campaigns=(entry(requested_at=time(8, 0, 4)),)),
        Batch(DAY, State.PLANNED, campaigns=()),
        "the request to send c1 would be forgotten",
    ),
    "another campaign in the middle of a send": (
        Batch(DAY, State.SENDING, campaigns=(entry(requested_at=time(8, 0, 4)),)),
        Batch(
            DAY,
            State.SENDING,
            campaigns=(
                entry(role="former", requested_at=time(8, 0, 4)),
                Entry("c2", "twin", requested_at=time(8, 0, 5)),
            ),
        ),
        "c1 is being sent, not c2",
    ),
    "sending without a campaign": (
        Batch(DAY, State.READY),
        Batch(DAY, State.SENDING),
        "sending, and no campaign",
    ),
    "sending without a request": (
        Batch(DAY, State.READY),
        Batch(DAY, State.SENDING, campaigns=(entry(),)),
        "sending, and no time of the request",
    ),
    "sent without a main campaign": (
        Batch(DAY, State.READY),
        Batch(DAY, State.SENT, campaigns=(entry(role="twin"),)),
        "sent, and no campaign",
    ),
    "one campaign twice": (
        Batch(DAY),
        Batch(DAY, State.READY, campaigns=(entry(), entry(role="twin"))),
        "one campaign stands there twice",
    ),
    "two main campaigns": (
        Batch(DAY),
        Batch(DAY, State.READY, campaigns=(entry(), entry(id="c2"))),
        "two campaigns have the role main",
    ),
    "a campaign without an id": (
        Batch(DAY),
        Batch(DAY, State.READY, campaigns=(entry(id=""),)),
        "without an id",
    ),
}


@pytest.mark.parametrize("kind", ILLEGAL)
def test_an_illegal_change_is_a_bug(kind: str) -> None:
    old, new, said = ILLEGAL[kind]

    with pytest.raises(InvariantBroken) as caught:
        check_transition(old, new)

    assert said in caught.value.message


def test_a_campaign_whose_send_was_never_requested_may_be_forgotten() -> None:
    check_transition(Batch(DAY, State.READY, campaigns=(entry(),)), Batch(DAY, State.PLANNED))


def test_a_send_may_be_requested_anew_of_the_same_campaign() -> None:
    first, again = (Batch(DAY, State.SENDING, campaigns=(entry(requested_at=time(8, m, 4)),)) for m in (0, 9))

    check_transition(first, again)


def test_a_twin_that_was_mailed_by_hand_may_become_the_campaign_of_the_date() -> None:
    ours = entry(requested_at=time(8, 0, 4))

    check_transition(
        Batch(DAY, State.SENDING, campaigns=(ours,)),
        Batch(DAY, State.SENT, campaigns=(Entry("c2", "twin", by="by hand"), ours._replace(role="former"))),
    )


def test_a_sending_batch_without_a_main_campaign_can_only_come_from_a_hand_edit_and_is_refused() -> None:
    edited = parse(text(batches={DAY: {"state": "sending"}}))

    with pytest.raises(InvariantBroken, match="none is being sent, not c1"):
        edited.with_batch(Batch(DAY, State.SENDING, campaigns=(entry(requested_at=time(8, 0, 4)),)))


# ---- the pause ----

PAUSE: dict[str, Any] = {
    "reason": "server move",
    "by": "root@web1",
    "at": "2026-11-30T08:00:00Z",
    "until": "2026-12-02",
}


def test_a_pause_reads_as_it_was_ordered_and_one_without_an_end_has_none() -> None:
    assert parse(text()).pause is None
    assert parse(text(pause=None)).pause is None
    assert parse(text(pause=PAUSE)).pause == Pause("server move", "root@web1", time(8, 0, 0), "2026-12-02")
    endless = {name: value for name, value in PAUSE.items() if name != "until"}
    assert parse(text(pause=endless)).pause == Pause("server move", "root@web1", time(8, 0, 0))


def test_a_pause_is_written_kept_through_other_writes_and_taken_back() -> None:
    ordered = Pause("server move", "root@web1", time(8, 0, 0))
    paused = parse(text()).with_pause(ordered)
    assert json.loads(paused.dump())["pause"] == {
        "reason": "server move", "by": "root@web1", "at": "2026-11-30T08:00:00Z",
    }  # fmt: skip
    later = parse(paused.with_batch(Batch("2026-12-01", State.SKIPPED, reason="holiday")).dump())
    assert later.pause == ordered
    assert later.rebuilt([]).pause == ordered
    ended = ordered._replace(ended_at=time(9, 0, 0), ended_by="ann@web1")
    over = parse(later.with_pause(ended).dump())
    assert (over.pause, over.pauses()) == (None, (ended,))
    again = Pause("strike", "ben@web1", time(10, 0, 0))
    longer = again._replace(reason="longer strike", at=time(11, 0, 0))
    twice = parse(over.with_pause(again).with_pause(longer).dump())
    replaced = again._replace(ended_at=time(11, 0, 0), ended_by="ben@web1")
    assert twice.pauses() == (ended, replaced, longer)


@pytest.mark.parametrize(
    ("pause", "said"),
    [
        ("yes", "pause: an object is wanted, and it is a text"),
        (PAUSE | {"until": "next week"}, "pause.until: 'next week' is not a date"),
        (PAUSE | {"at": "today"}, "pause.at: 'today' is not a time"),
        (PAUSE | {"reason": 5}, "pause.reason: a text is wanted"),
    ],
)
def test_a_pause_that_cannot_be_read_is_damage_and_never_no_pause(pause: Any, said: str) -> None:
    with pytest.raises(LedgerDamaged, match=said):
        parse(text(pause=pause)).pause  # noqa: B018 - reading it is the point


def test_a_pause_comes_back_from_its_row() -> None:
    ledger = parse(text(pause=PAUSE))
    assert assemble(1, "digest", "api", {}, [], ledger.pause_row().encode()).pause == ledger.pause
    ended = ledger.with_pause(ledger.pauses()[0]._replace(ended_at=time(9, 0, 0), ended_by="ann@web1"))
    back = assemble(1, "digest", "api", {}, [], ended.pause_row().encode())
    assert (back.pause, back.pauses()) == (None, ended.pauses())
    assert (parse(text()).pause_row(), assemble(1, "digest", "api", {}, []).pause) == ("", None)
    with pytest.raises(LedgerDamaged, match="the pause: an object is wanted, and it is a list"):
        assemble(1, "digest", "api", {}, [], b"[]")
    with pytest.raises(LedgerDamaged, match="pauses: a list of objects is wanted"):
        parse(text(pauses=[1]))
    with pytest.raises(LedgerDamaged, match="the pause: not JSON"):
        assemble(1, "digest", "api", {}, [], b"{")


# ---- what was ordered beside the day's campaign ----

MAIN = entry(requested_at=time(8, 0, 4))
PLANNED = Entry(
    "", "", role="remaining 1", state=State.PLANNED, nonce="5e0e96f8", order="root@web1: canceled"
)
READY = PLANNED._replace(id="c9", title="digest (remaining 1)", state=State.READY)
SENDING = READY._replace(state=State.SENDING, requested_at=time(9, 0, 0))
DONE = SENDING._replace(state=State.SENT, sent_at=time(9, 0, 1))
AGAIN = Entry("", "", role="again 1", state=State.REFUSED, reason="No.", order="root@web1: wrong link")


def dated(*ordered: Entry, state: State = State.SENT) -> Batch:
    return Batch(DAY, state, campaigns=(MAIN, *ordered))


@pytest.mark.parametrize("ordered", [(PLANNED,), (PLANNED, AGAIN), (SENDING, AGAIN), (DONE,)])
def test_an_order_comes_back_from_the_text_as_it_was(ordered: tuple[Entry, ...]) -> None:
    written = empty("digest", "x").rebuilt([dated(*ordered)]).dump()
    assert parse(written).batch(DAY) == dated(*ordered)


def test_an_order_makes_no_earlier_batch_an_open_one() -> None:
    counted = dated(SENDING)._replace(campaigns=(MAIN._replace(emails_sent=5), SENDING))
    assert empty("digest", "x").rebuilt([counted]).open_before("2026-12-01") == ()


@pytest.mark.parametrize("state", ["mailed", ""])
def test_an_order_in_no_known_state_is_damage(state: str) -> None:
    edited = parse(with_sent(campaigns=[ENTRY, {"id": "c9", "role": "remaining 1", "state": state}]))
    with pytest.raises(LedgerDamaged, match=f"2026-11-30.campaigns.state: no state is called '{state}'"):
        edited.batch(DAY)


def test_two_entries_of_one_order_are_damage() -> None:
    twice = {"role": "remaining 1", "state": "planned"}
    edited = parse(with_sent(campaigns=[ENTRY, {"id": "c8", **twice}, {"id": "c9", **twice}]))
    with pytest.raises(LedgerDamaged, match="two campaigns have the role remaining 1"):
        edited.batch(DAY)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param((), (PLANNED,), id="begins"),
        pytest.param((PLANNED,), (READY,), id="has its campaign"),
        pytest.param((READY,), (SENDING,), id="about to be sent"),
        pytest.param((SENDING,), (DONE,), id="sent"),
        pytest.param((SENDING,), (SENDING._replace(requested_at=time(9, 5, 0)),), id="asked for again"),
        pytest.param((DONE,), (DONE, AGAIN), id="another kind begins"),
    ],
)
def test_an_order_goes_the_way_of_a_batch(old: tuple[Entry, ...], new: tuple[Entry, ...]) -> None:
    check_transition(dated(*old), dated(*new))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        pytest.param((), (SENDING,), "- may not become sending", id="comes from nowhere"),
        pytest.param((PLANNED,), (SENDING,), "planned may not become sending", id="skips ready"),
        pytest.param(
            (DONE,), (DONE._replace(state=State.READY),), "sent may not become ready", id="taken back"
        ),
        pytest.param((DONE,), (), "the request to send c9 would be forgotten", id="lost"),
        pytest.param(
            (DONE._replace(requested_at=None),), (), "sent may not become -", id="lost, and sent by hand"
        ),
        pytest.param((DONE,), (DONE._replace(role="remaining 2"),), "sent may not become -", id="renumbered"),
        pytest.param((DONE,), (DONE._replace(role="former"),), "sent may not become -", id="relabeled"),
        pytest.param(
            (SENDING,),
            (SENDING._replace(id="c8"), SENDING._replace(role="remaining 1 former", state=State.NONE)),
            "c9 is being sent, not c8",
            id="another campaign",
        ),
        pytest.param(
            (READY,), (SENDING._replace(requested_at=None),), "no time of the request", id="sending unasked"
        ),
        pytest.param(
            (PLANNED,), (PLANNED._replace(state=State.SENT),), "sent, and no campaign", id="sent nothing"
        ),
        pytest.param((READY,), (READY, READY._replace(id="c8")), "two campaigns have the role", id="twice"),
    ],
)
def test_an_illegal_change_of_an_order_is_a_bug(
    old: tuple[Entry, ...], new: tuple[Entry, ...], said: str
) -> None:
    with pytest.raises(InvariantBroken, match=said):
        check_transition(dated(*old), dated(*new))
