"""`check` tells by Mailchimp alone whether the day's mail left; `explain` puts all about a date on one screen."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest

from support.runs import DAY, Desk, wait_until
from support.sandbox import LIST_ID

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.sandbox import Sandbox

TITLE = f"Digest {DAY}"
PAST = ("check", "--date", DAY)


def later_than_now() -> tuple[str, str]:
    """A date and a time that are not reached: 23:59 of tomorrow."""
    tomorrow = datetime.now(ZoneInfo("Europe/Berlin")).date() + timedelta(days=1)
    return tomorrow.isoformat(), "23:59"


# --- check


def test_a_second_host_with_nothing_but_the_key_tells_that_the_mail_left(
    desk: Desk, sandbox: Sandbox
) -> None:
    desk.prepare()
    assert desk.send("--wait").code == 0
    desk.write_env(SENDONCE_STATE=None)
    told = desk.run(*PAST, "--by", "09:30")
    (campaign,) = [c["id"] for c in sandbox.state()["campaigns"] if c["title"] == TITLE]
    assert (told.code, told.err) == (0, "")
    assert (
        told.out == f'{DAY}: "{TITLE}" ({campaign}) is sent, 5 emails to 5 recipients counted by Mailchimp.\n'
    )
    assert desk.run(*PAST, "-q").all == ""


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"status": "save"}, "is a draft"),
        (
            {"status": "schedule", "send_time": "2999-01-06T09:00:00+00:00"},
            "is scheduled for 2999-01-06 10:00+01:00",
        ),
        ({"status": "paused"}, 'is "paused" in Mailchimp'),
        ({"status": "canceled"}, 'is "canceled" in Mailchimp'),
        ({"title": f"Digest {DAY} [draft]"}, f'there is no campaign named "{TITLE}"'),
    ],
)
def test_what_has_not_left_is_1_with_the_reason_and_75_while_there_is_time(
    fields: dict[str, str], said: str, desk: Desk, sandbox: Sandbox
) -> None:
    campaign = sandbox.add_draft(TITLE, list_id=LIST_ID)
    sandbox.edit(campaign, **fields)
    without, after = desk.run(*PAST), desk.run(*PAST, "--by", "09:30")
    assert (without.code, without.out, said in without.err) == (1, "", True)
    assert (after.code, "it should have left by 09:30" in after.err) == (1, True)
    assert said in after.err
    day, time = later_than_now()
    sandbox.edit(campaign, title=sandbox.campaign(campaign)["title"].replace(DAY, day))
    before = desk.run("check", "--date", day, "--by", time)
    assert (before.code, "and it has time until 23:59" in before.err) == (75, True)


def test_a_canceled_mailing_left_once_its_repair_is_sent(desk: Desk, sandbox: Sandbox) -> None:
    desk.prepare()
    assert desk.send().code == 0
    main = str(desk.record()["campaigns"][0]["id"])
    sandbox.edit(main, delivered=2, status="canceled", keep_deliveries=True)
    told = desk.run(*PAST)
    assert (told.code, "2 emails (send-batch --remaining mails it to the others)" in told.err) == (1, True), (
        told.all
    )
    assert desk.send("--remaining", "--reason", "canceled half-way", "--wait").code == 0
    repair = desk.record()["campaigns"][1]
    told = desk.run(*PAST)
    assert (told.code, told.err) == (0, "")
    assert (
        f'"{TITLE}" ({main}) is canceled, 2 emails; "{repair["title"]}" ({repair["id"]}) is sent, 3 emails.'
        in (told.out)
    )
    # what was stopped half-way as well has left somebody over
    sandbox.edit(repair["id"], delivered=1, status="canceled", keep_deliveries=True)
    assert desk.run(*PAST).code == 1


def test_mail_to_nobody_is_1_at_once(desk: Desk, sandbox: Sandbox) -> None:
    day, time = later_than_now()
    sandbox.edit(sandbox.add_draft(f"Digest {day}", list_id=LIST_ID), status="sent", emails_sent=0)
    told = desk.run("check", "--date", day, "--by", time)
    assert (
        told.code,
        "is sent, 0 emails to 5 recipients counted by Mailchimp (5 fewer): it was mailed to nobody."
        in told.err,
    ) == (1, True)


def test_two_that_were_mailed_are_1(desk: Desk, sandbox: Sandbox) -> None:
    for title in (TITLE, f"{TITLE} [0a1b2c3d]"):
        sandbox.edit(sandbox.add_draft(title, list_id=LIST_ID), status="sent", emails_sent=5)
    told = desk.run(*PAST, "--json")
    document = json.loads(told.out)
    assert (told.code, document["exit"], document["outcome"]) == (1, 1, "alarm")
    assert "more than one campaign was mailed" in document["message"]


def test_a_campaign_made_by_sendonce_counts_and_so_does_one_that_is_still_going_out(
    make_desk: Callable[..., Desk], sandbox: Sandbox
) -> None:
    desk = make_desk("html")
    sandbox.settings(sending_s=1000)
    assert desk.send_until_done()[-1] == 0
    told = desk.run(*PAST)
    assert (told.code, "is sending, 0 emails so far." in told.out) == (0, True)


@pytest.mark.parametrize("by", ["9:30", "24:00", "", "0930", "09:60", "٠٩:٣٠"])
def test_a_time_in_another_form_is_wrong_usage(by: str, desk: Desk, sandbox: Sandbox) -> None:
    told = desk.run("check", "--by", by)
    assert (told.code, "HH:MM" in told.err) == (2, True)
    assert sandbox.calls() == []


def test_a_mailchimp_that_does_not_answer_is_neither_yes_nor_no(desk: Desk, sandbox: Sandbox) -> None:
    sandbox.faults("get=503empty")
    assert desk.run(*PAST, "--by", "09:30").code == 75
    sandbox.faults()
    sandbox.settings(api_key="fedcba9876543210fedcba9876543210-us1")
    assert desk.run(*PAST).code == 78


def test_only_the_listing_is_read_and_nothing_written(desk: Desk, sandbox: Sandbox) -> None:
    desk.prepare()
    desk.run(*PAST)
    assert {call["name"] for call in sandbox.calls()} == {"listing"}
    assert list(desk.state.iterdir()) == []


# --- explain


def explained(desk: Desk, day: str = DAY) -> tuple[str, dict[str, str]]:
    """The screen, and its parts by name; it must fit a terminal of 80 by 24."""
    told = desk.run("explain", "--date", day)
    assert (told.code, told.err) == (0, "")
    lines = told.out.splitlines()
    assert len(lines) <= 23, "the prompt needs a line, too"
    assert max(map(len, lines[:-1])) <= 80
    parts: dict[str, str] = {}
    name = ""
    for line in lines[1:-1]:
        name = line[:11].strip() or name
        parts[name] = f"{parts.get(name, '')} {line[11:].strip()}".strip()
    assert list(parts) == ["Ledger", "Lease", "Mailchimp", "Next run", "To do"]
    return lines[-1].strip(), parts


def run_command(desk: Desk, command: str) -> int:
    """Type the command that was advised."""
    words = command.partition(" -m sendonce ")[2].split()
    assert words[:2] == ["--env-file", str(desk.env_file)]
    return desk.run(*words[2:]).code


def test_a_day_without_a_campaign_is_explained(desk: Desk) -> None:
    command, parts = explained(desk)
    assert parts["Ledger"] == "nothing is on record"
    assert parts["Lease"] == "The lease is free."
    assert parts["Mailchimp"] == "no campaign of this date"
    assert f'There is no campaign named "{TITLE}"' in parts["Next run"]
    assert command.endswith(f"send-batch --date {DAY} --dry-run")
    assert run_command(desk, command) == 1


def test_a_past_day_with_a_draft_is_sent_by_the_command_that_is_advised(desk: Desk, sandbox: Sandbox) -> None:
    desk.prepare()
    command, parts = explained(desk)
    assert parts["Mailchimp"].startswith(f'a draft, for 5 people: "{TITLE}" (')
    assert parts["Next run"].startswith(f'Would send "{TITLE}" (')
    assert "Cron does not send a date that is past." in parts["To do"]
    assert sandbox.sends() == 0
    assert run_command(desk, command) == 0
    command, parts = explained(desk)
    assert parts["Ledger"].startswith("sent ")
    assert "one run: sent, " in parts["Ledger"]
    assert re.match(r"(sending|sent), 20.*, [05] emails: ", parts["Mailchimp"])
    assert command.endswith(f"ledger show {DAY}")
    assert run_command(desk, command) == 0
    assert sandbox.sends() == 1


def test_an_unclear_day_is_explained_as_one_that_may_be_run_again(desk: Desk, sandbox: Sandbox) -> None:
    desk.prepare()
    sandbox.faults("post=503empty get=503empty after=send")
    assert desk.send().code == 75
    sandbox.faults()
    command, parts = explained(desk)
    assert parts["Ledger"].startswith("started, outcome unknown")
    assert "requested " in parts["Ledger"]
    assert command.endswith(f"send-batch --date {DAY}")
    assert desk.send_until_done()[-1] == 0
    assert sandbox.accepted() == 1


@pytest.mark.parametrize(
    ("fields", "advice", "command"),
    [
        ({"status": "paused"}, "Put that right; then see what a run would do:", "--dry-run"),
        (
            {"status": "sent", "emails_sent": 0},
            "A person must look; nothing is sent again by itself.",
            f"ledger show {DAY}",
        ),
        (
            {"status": "sent", "emails_sent": 5},
            "Nothing. The next run, or this, puts it on record:",
            f"send-batch --date {DAY}",
        ),
        ({"status": "schedule", "send_time": "2999-01-05T09:00:00+00:00"}, "Put that right;", "--dry-run"),
    ],
)
def test_what_is_advised_fits_what_mailchimp_shows(
    fields: dict[str, object], advice: str, command: str, desk: Desk, sandbox: Sandbox
) -> None:
    sandbox.edit(sandbox.add_draft(TITLE, list_id=LIST_ID), **fields)
    told, parts = explained(desk)
    assert advice in parts["To do"]
    assert told.endswith(command)
    assert str(fields["status"]) in parts["Mailchimp"]


def test_a_coming_day_is_only_rehearsed(desk: Desk, sandbox: Sandbox) -> None:
    day, _ = later_than_now()
    sandbox.add_draft(f"Digest {day}", list_id=LIST_ID)
    command, parts = explained(desk, day)
    assert "Wait for its date." in parts["To do"]
    assert command.endswith(f"send-batch --date {day} --early --dry-run")
    assert run_command(desk, command) == 0
    assert sandbox.sends() == 0


def test_a_long_story_still_fits_the_screen(desk: Desk, sandbox: Sandbox) -> None:
    desk.write_env(
        SENDONCE_TITLE="Digest ✓ of a company with a very long name, to all its readers, for {date}"
    )
    for number in range(9):
        sandbox.add_draft(
            f"Digest ✓ of a company with a very long name, to all its readers, for {DAY}",
            list_id=LIST_ID,
            subject=f"{number}",
        )
    assert desk.send().code == 1
    _, parts = explained(desk)
    assert parts["Mailchimp"].endswith("...")
    assert "Several drafts are named" in parts["Next run"]


def test_what_time_puts_right_is_not_to_be_run_by_hand(desk: Desk) -> None:
    desk.prepare()
    desk.write_env(SENDONCE_DRAFT_QUIET_SECONDS="600")
    assert desk.send().code == 75
    command, parts = explained(desk)
    assert "Wait for cron: time puts that right." in parts["To do"]
    assert command.endswith(f"send-batch --date {DAY} --dry-run")


def test_an_unclear_send_of_a_paused_job_waits_for_resume(desk: Desk, sandbox: Sandbox) -> None:
    desk.prepare()
    sandbox.faults("post=503empty get=503empty after=send")
    assert desk.send().code == 75
    sandbox.faults()
    assert desk.run("pause", "--reason", "Strike").code == 0
    told = desk.run("explain", "--date", DAY).out
    assert "not asked for again while paused. To end the pause:" in " ".join(told.split())
    assert told.splitlines()[-1].endswith(" resume")


def test_a_canceled_mailing_and_an_open_order_are_repaired_by_the_order(desk: Desk, sandbox: Sandbox) -> None:
    desk.prepare()
    assert desk.send().code == 0
    main = str(desk.record()["campaigns"][0]["id"])
    sandbox.edit(main, delivered=2, status="canceled", keep_deliveries=True)
    order = f"send-batch --date {DAY} --remaining --reason TEXT"
    command, parts = explained(desk)
    assert command.endswith(order)
    assert "It was canceled half-way." in parts["To do"]
    sandbox.faults("post=503empty get=503empty after=send")
    assert desk.send("--remaining", "--reason", "x").code == 75
    sandbox.faults()
    command, parts = explained(desk)
    assert command.endswith(order)
    assert "The order remaining 1 is not carried out." in parts["To do"]
    wait_until(lambda: desk.send("--remaining", "--reason", "x").code == 0, within_s=60, what="it is through")
    command, parts = explained(desk)
    assert command.endswith(f"ledger show {DAY}")


def test_a_damaged_ledger_and_a_silent_mailchimp_end_as_they_always_do(desk: Desk, sandbox: Sandbox) -> None:
    sandbox.faults("get=503empty")
    assert desk.run("explain", "--date", DAY).code == 75
    sandbox.faults()
    desk.ledger_file.touch(mode=0o600)
    damaged = desk.run("explain", "--date", DAY)
    assert (damaged.code, "is damaged" in damaged.err) == (78, True)


def test_an_explanation_as_json_has_all_parts(desk: Desk) -> None:
    desk.prepare()
    document = json.loads(desk.run("explain", "--date", DAY, "--json").out)
    assert (document["version"], document["command"], document["exit"], document["date"]) == (
        1,
        "explain",
        0,
        DAY,
    )
    assert [c["status"] for c in document["campaigns"]] == ["save"]
    assert document["next_run"]["outcome"] == "would send"
    assert document["safe_command"].endswith(f"send-batch --date {DAY}")
    assert (document["record"]["state"], document["lease"], document["resets"]) == (
        "-",
        "The lease is free.",
        [],
    )


def test_a_ledger_on_a_server_is_explained_and_rehearsed_too(desk: Desk) -> None:
    desk.write_env(SENDONCE_STATE=f"sqlite:///{desk.state}/ledger.db")
    assert desk.run("init").code == 0
    desk.prepare()
    _, parts = explained(desk)
    assert parts["Next run"].startswith(f'Would send "{TITLE}" (')
    assert desk.send("--dry-run").code == 0
