"""What the operator's commands show and keep, through the real command."""

from __future__ import annotations

import csv
import json
import os
import pty
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from support.runs import DAY, Desk
from support.sandbox import LIST_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from support.sandbox import Sandbox


def test_waiting_keeps_the_number_of_mails_on_record(desk: Desk) -> None:
    desk.prepare()
    done = desk.send("--wait")
    assert (
        done.code,
        "Mailchimp has finished: 5 emails to 5 recipients counted before the send." in done.out,
    ) == (0, True)
    assert desk.record()["campaigns"][0]["emails_sent"] == 5
    assert desk.leftovers() == []


def test_fewer_emails_than_recipients_are_said_and_are_no_fault(desk: Desk) -> None:
    desk.prepare()
    draft = desk.sandbox.state()["campaigns"][0]["id"]
    desk.sandbox.edit(draft, emails_sent=3)
    told = json.loads(desk.run("--json", "send-batch", "--date", DAY, "--wait").out)
    assert (told["exit"], told["emails_sent"], told["recipients"]) == (0, 3, 5)
    assert (
        "Mailchimp has finished: 3 emails to 5 recipients counted before the send (2 fewer)."
        in told["message"]
    )
    checked = json.loads(desk.run("--json", "check", "--date", DAY).out)
    assert (checked["exit"], checked["emails_sent"], checked["recipients"]) == (0, 3, 5)
    assert "is sent, 3 emails to 5 recipients counted by Mailchimp (2 fewer)." in checked["message"]
    explained = " ".join(desk.run("explain", "--date", DAY).out.split())
    assert "3 emails to 5 recipients counted before the send (2 fewer)" in explained


def test_csv_has_whole_times_and_the_table_has_short_ones(desk: Desk) -> None:
    desk.prepare()
    desk.send("--wait")
    (row,) = csv.DictReader(desk.run("ledger", "list", "--csv").out.splitlines())
    sent_at = row["sent at"]
    assert (row["date"], row["state"], row["emails"]) == (DAY, "sent", "5")
    assert (sent_at[4], sent_at[10], sent_at[-6:]) == ("-", " ", "+01:00")
    assert len(sent_at) == len("2026-01-05 08:00:05+01:00")


def test_a_list_that_is_narrowed_to_nothing_does_not_say_that_nothing_is_on_record(desk: Desk) -> None:
    desk.prepare()
    desk.send()
    assert (
        desk.run("ledger", "list", "--state", "refused").out
        == "No batch on record for job daily that matches.\n"
    )
    assert desk.run("ledger", "list", "--since", "2026-02-01", "--until", "2026-01-01").code == 2
    assert desk.run("ledger", "list", "--csv", "--json").code == 2


def test_runs_that_ended_alike_are_shown_once(desk: Desk) -> None:
    for _ in range(3):
        assert desk.send().code == 1
    shown = desk.run("ledger", "show", DAY).out
    assert shown.count("There is no campaign named") == 1
    assert "the last of 3 runs that ended so" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_a_rebuild_names_what_it_would_leave_out(desk: Desk) -> None:
    desk.prepare()
    assert desk.send().code == 0
    assert desk.send(day="2026-01-06").code == 1
    asked = desk.run("ledger", "rebuild")
    assert asked.code == 2
    assert (
        "would hold 1 batch. Left out, as Mailchimp has nothing of them: 2026-01-06 (refused)." in asked.err
    )
    assert desk.run("ledger", "rebuild", "--yes").code == 0
    assert desk.record("2026-01-06") == {}
    assert desk.record()["campaigns"][0]["requested_at"] is not None


def test_a_fault_names_the_command_it_ended(desk: Desk) -> None:
    desk.write_env(SENDONCE_TIMEZONE="Europe/Berln")
    told = json.loads(desk.send("--json").out)
    assert (told["command"], told["exit"]) == ("send-batch", 78)


def test_a_dry_run_that_would_refuse_says_what_to_do(make_desk: Callable[..., Desk]) -> None:
    desk = make_desk("html", SENDONCE_HTML_FILE="missing.html")
    told = desk.send("--dry-run")
    assert told.code == 1
    assert "missing.html cannot be read" in told.err
    assert "A run would refuse, and send nothing" in told.err


