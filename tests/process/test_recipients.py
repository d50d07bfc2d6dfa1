"""`recipients` by the real command: read, cut off anywhere and gone on with, asked, exported, forgotten."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import resource
import signal
import sqlite3
import stat
from contextlib import suppress
from hashlib import md5
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.interrupts import signal_itself
from support.places import SQL, new_place
from support.runs import DAY, Desk, Ended, wait_until
from support.sandbox import LIST_ID, Sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator

PEOPLE = 2300
PAGES = 5
SYNC = ("recipients", "sync", "--date", DAY)


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    """One whose audience makes five pages."""
    with Sandbox(audience=PEOPLE, sending=0) as running:
        yield running


@pytest.fixture
def sent(desk: Desk) -> Desk:
    """A job whose day is sent."""
    desk.prepare()
    assert desk.send().code == 0
    desk.sandbox.clear_calls()
    return desk


def record_file(desk: Desk) -> Path:
    return desk.state / "daily.recipients.db"


def rows_of(desk: Desk) -> list[tuple[str, int]]:
    """Everybody on record, with how many rows they have; straight from the file."""
    db = sqlite3.connect(record_file(desk))
    rows = [
        (who.hex(), n) for who, n in db.execute("SELECT email_id, count(*) FROM recipients GROUP BY email_id")
    ]
    db.close()
    return rows


def everybody(count: int = PEOPLE) -> list[tuple[str, int]]:
    names = (f"member{n:04d}@example.com" for n in range(1, count + 1))
    return sorted((md5(name.encode()).hexdigest(), 1) for name in names)


def told(desk: Desk, *arguments: str) -> tuple[int, dict[str, Any]]:
    """A command with --json: its code and its one object."""
    ended = desk.run(*arguments, "--json")
    [line] = ended.out.splitlines()
    document: dict[str, Any] = json.loads(line)
    assert (document["version"], document["exit"]) == (1, ended.code), ended
    return ended.code, document


def twin(desk: Desk, members: list[str]) -> str:
    """A second campaign of the day, sent by somebody to these, that the ledger knows of; its id."""
    audience = desk.sandbox.add_audience(members)
    campaign = desk.sandbox.add_draft(f"Digest {DAY}", list_id=audience, status="sent")
    ledger = json.loads(desk.ledger_file.read_text())
    main = ledger["batches"][DAY]["campaigns"][0]
    ledger["batches"][DAY]["campaigns"].append(main | {"id": campaign, "role": "twin", "web_id": None})
    desk.ledger_file.write_text(json.dumps(ledger))
    return campaign


# -------------------------------------------------------------------------------------------------------- sync


def test_a_sync_puts_everybody_on_record_and_a_second_one_asks_nothing(sent: Desk) -> None:
    ended = sent.run(*SYNC)
    assert (ended.code, ended.err) == (0, "")
    assert f"went to {PEOPLE} recipients, now on record" in ended.out
    assert rows_of(sent) == everybody()
    assert sorted(call["name"] for call in sent.sandbox.calls()) == ["campaign", *["sent-to"] * PAGES]
    sent.sandbox.clear_calls()
    ended = sent.run(*SYNC)
    assert (ended.code, "as is on record" in ended.out) == (0, True)
    assert sent.sandbox.calls() == []
    assert rows_of(sent) == everybody()


def test_no_address_is_kept_unless_that_is_wanted(sent: Desk) -> None:
    assert sent.run(*SYNC).code == 0
    assert b"example.com" not in record_file(sent).read_bytes()
    sent.write_env(SENDONCE_KEEP_ADDRESSES="yes")
    assert sent.run(*SYNC, "--refresh").code == 0
    assert b"member0001@example.com" in record_file(sent).read_bytes()


def test_the_files_of_the_record_are_for_their_owner_alone(sent: Desk) -> None:
    assert sent.run(*SYNC).code == 0
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in sent.state.glob("daily.recipients.db*")}
    assert modes == {"daily.recipients.db": 0o600, "daily.recipients.db.guard": 0o600}


def test_quiet_is_quiet_and_json_is_one_object(sent: Desk) -> None:
    assert sent.run(*SYNC, "-q").all == ""
    code, document = told(sent, *SYNC)
    assert code == 0
    [one] = document["campaigns"]
    assert (one["recipients"], one["complete"], one["was_known"], one["role"]) == (PEOPLE, True, True, "main")


def test_a_sync_reads_over_a_few_connections_that_it_keeps(sent: Desk) -> None:
    before = sent.sandbox.state()["connections"]
    assert sent.run(*SYNC).code == 0
    assert sent.sandbox.state()["connections"] - before <= 4 + 1  # the last is this question


def test_a_terminal_shows_how_far_it_is_and_a_file_does_not(sent: Desk) -> None:
    sent.sandbox.faults("sent-to=slow:0.4")
    ours, theirs = pty.openpty()
    with sent.start(*SYNC, environ={"TERM": "xterm"}, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # EIO: the other side is closed, which is how a terminal's end reads
            while piece := os.read(ours, 65536):
                shown += piece
        os.close(ours)
        out, _ = process.communicate()
    assert (process.returncode, out.count("\n")) == (0, 1)
    assert f"/{PEOPLE}".encode() in shown
    assert sent.run(*SYNC, "--refresh").err == ""


@pytest.mark.parametrize("fault", ["reset-after", "close-before", "503", "cutjson", "garbage", "200html"])
def test_a_read_that_fails_is_repeated(sent: Desk, fault: str) -> None:
    sent.sandbox.faults(f"sent-to={fault} nth=3")
    assert sent.run(*SYNC).code == 0
    assert rows_of(sent) == everybody()


@pytest.mark.wide
@pytest.mark.parametrize("word", ["drip:0.5", "stall-after"])
def test_an_answer_without_end_on_a_kept_connection_is_given_up(sent: Desk, word: str) -> None:
    """Its bytes come in time, each by itself: only the time of the whole ends it."""
    sent.sandbox.faults(f"sent-to={word} nth=6")
    assert sent.run(*SYNC).code == 0
    ended = sent.run(*SYNC, "--refresh")
    assert (ended.code, ended.err.count("\n")) == (75, 2)
    assert "could not be asked for" in ended.err
    assert rows_of(sent) == everybody()


@pytest.mark.parametrize("request_number", [1, 2, 3, 5])
def test_a_sync_that_is_killed_at_a_request_goes_on_where_it_was(sent: Desk, request_number: int) -> None:
    hook = signal_itself(
        sent.folder / "hook", signal.SIGKILL, events={"http.client.send"}, part="HTTP/1.1", nth=request_number
    )
    assert sent.run(*SYNC, environ=hook).code == -signal.SIGKILL
    assert not record_file(sent).exists() or rows_of(sent) == []
    assert sent.run("recipients", "check", "member0001@example.com", "--date", DAY).code == 1
    assert sent.run(*SYNC).code == 0
    assert rows_of(sent) == everybody()


def test_a_sync_killed_again_and_again_gets_further_each_time_and_ends_with_everybody_once(
    desk: Desk,
) -> None:
    people = 12_000
    audience = desk.sandbox.add_audience(people)
    desk.sandbox.add_draft(f"Digest {DAY}", list_id=audience)
    assert desk.send().code == 0
    desk.sandbox.faults("sent-to=slow:0.1")  # by the twelfth request the first four pages are in for sure
    pages = [0]
    while pages[-1] < 12:
        assert len(pages) < 20
        hook = signal_itself(
            desk.folder / f"hook{len(pages)}",
            signal.SIGKILL,
            events={"http.client.send"},
            part="HTTP/1.1",
            nth=12,
        )
        assert desk.run(*SYNC, environ=hook).code == -signal.SIGKILL
        part = sqlite3.connect(f"{record_file(desk)}.part")
        pages.append(part.execute("SELECT count(*) FROM pages").fetchone()[0])
        part.close()
    assert all(now > before for before, now in pairwise(pages)), pages
    desk.sandbox.clear_calls()
    assert desk.run(*SYNC).code == 0
    # the first page is always read: it says how many there are; and four of the one that died may arrive late
    assert len(desk.sandbox.calls("sent-to")) <= 24 - pages[-1] + 1 + 4
    assert rows_of(desk) == everybody(people)


@pytest.mark.parametrize("call", ["wal", "write"])
def test_a_sync_that_is_killed_while_it_writes_leaves_a_record_that_is_whole(sent: Desk, call: str) -> None:
    """At the end, when the pages go over into the record; and between two pages."""
    sent.sandbox.faults("sent-to=slow:0.2")
    with sent.start(*SYNC) as process:
        part = record_file(sent).with_name("daily.recipients.db.part-wal")
        if call == "wal":
            wait_until(lambda: part.exists() and part.stat().st_size > 40_000, what="a page is in")
        else:
            journal = record_file(sent).with_name("daily.recipients.db-journal")
            wait_until(
                lambda: process.poll() is not None or (part.exists() and journal.exists()), what="all is in"
            )
        process.kill()
        process.communicate()
    sent.sandbox.faults()
    assert sent.run("recipients", "duplicates").code in {0, 1}
    assert sent.run(*SYNC).code == 0
    assert rows_of(sent) == everybody()


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("sent-to=fewer:3 nth=3", "it had 2300 recipients and now has 2297"),
        ("sent-to=shift:1 nth=3", "campaign"),
        ("sent-to=404 nth=4", "it is gone"),
    ],
    ids=["shrinks", "repeats", "goes away"],
)
def test_a_report_that_changes_while_it_is_read_does_not_count(sent: Desk, fault: str, said: str) -> None:
    sent.sandbox.faults(fault)
    ended = sent.run(*SYNC)
    assert (ended.code, ended.out) == (75, "")
    assert said in ended.err
    assert ended.err.count("\n") == 2
    assert "the record is as it was" in ended.err.lower()
    assert rows_of(sent) == []
    assert not list(sent.state.glob("*.part*"))
    assert sent.run(*SYNC).code == 0
    assert rows_of(sent) == everybody()


def test_a_report_that_changes_while_it_is_read_again_leaves_what_is_on_record(sent: Desk) -> None:
    assert sent.run(*SYNC).code == 0
    sent.sandbox.faults("sent-to=shift:1 nth=2")
    assert sent.run(*SYNC, "--refresh").code == 75
    assert rows_of(sent) == everybody()


def test_a_campaign_that_is_still_going_out_is_waited_for_and_never_complete_before(sent: Desk) -> None:
    [campaign] = sent.sandbox.state()["campaigns"]
    sent.sandbox.edit(campaign["id"], status="sending")
    ended = sent.run(*SYNC, "--wait-seconds", "0")
    assert (ended.code, ended.out) == (75, "")
    assert "is not on record" in ended.err
    assert not record_file(sent).exists() or rows_of(sent) == []
    with sent.start(*SYNC, "--wait-seconds", "30") as process:
        wait_until(lambda: len(sent.sandbox.calls("campaign")) > 1, what="it waits")
        sent.sandbox.edit(campaign["id"], status="sent")
        assert process.communicate(timeout=50)[0].count("now on record") == 1
    assert process.returncode == 0
    assert rows_of(sent) == everybody()


def test_a_report_that_is_not_there_yet_or_has_too_few_is_waited_for(sent: Desk) -> None:
    sent.sandbox.faults("sent-to=404 times=1")
    assert sent.run(*SYNC, "--wait-seconds", "20").code == 0
    assert rows_of(sent) == everybody()
    [campaign] = sent.sandbox.state()["campaigns"]
    sent.sandbox.edit(campaign["id"], emails_sent=PEOPLE + 1)
    ended = sent.run(*SYNC, "--refresh", "--wait-seconds", "0")
    assert (ended.code, rows_of(sent)) == (75, everybody())


def test_a_canceled_campaign_has_those_on_record_who_got_it(sent: Desk) -> None:
    [campaign] = sent.sandbox.state()["campaigns"]
    sent.sandbox.edit(campaign["id"], status="canceled", delivered=700)
    assert sent.run(*SYNC).code == 0
    names = (f"member{n:04d}@example.com" for n in range(1, 701))
    assert rows_of(sent) == sorted((md5(name.encode()).hexdigest(), 1) for name in names)


def test_a_date_that_was_never_sent_is_refused(sent: Desk) -> None:
    ended = sent.run("recipients", "sync", "--date", "2026-01-04")
    assert (ended.code, ended.out) == (1, "")
    said, what_to_do, *more = ended.err.splitlines()
    assert said == "On 2026-01-04 nothing was sent by job daily: there is no report to read."
    assert (what_to_do, more) == ("What to do: sendonce runbook refused-command", [])
    assert sent.sandbox.calls() == []
    assert not record_file(sent).exists()


def test_a_campaign_that_mailchimp_does_not_have_any_more_is_for_a_human(sent: Desk) -> None:
    [campaign] = sent.sandbox.state()["campaigns"]
    sent.sandbox.delete(campaign["id"])
    ended = sent.run(*SYNC)
    assert (ended.code, ended.out) == (1, "")
    said, what_to_do = ended.err.splitlines()
    assert "has no such campaign any more" in said
    assert what_to_do == "What to do: sendonce runbook refused-command"
    assert told(sent, *SYNC)[1]["runbook"] == "refused-command"
    ended = sent.run("recipients", "check", "member0001@example.com", "--date", DAY)
    assert ended.code == 1
    assert "If the campaign was deleted in Mailchimp, that cannot help" in ended.err


def test_check_live_of_a_campaign_that_is_gone_says_so_and_not_that_it_will_come(sent: Desk) -> None:
    [campaign] = sent.sandbox.state()["campaigns"]
    sent.sandbox.delete(campaign["id"])
    ended = sent.run("recipients", "check", "member0001@example.com", "--live", "--date", DAY)
    assert ended.code == 75
    assert f"Of campaign {campaign['id']} Mailchimp can say no more: it was deleted there" in ended.out
    assert "yet" not in ended.out
    code, document = told(sent, "recipients", "check", "member0001@example.com", "--live", "--date", DAY)
    assert (code, document["unknown"], document["gone"]) == (75, [campaign["id"]], [campaign["id"]])


def test_a_sync_whose_report_is_not_whole_says_what_to_do(sent: Desk) -> None:
    [campaign] = sent.sandbox.state()["campaigns"]
    sent.sandbox.edit(campaign["id"], status="sending")
    ended = sent.run(*SYNC, "--wait-seconds", "0")
    said, what_to_do = ended.err.splitlines()
    assert (ended.code, "its report is not whole yet" in said) == (75, True)
    assert what_to_do == "What to do: sendonce runbook temporary"
    assert told(sent, *SYNC, "--wait-seconds", "0")[1]["runbook"] == "temporary"


@pytest.mark.parametrize(
    "command",
    [
        ("sync", "--date", "2999-01-05"), ("sync", "--since", "2999-01-05"), ("duplicates", "--date", "2999-01-05"),
        ("check", "a@example.com", "--date", "2999-01-05"), ("export", "--date", "2999-01-05"),
        ("check", "a@example.com", "--live", "--date", "2999-01-05"),
    ],
)  # fmt: skip
def test_a_future_date_is_wrong_usage_and_advises_no_option_that_is_not_there(
    sent: Desk, command: tuple[str, ...]
) -> None:
    ended = sent.run("recipients", *command)
    assert (ended.code, "2999-01-05 is in the future" in ended.err) == (2, True)
    assert "--early" not in ended.all


def test_several_dates_are_read_at_once(desk: Desk) -> None:
    for day in ("2026-01-04", DAY, "2026-01-06"):
        desk.prepare(day)
        assert desk.send(day=day).code == 0
    code, document = told(desk, "recipients", "sync", "--since", "2026-01-04", "--until", DAY)
    assert (code, [one["date"] for one in document["campaigns"]]) == (0, ["2026-01-04", DAY])
    code, document = told(desk, "recipients", "sync", "--since", "2026-01-01")
    assert [(one["date"], one["was_known"]) for one in document["campaigns"]] == [
        ("2026-01-04", True), (DAY, True), ("2026-01-06", False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [
        ("--date", DAY, "--since", DAY),
        ("--until", DAY),
        ("--since", "2026-01-06", "--until", DAY),
        ("--wait-seconds", "-1"),
        ("--wait-seconds", "nan"),
        ("--wait-seconds", "inf"),
    ],
)
def test_dates_that_cannot_be_meant_are_wrong_usage(sent: Desk, wrong: tuple[str, ...]) -> None:
    assert sent.run("recipients", "sync", *wrong).code == 2
    assert sent.sandbox.calls() == []


def test_a_limit_on_file_sizes_is_one_message_and_leaves_the_record_as_it_was(sent: Desk) -> None:
    assert sent.run(*SYNC).code == 0
    twin(sent, [f"Other{n}@example.com" for n in range(5000)])
    limit = 150_000

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    ended = sent.run(*SYNC, preexec_fn=limited)
    assert (ended.code, ended.out) == (78, "")
    assert ended.err.count("\n") == 2
    assert "The record of recipients" in ended.err
    assert rows_of(sent) == everybody()
    assert sent.run(*SYNC).code == 0
    assert len(rows_of(sent)) == PEOPLE + 5000


def test_two_syncs_at_once_do_not_get_in_each_others_way(sent: Desk) -> None:
    sent.sandbox.faults("sent-to=slow:0.5")
    with sent.start(*SYNC) as first:
        wait_until(lambda: bool(sent.sandbox.calls("sent-to")), what="the first reads")
        ended = sent.run(*SYNC)
        first.communicate()
    assert (first.returncode, ended.code) == (0, 75)
    assert "Another process is writing" in ended.err
    assert rows_of(sent) == everybody()


def test_ctrl_c_ends_a_sync_at_once_and_the_next_goes_on(sent: Desk) -> None:
    sent.sandbox.faults("sent-to=slow:1")
    with sent.start(*SYNC) as process:
        wait_until(lambda: len(sent.sandbox.calls("sent-to")) > 1, what="it reads")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 75
    assert "Traceback" not in err
    sent.sandbox.faults()
    assert sent.run(*SYNC).code == 0
    assert rows_of(sent) == everybody()


# ------------------------------------------------------------------------------------------------------ asking


def test_check_says_who_got_it_when_and_by_which_campaign(sent: Desk) -> None:
    [campaign] = sent.sandbox.state()["campaigns"]
    assert sent.run(*SYNC).code == 0
    sent.sandbox.clear_calls()
    for arguments in (("Member0001@Example.com",), ("member0001@example.com", "--date", DAY)):
        ended = sent.run("recipients", "check", *arguments)
        assert ended.code == 0, ended
        assert campaign["id"] in ended.out
        assert DAY in ended.out
    for arguments in (("nobody@example.com",), ("nobody@example.com", "--date", DAY)):
        assert sent.run("recipients", "check", *arguments).code == 1
    assert sent.sandbox.calls() == []
    code, document = told(sent, "recipients", "check", "member0001@example.com")
    assert (code, document["got"], [one["id"] for one in document["campaigns"]]) == (
        0,
        True,
        [campaign["id"]],
    )


def test_check_live_asks_mailchimp_alone(sent: Desk) -> None:
    assert sent.run("recipients", "check", "member0002@example.com", "--live", "--date", DAY).code == 0
    assert sent.run("recipients", "check", "nobody@example.com", "--live", "--date", DAY).code == 1
    assert not record_file(sent).exists()
    ended = sent.run("recipients", "check", "member0002@example.com", "--live", "--date", "2026-01-04")
    assert (ended.code, ended.out) == (1, "")


@pytest.mark.parametrize(
    "wrong", ["nobody", "a@b", "@example.com", "a b@example.com", "", "x@example.com,y@example.com"]
)
def test_an_address_that_is_none_is_wrong_usage(sent: Desk, wrong: str) -> None:
    for command in (("check",), ("check", "--live"), ("forget", "--yes")):
        ended = sent.run("recipients", *command, wrong)
        assert (ended.code, "is no address" in ended.err) == (2, True), ended
    assert sent.sandbox.calls() == []


def test_an_address_with_an_apostrophe_is_asked_for_and_forgotten(desk: Desk) -> None:
    who = "o'brien+1@example.com"
    desk.sandbox.add_draft(f"Digest {DAY}", list_id=desk.sandbox.add_audience([who]))
    assert desk.send().code == 0
    assert desk.run(*SYNC).code == 0
    assert desk.run("recipients", "check", who).code == 0
    assert desk.run("recipients", "check", who, "--live", "--date", DAY).code == 0
    out = desk.run("recipients", "forget", "--yes", who).out
    assert out.startswith("Forgotten: 1 entry names nobody any more, and counts as before.")
    out = desk.run("recipients", "forget", "--yes", who).out
    assert out.startswith("Forgotten: 0 entries name nobody any more, and count as before.")


def test_a_date_that_is_not_on_record_is_said_and_not_taken_for_a_no(sent: Desk) -> None:
    for command in (("check", "member0001@example.com"), ("duplicates",), ("export",)):
        ended = sent.run("recipients", *command, "--date", DAY)
        assert (ended.code, ended.out) == (1, "")
        assert f"Run `sendonce recipients sync --date {DAY}`" in ended.err
        ended = sent.run("recipients", *command, "--date", "2026-01-04")
        assert (ended.code, ended.out) == (1, "")
        assert "nothing was sent" in ended.err
    assert "Nothing is on record" in sent.run("recipients", "duplicates").err


def test_duplicates_are_those_who_got_two_campaigns_of_a_date(sent: Desk) -> None:
    assert sent.run(*SYNC).code == 0
    ended = sent.run("recipients", "duplicates", "--date", DAY)
    assert (ended.code, ended.out) == (0, "Nobody got two of a date.\n")
    campaign = twin(sent, ["Member0007@example.com", "new@example.com"])
    assert sent.run("recipients", "duplicates", "--date", DAY).code == 75  # of the twin nothing is known yet
    assert sent.run(*SYNC).code == 0
    code, document = told(sent, "recipients", "duplicates")
    assert code == 1
    [one] = document["duplicates"]
    assert one["email_id"] == md5(b"member0007@example.com").hexdigest()
    assert campaign in one["campaigns"]
    assert len(one["campaigns"]) == 2
    ended = sent.run("recipients", "duplicates", "--date", DAY, "-q")
    assert (ended.code, one["email_id"] in ended.out) == (1, True)


def test_where_one_of_the_campaigns_is_not_on_record_it_is_not_a_no(sent: Desk) -> None:
    assert sent.run(*SYNC).code == 0
    campaign = twin(sent, ["new@example.com"])
    for command in (("check", "new@example.com"), ("check", "nobody@example.com"), ("export",)):
        code, document = told(sent, "recipients", *command, "--date", DAY)
        assert (code, document["unknown"]) == (75, [campaign])
        assert sent.run("recipients", *command, "--date", DAY).code == 75
    ended = sent.run("recipients", "check", "nobody@example.com", "--date", DAY)
    assert f"Of campaign {campaign} it cannot be said" in ended.out
    assert sent.run("recipients", "check", "member0001@example.com", "--date", DAY).code == 0
    assert sent.run(*SYNC).code == 0
    assert sent.run("recipients", "check", "new@example.com", "--date", DAY).code == 0
    assert sent.run("recipients", "check", "nobody@example.com", "--date", DAY).code == 1
    assert sent.run("recipients", "export", "--date", DAY).code == 0


def test_check_live_of_a_campaign_on_its_way_is_not_a_no(sent: Desk) -> None:
    [campaign] = sent.sandbox.state()["campaigns"]
    sent.sandbox.edit(campaign["id"], status="sending")
    ended = sent.run("recipients", "check", "nobody@example.com", "--live", "--date", DAY)
    assert (ended.code, f"Of campaign {campaign['id']} it cannot be said" in ended.out) == (75, True)


def test_an_export_has_everybody_as_csv_or_json(sent: Desk) -> None:
    assert sent.run(*SYNC).code == 0
    ended = sent.run("recipients", "export", "--date", DAY)
    rows = list(csv.DictReader(io.StringIO(ended.out)))
    assert [row["email_id"] for row in rows] == [who for who, _ in everybody()]
    assert {(row["date"], row["status"], row["address"]) for row in rows} == {(DAY, "sent", "")}
    assert sent.run("recipients", "export", "--date", DAY, "--csv").out == ended.out
    code, document = told(sent, "recipients", "export", "--date", DAY)
    assert code == 0
    assert [row["email_id"] for row in document["recipients"]] == [who for who, _ in everybody()]
    assert sent.run("recipients", "export", "--date", DAY, "--csv", "--json").code == 2
    assert sent.run("recipients", "export").code == 2


@pytest.mark.parametrize("form", [(), ("--json",)])
@pytest.mark.parametrize("output", ["full disk", "closed", "limit"])
def test_an_export_that_cannot_be_written_is_no_success(
    sent: Desk, tmp_path: Path, form: tuple[str, ...], output: str
) -> None:
    assert sent.run(*SYNC).code == 0

    def spoil() -> None:
        if output == "closed":
            os.close(1)
        elif output == "limit":
            resource.setrlimit(resource.RLIMIT_FSIZE, (20 * 1024, 20 * 1024))

    path = Path("/dev/full") if output == "full disk" else tmp_path / "who.csv"
    with path.open("wb") as file:
        ended = sent.run("recipients", "export", "--date", DAY, *form, stdout=file, preexec_fn=spoil)
    said, what_to_do = ended.err.splitlines()
    assert ended.code == 75
    assert said.startswith("The export is not whole: standard output cannot be written (")
    assert what_to_do == "What to do: sendonce runbook temporary"


def test_an_export_whose_reader_has_seen_enough_says_nothing(sent: Desk) -> None:
    assert sent.run(*SYNC).code == 0
    ours, theirs = os.pipe()
    os.close(ours)
    ended = sent.run("recipients", "export", "--date", DAY, stdout=theirs)
    os.close(theirs)
    assert (ended.code, ended.err) == (0, "")


def test_no_spreadsheet_runs_what_is_in_an_export(desk: Desk) -> None:
    desk.write_env(SENDONCE_KEEP_ADDRESSES="yes")
    audience = desk.sandbox.add_audience(["=cmd@example.com", "+1@example.com", "plain@example.com"])
    desk.sandbox.add_draft(f"Digest {DAY}", list_id=audience)
    assert desk.send().code == 0
    assert desk.run(*SYNC).code == 0
    out = desk.run("recipients", "export", "--date", DAY).out
    assert {row["address"] for row in csv.DictReader(io.StringIO(out))} == {
        "'=cmd@example.com", "'+1@example.com", "plain@example.com",
    }  # fmt: skip


def test_who_is_forgotten_counts_and_is_not_brought_back(sent: Desk) -> None:
    sent.write_env(SENDONCE_KEEP_ADDRESSES="yes")
    assert sent.run(*SYNC).code == 0
    ended = sent.run("recipients", "forget", "member0003@example.com")
    assert (ended.code, len(rows_of(sent))) == (2, PEOPLE)  # without a terminal it wants --yes
    assert sent.run("recipients", "forget", "Member0003@example.com", "--yes").code == 0
    for again in ((), (*SYNC, "--refresh")):
        if again:
            assert sent.run(*again).code == 0
        who = md5(b"member0003@example.com").hexdigest()
        assert who not in {name for name, _ in rows_of(sent)}
        assert len(rows_of(sent)) == PEOPLE
        assert b"member0003@example.com" not in record_file(sent).read_bytes()
        ended = sent.run("recipients", "check", "member0003@example.com", "--date", DAY)
        assert (ended.code, "was forgotten" in ended.out) == (0, True)
    assert sent.run("recipients", "duplicates").code == 0


# ------------------------------------------------------------------------------------------------- where it is


def test_send_batch_waits_and_records_where_that_is_wanted(desk: Desk) -> None:
    desk.write_env(SENDONCE_RECORD_RECIPIENTS="yes")
    desk.prepare()
    ended = desk.send("--wait")
    assert (ended.code, ended.err) == (0, "")
    assert rows_of(desk) == everybody()
    assert desk.send().code == 0


def test_a_record_that_fails_is_a_warning_and_the_day_is_sent(desk: Desk) -> None:
    desk.write_env(SENDONCE_RECORD_RECIPIENTS="yes")
    desk.prepare()
    desk.sandbox.faults("sent-to=fewer:1 nth=2")
    ended = desk.send("--wait")
    assert (ended.code, desk.deliveries()) == (0, 1)
    assert ended.err.startswith("Warning: Who got it is not on record: ")
    assert f"Run `sendonce recipients sync --date {DAY}`" in ended.err
    assert desk.record()["state"] == "sent"
    assert desk.run(*SYNC).code == 0


def test_without_wait_or_setting_nothing_is_recorded(desk: Desk) -> None:
    desk.prepare()
    assert desk.send("--wait").code == 0
    desk.write_env(SENDONCE_RECORD_RECIPIENTS="yes")
    assert desk.send().code == 0
    assert desk.sandbox.calls("sent-to") == []
    assert not record_file(desk).exists()


def copied_to(desk: Desk, url: str) -> Ended:
    """Copy the ledger to a server."""
    file = desk.folder / "state.url"
    file.touch(mode=0o600)
    file.write_text(url)
    return desk.run("ledger", "copy", "--to-file", str(file))


def test_a_redis_wants_a_file_to_be_named(sent: Desk, tmp_path: Path) -> None:
    place = new_place("redis", tmp_path)
    assert copied_to(sent, place.where).code == 0
    sent.write_env(SENDONCE_STATE=place.where)
    ended = sent.run(*SYNC)
    assert (ended.code, ended.out) == (78, "")
    assert "Set SENDONCE_RECIPIENTS_FILE" in ended.err
    path = tmp_path / "elsewhere.db"
    sent.write_env(SENDONCE_RECIPIENTS_FILE=str(path))
    assert sent.run(*SYNC).code == 0
    assert path.exists()
    assert sent.run("recipients", "check", "member0001@example.com").code == 0


@pytest.mark.parametrize("kind", SQL)
def test_a_database_keeps_the_record_beside_the_ledger(sent: Desk, tmp_path: Path, kind: str) -> None:
    place = new_place(kind, tmp_path)
    job = place.job
    sent.ledger_file.rename(sent.state / f"{job}.json")
    text = (sent.state / f"{job}.json").read_text().replace('"job": "daily"', f'"job": "{job}"')
    (sent.state / f"{job}.json").write_text(text)
    sent.write_env(SENDONCE_JOB=job)
    copied = copied_to(sent, place.where)
    assert copied.code == 0, copied
    sent.write_env(SENDONCE_STATE=place.where)
    sent.sandbox.faults("sent-to=shift:1 nth=3")
    assert sent.run(*SYNC).code == 75
    sent.sandbox.faults()
    hook = signal_itself(
        sent.folder / "hook", signal.SIGKILL, events={"http.client.send"}, part="HTTP/1.1", nth=5
    )
    assert sent.run(*SYNC, environ=hook).code == -signal.SIGKILL
    assert sent.run("recipients", "check", "member0001@example.com", "--date", DAY).code == 1
    ended = sent.run(*SYNC)
    assert ended.code == 0, ended
    rows = csv.DictReader(io.StringIO(sent.run("recipients", "export", "--date", DAY).out))
    assert [row["email_id"] for row in rows] == [who for who, _ in everybody()]
    assert sent.run("recipients", "forget", "member0001@example.com", "--yes").code == 0
    ended = sent.run("recipients", "check", "member0001@example.com")
    assert (ended.code, "was forgotten" in ended.out) == (0, True)
    assert not list(sent.state.glob("*.recipients.db*"))


@pytest.mark.parametrize(
    "script",
    ["DROP TABLE about; CREATE TABLE about (x)", "DELETE FROM about", "UPDATE about SET version = 'x'"],
)
def test_a_damaged_record_is_one_message_with_its_remedy_whatever_is_asked(sent: Desk, script: str) -> None:
    assert sent.run(*SYNC).code == 0
    db = sqlite3.connect(record_file(sent))
    db.executescript(script)
    db.close()
    for command in (
        ("sync",), ("sync", "--refresh"), ("check", "a@example.com"), ("duplicates",), ("export", "--date", DAY),
        ("forget", "--yes", "a@example.com"),
    ):  # fmt: skip
        day = ("--date", DAY) if command[0] == "sync" else ()
        ended = sent.run("recipients", *command, *day)
        assert (ended.code, ended.out) == (78, ""), ended
        said, what_to_do = ended.err.splitlines()
        assert "it is no record of sendonce; move it away and run `sendonce recipients sync` again" in said
        assert what_to_do == "What to do: sendonce runbook state"


def test_a_damaged_record_does_not_stop_the_rest_of_a_mailing(sent: Desk) -> None:
    [campaign] = sent.sandbox.state()["campaigns"]
    sent.sandbox.edit(campaign["id"], delivered=2000, status="canceled", keep_deliveries=True)
    assert sent.run(*SYNC).code == 0
    db = sqlite3.connect(record_file(sent))
    db.executescript("DELETE FROM about")
    db.close()
    ended = sent.send("--wait", "--remaining", "--reason", "canceled half-way")
    assert (ended.code, "Mailchimp has finished: 300 emails" in ended.out) == (0, True), ended
    total = sent.sandbox.mailbox()["total"]
    assert (total["deliveries"], total["distinct"], total["most"]) == (PEOPLE, PEOPLE, 1)


def test_a_damaged_part_of_a_record_is_a_warning_and_the_report_is_read_anew(sent: Desk) -> None:
    part = record_file(sent).with_name("daily.recipients.db.part")
    part.write_bytes(b"no database at all, but long enough to be looked at" * 99)
    part.chmod(0o600)
    ended = sent.run(*SYNC)
    assert ended.code == 0
    [line] = ended.err.splitlines()
    assert line.startswith(f"Warning: {part} was damaged, and is dropped")
    assert rows_of(sent) == everybody()


def test_a_record_that_may_not_be_written_is_one_message(sent: Desk) -> None:
    assert sent.run(*SYNC).code == 0
    record_file(sent).chmod(0o400)
    # root may write everything, unless that right is taken from it
    no_more = ("setpriv", "--bounding-set", "-dac_override") if os.geteuid() == 0 else ()
    ended = sent.run(*SYNC, "--refresh", under=no_more)
    assert (ended.code, ended.err.count("\n")) == (78, 2)  # what happened, and where the runbook has it


def test_the_audience_of_the_sandbox_is_the_default_one(sandbox: Sandbox) -> None:
    """What `everybody` counts on."""
    assert [one["id"] for one in sandbox.state()["audiences"]] == [LIST_ID]