def test_init_refuses_while_the_environment_would_win_over_what_it_writes(
    tmp_path: Path, sandbox: Sandbox
) -> None:
    """The sandbox's exports, still set in the terminal, would have the sandbox accept the key."""
    desk = Desk(tmp_path / "desk", sandbox)
    desk.env_file.unlink()
    flags = [
        "--timezone",
        "Europe/Paris",
        "--state",
        str(tmp_path / "s"),
        "--set",
        f"MAILCHIMP_API_URL={sandbox.url}",
    ]
    exports = {"MAILCHIMP_API_KEY": desk.values["MAILCHIMP_API_KEY"], "SENDONCE_STATE": str(desk.state)}
    refused = desk.run("init", *flags, environ=exports)
    assert (refused.code, desk.env_file.exists()) == (78, False)
    assert "The environment sets MAILCHIMP_API_KEY, SENDONCE_STATE" not in refused.err
    assert "The environment sets SENDONCE_STATE, which would win over" in refused.err
    del exports["SENDONCE_STATE"]
    made = desk.run("init", *flags, environ=exports)
    assert made.code == 0, made.err
    assert "Warning: MAILCHIMP_API_KEY is set in this terminal's environment, which wins over" in made.err
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o700
    assert desk.env_file.stat().st_mode & 0o777 == 0o600


def test_a_skipped_date_is_not_mailed_and_says_why_until_it_is_reset(desk: Desk) -> None:
    desk.prepare()
    told = desk.run("ledger", "skip", "--date", DAY, "--reason", "New Year")
    assert (told.code, desk.record()["state"]) == (0, "skipped"), told.err
    run = desk.send()
    assert (run.code, desk.deliveries()) == (0, 0)
    assert f"{DAY} is skipped: New Year (" in run.out
    assert desk.run("-q", "send-batch", "--date", DAY).all == ""
    assert desk.run("ledger", "reset", "--date", DAY, "--yes").code == 0
    assert desk.send().code == 0
    assert desk.deliveries() == 1


def test_a_paused_job_is_not_mailed_and_says_why_until_it_is_resumed(desk: Desk) -> None:
    desk.prepare()
    told = desk.run("pause", "--reason", "Server move", "--until", "2099-01-01")
    assert (told.code, "is paused until 2099-01-01 (that day's mail goes out again)" in told.out) == (0, True)
    for words in (("send-batch",), ("send-batch", "--dry-run")):
        run = desk.run(*words, "--date", DAY)
        assert (run.code, desk.deliveries()) == (0, 0)
        said = f"Nothing is sent for {DAY}: the job is paused until 2099-01-01, or until `sendonce resume`."
        assert said in " ".join(run.out.split())
        assert "gave as reason: Server move." in " ".join(run.out.split())
    assert desk.run("-q", "send-batch", "--date", DAY).all == ""
    assert json.loads(desk.run("--json", "send-batch", "--date", DAY).out)["outcome"] == "paused"
    explained = desk.run("explain", "--date", DAY)
    assert ("the job is paused" in explained.out, "resume" in explained.out) == (True, True)

    over = desk.run("resume")
    assert (over.code, "is over (Server move)" in over.out) == (0, True)
    assert "was not paused" in desk.run("resume").out
    assert desk.send().code == 0
    assert desk.deliveries() == 1


def test_a_pause_that_lasts_longer_is_not_replaced_and_a_shorter_one_is(desk: Desk) -> None:
    assert desk.run("pause", "--reason", "strike", "--until", "2099-01-01").code == 0
    assert desk.run("pause", "--reason", "longer", "--until", "2099-02-01").code == 0
    assert desk.run("pause", "--reason", "legal hold").code == 0
    refused = desk.run("pause", "--reason", "server move", "--until", "2099-01-01")
    assert refused.code == 1
    assert "gave as reason: legal hold. If that is over, `sendonce resume` first" in " ".join(
        refused.err.split()
    )
    assert json.loads(desk.ledger_file.read_text())["pause"]["reason"] == "legal hold"


def test_what_mailchimp_has_scheduled_is_named_by_a_pause_and_stops_a_skip(desk: Desk) -> None:
    planned = desk.sandbox.add_draft(
        "Digest 2099-01-05", status="schedule", send_time="2099-01-05T10:00:00+00:00"
    )
    skipped = desk.run("ledger", "skip", "--date", "2099-01-05", "--reason", "strike")
    assert (skipped.code, f"2099-01-05 is scheduled ({planned}) in Mailchimp" in skipped.err) == (1, True)
    paused = desk.run("pause", "--reason", "strike")
    assert (paused.code, f"({planned}) in Mailchimp, which mails it all the same" in paused.err) == (0, True)
    desk.sandbox.edit(planned, status="save", send_time="")
    assert desk.run("ledger", "skip", "--date", "2099-01-05", "--reason", "strike").code == 0


def test_a_date_that_was_unscheduled_can_be_skipped(desk: Desk) -> None:
    planned = desk.sandbox.add_draft(f"Digest {DAY}", status="schedule", send_time=f"{DAY}T22:00:00+00:00")
    assert desk.send().code == 0
    desk.sandbox.edit(planned, status="save", send_time="")
    assert desk.run("ledger", "skip", "--date", DAY, "--reason", "strike").code == 0
    assert desk.send().code == 0
    assert desk.deliveries() == 0


def test_a_date_that_some_were_sent_cannot_be_skipped(desk: Desk) -> None:
    desk.prepare()
    assert desk.send().code == 0
    main = desk.record()["campaigns"][0]["id"]
    desk.sandbox.edit(main, delivered=2, status="canceled", keep_deliveries=True)
    desk.ledger_file.unlink()
    assert desk.send().code == 1
    refused = desk.run("ledger", "skip", "--date", DAY, "--reason", "strike")
    assert (refused.code, desk.record()["state"]) == (1, "refused"), refused.all


def test_a_pause_ends_by_itself_on_its_date(desk: Desk) -> None:
    desk.prepare()
    assert desk.run("pause", "--reason", "Strike", "--until", "2099-01-01").code == 0
    ledger = json.loads(desk.ledger_file.read_text())
    desk.ledger_file.write_text(json.dumps(ledger | {"pause": ledger["pause"] | {"until": "2026-01-01"}}))
    assert desk.send().code == 0
    assert desk.deliveries() == 1


@pytest.mark.parametrize(
    "words",
    [(), ("--reason", " "), ("--reason", "x", "--until", "2020-01-01"), ("--reason", "x", "--until", "soon")],
)
def test_a_pause_without_a_reason_or_with_an_end_that_is_past_is_wrong_usage(
    words: tuple[str, ...], desk: Desk
) -> None:
    assert desk.run("pause", *words).code == 2
    assert not desk.ledger_file.exists()


def test_several_dates_are_skipped_at_once_and_none_if_one_of_them_is_sent(desk: Desk) -> None:
    desk.prepare()
    assert desk.send().code == 0
    refused = desk.run("ledger", "skip", "--from", "2026-01-04", "--to", "2026-01-06", "--reason", "Strike")
    assert (refused.code, desk.record("2026-01-04")) == (1, {})
    assert f"Nothing was changed: {DAY} is sent" in refused.err
    made = desk.run(
        "--json", "ledger", "skip", "--from", "2026-01-06", "--to", "2026-01-08", "--reason", "Strike"
    )
    assert json.loads(made.out)["dates"] == ["2026-01-06", "2026-01-07", "2026-01-08"]
    again = desk.run("ledger", "skip", "--date", "2026-01-07", "--reason", "Other")
    assert "1 date was skipped before: no change." in again.out
    assert desk.record("2026-01-07")["reason"].startswith("Strike (")


def test_a_date_that_mailchimp_has_scheduled_cannot_be_skipped(desk: Desk) -> None:
    desk.sandbox.add_draft(f"Digest {DAY}", status="schedule", send_time=f"{DAY}T09:00:00+00:00")
    assert desk.send().code == 0
    refused = desk.run("ledger", "skip", "--date", DAY, "--reason", "x")
    assert (refused.code, "which would mail it all the same" in refused.err) == (1, True)


def test_a_ledger_of_the_sandbox_is_not_copied_to_where_it_would_silence_the_real_mail(
    desk: Desk, tmp_path: Path
) -> None:
    desk.prepare()
    assert desk.send().code == 0
    to = ("ledger", "copy", "--to", f"sqlite:///{tmp_path}/x.db")
    desk.write_env(MAILCHIMP_API_URL=None)
    refused = desk.run(*to)
    assert (refused.code, "would silence the mail" in refused.err) == (1, True)
    desk.write_env(MAILCHIMP_API_URL=desk.sandbox.url)
    assert desk.run(*to).code == 0
    again = desk.run(*to)
    assert (again.code, "Without a terminal say --yes" in again.err) == (2, True)
    assert desk.run(*to, "--yes").code == 0
    assert desk.run("ledger", "copy", "--to", str(desk.state)).code == 2


@pytest.mark.parametrize(
    "words",
    [
        ("--date", DAY),
        ("--reason", "x"),
        ("--date", DAY, "--reason", " "),
        ("--from", DAY, "--reason", "x"),
        ("--date", DAY, "--from", DAY, "--to", DAY, "--reason", "x"),
        ("--from", "2026-01-06", "--to", DAY, "--reason", "x"),
        ("--from", "2026-01-06", "--to", "2028-01-06", "--reason", "x"),
    ],
)
def test_what_is_not_a_date_to_skip_is_wrong_usage(words: tuple[str, ...], desk: Desk) -> None:
    assert desk.run("ledger", "skip", *words).code == 2


def test_a_pause_is_silent_on_success_with_q(desk: Desk) -> None:
    assert desk.run("-q", "pause", "--reason", "Strike").all == ""
    assert desk.run("-q", "resume").all == ""


@pytest.mark.parametrize(
    "words",
    [
        ("pause",),
        ("ledger", "skip", "--date", DAY),
        ("ledger", "reset", "--date", DAY, "--yes"),
        ("send-batch", "--date", DAY, "--override", "gap"),
        ("send-batch", "--date", DAY, "--remaining"),
    ],
)
def test_a_reason_of_more_than_500_characters_is_wrong_usage(words: tuple[str, ...], desk: Desk) -> None:
    told = desk.run(*words, "--reason", "x" * 501)
    assert (told.code, "--reason is longer than 500 characters" in told.err) == (2, True), told.all
    assert desk.run(*words, "--reason", "x" * 500).code != 2


def test_no_date_is_broken_in_the_table_of_80_columns(desk: Desk) -> None:
    desk.write_env(SENDONCE_TITLE="Digest of a company with a long name {date}")
    draft = desk.sandbox.add_draft(f"Digest of a company with a long name {DAY}", list_id=LIST_ID)
    desk.sandbox.edit(draft, status="sent", emails_sent=5)
    assert desk.send().code == 0
    # sent by hand and not on its date: all columns want room
    table = desk.run("ledger", "list").out
    assert "hand)" in table
    # in the column of dates, in the title, and with the time of the send
    assert table.count(DAY) == 2
    assert len(re.findall("[0-9]{4}-[0-9]{2}-[0-9]{2}", table)) == 3
    assert max(map(len, table.splitlines())) <= 80


def test_a_wait_that_cannot_see_says_that_the_mail_is_out(desk: Desk) -> None:
    """401 while waiting: not 78, which would mean that nothing was sent."""
    desk.prepare()
    desk.sandbox.settings(sending_s=30)
    desk.sandbox.faults({"on": "get", "word": "401", "nth": 4})
    told = desk.send("--wait")
    assert desk.deliveries() == 1
    assert (told.code, desk.record()["state"]) == (1, "sent")
    assert "was sent and is recorded" in told.err


def init_typed(folder: Path, answers: Sequence[str], **environ: str) -> str:
    """What `init` shows on a terminal on which these are typed, each once it is asked for."""
    ours, its = pty.openpty()
    command = [sys.executable, "-P", "-m", "sendonce", "--env-file", str(folder / "x.env"), "init"]
    with subprocess.Popen(
        command,
        env={"TERM": "dumb", "PATH": "/usr/bin:/bin", "HOME": str(folder), **environ},
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
    ):
        os.close(its)
        shown, rest = "", list(answers)
        try:
            while data := os.read(ours, 65536):
                shown += data.decode()
                if rest and shown.endswith(": "):
                    os.write(ours, f"{rest.pop(0)}\n".encode())
        except OSError:  # how Linux says that the other end is closed
            pass
        os.close(ours)
    return shown


def test_init_proposes_what_the_environment_sets_and_says_that_it_wins(tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    # the key is no key: it ends there, having asked and shown what it shows
    shown = init_typed(tmp_path, ["UTC", "", "", "", "no key"], SENDONCE_STATE=state)
    assert f"SENDONCE_STATE [{state}]: " in shown
    assert shown.count("The environment sets it, and wins") == 1
    assert not (tmp_path / "x.env").exists()


def test_init_shows_no_password_of_a_url_that_the_environment_sets(tmp_path: Path) -> None:
    url = "redis://:hunter2@127.0.0.1:1/0"
    shown = init_typed(tmp_path, ["UTC", "", "", "no key"], SENDONCE_STATE=url)
    assert "SENDONCE_SOURCE [draft]: " in shown
    assert "hunter2" not in shown
