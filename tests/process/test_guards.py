"""Guards through the real command: settings, refusals, passing one."""

from __future__ import annotations

import json
import os
from datetime import datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from support.runs import DAY, Desk
from support.sandbox import LIST_ID

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_guard_refuses_until_somebody_passes_it_and_that_is_on_record(
    make_desk: Callable[..., Desk],
) -> None:
    desk = make_desk(SENDONCE_MIN_RECIPIENTS="6")
    desk.prepare()
    refused = desk.send()
    assert (refused.code, desk.deliveries()) == (1, 0)
    assert "There are 5 recipients; SENDONCE_MIN_RECIPIENTS is 6." in refused.err
    assert desk.send("--override", "recipients").code == 2
    assert desk.send("--override", "gap", "--reason", "x").code == 1
    passed = desk.send("--override", "recipients", "--reason", "the summer list")
    assert (passed.code, desk.deliveries()) == (0, 1)
    shown = " ".join(desk.run("ledger", "show", DAY).out.split())
    assert "Guard recipients passed by " in shown
    assert ": the summer list." in shown


def test_a_closed_window_is_passed_by_name(make_desk: Callable[..., Desk]) -> None:
    # hours away from now, whenever this runs
    is_near_three = 2 <= datetime.now(ZoneInfo("Europe/Berlin")).hour <= 3
    desk = make_desk(SENDONCE_WINDOW="12:00-12:01" if is_near_three else "03:00-03:01")
    desk.prepare()
    assert desk.send().code in {1, 75}
    assert desk.deliveries() == 0
    assert desk.send("--outside-window").code == 0
    assert desk.deliveries() == 1


def test_an_old_file_and_placeholders_are_refused(make_desk: Callable[..., Desk]) -> None:
    desk = make_desk("html", SENDONCE_HTML_MAX_AGE_HOURS="20", SENDONCE_REFUSE_PLACEHOLDERS="yes")
    file = desk.folder / "day.html"
    os.utime(file, (1_600_000_000, 1_600_000_000))
    told = desk.send("--dry-run")
    assert (told.code, "The HTML file is " in told.err) == (1, True)
    assert desk.send().code == 1
    file.write_text("<p>{{intro}} *|UNSUB|*</p>")
    told = desk.send()
    assert (told.code, 'still has "{{" in it' in told.err) == (1, True)
    file.write_text("<p>Good morning *|UNSUB|*</p>")
    assert desk.send().code == 0
    assert desk.deliveries() == 1


def test_a_campaign_that_somebody_else_sent_keeps_its_distance(make_desk: Callable[..., Desk]) -> None:
    desk = make_desk(SENDONCE_MIN_GAP_HOURS="12")
    desk.prepare("2026-01-04")
    assert desk.run("send-batch", "--date", "2026-01-04").code == 0
    desk.prepare()
    told = json.loads(desk.run("--json", "send-batch", "--date", DAY).out)
    assert (told["exit"], desk.sandbox.sends()) == (75, 1)
    assert "SENDONCE_MIN_GAP_HOURS is 12" in told["message"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SENDONCE_WINDOW", "7:00-11:30"),
        ("SENDONCE_WINDOW", "07:00-24:00"),
        ("SENDONCE_WINDOW", "22:00-06:00"),
        ("SENDONCE_WINDOW", "07:00-07:00"),
        ("SENDONCE_MIN_RECIPIENTS", "-1"),
        ("SENDONCE_MIN_RECIPIENTS", "1e3"),
        ("SENDONCE_MIN_GAP_HOURS", "twelve"),
        ("SENDONCE_HTML_MAX_AGE_HOURS", "nan"),
        ("SENDONCE_REFUSE_PLACEHOLDERS", "true"),
        ("SENDONCE_REFUSE_STALE", "1"),
        ("SENDONCE_DRAFT_QUIET_SECONDS", "0"),
        ("SENDONCE_DRAFT_QUIET_SECONDS", "15 min"),
    ],
)
def test_a_guard_that_cannot_be_read_is_78_and_nothing_is_sent(
    name: str, value: str, make_desk: Callable[..., Desk]
) -> None:
    desk = make_desk(**{name: value})
    desk.prepare()
    told = desk.send()
    assert (told.code, desk.deliveries()) == (78, 0)
    assert f"{name} (" in told.err


def test_limits_that_nothing_can_meet_are_78(make_desk: Callable[..., Desk]) -> None:
    desk = make_desk(SENDONCE_MIN_RECIPIENTS="10", SENDONCE_MAX_RECIPIENTS="9")
    assert desk.send().code == 78


# ---- what was mailed last, once more ----

BEFORE = "2026-01-04"


@pytest.fixture
def stale_desk(make_desk: Callable[..., Desk]) -> Desk:
    """A desk whose file was mailed for the day before."""
    desk = make_desk("html", SENDONCE_REFUSE_STALE="yes", SENDONCE_SUBJECT="News")
    assert desk.send_until_done(day=BEFORE)[-1] == 0
    return desk


def test_yesterdays_file_is_refused_until_somebody_passes_it_and_that_is_on_record(stale_desk: Desk) -> None:
    desk = stale_desk
    (mailed,) = [c["id"] for c in desk.sandbox.state()["campaigns"]]
    text = f"({mailed}), mailed for {BEFORE}. SENDONCE_REFUSE_STALE is set."
    told = desk.send("--dry-run")
    assert (told.code, text in told.err) == (1, True)
    told = desk.send()
    assert (told.code, desk.deliveries(), text in told.err) == (1, 0, True)
    assert f'Subject and content are those of "Digest {BEFORE} [' in told.err
    # the same refusal was said before: cron need not mail it again
    assert desk.run("-q", "send-batch", "--date", DAY).all == ""
    assert desk.send("--override", "stale", "--reason", "nothing new").code == 0
    assert desk.deliveries() == 1
    shown = " ".join(desk.run("ledger", "show", DAY).out.split())
    assert "Guard stale passed by " in shown
    assert ": nothing new." in shown


@pytest.mark.parametrize("what", ["subject", "file", "gone"])
def test_another_subject_or_file_passes_and_so_does_the_same_once_the_earlier_one_is_gone(
    what: str, stale_desk: Desk
) -> None:
    desk = stale_desk
    if what == "subject":
        desk.write_env(SENDONCE_SUBJECT="More news")
    elif what == "file":
        (desk.folder / "day.html").write_text("<p>Hello again *|UNSUB|*</p>")
    else:
        desk.sandbox.delete(desk.sandbox.state()["campaigns"][0]["id"])
    assert desk.send("--dry-run").code == 0
    assert desk.send().code == 0
    assert desk.deliveries() == 1


def test_a_copy_of_what_was_copied_before_is_refused(make_desk: Callable[..., Desk]) -> None:
    desk = make_desk("replicate", SENDONCE_REFUSE_STALE="yes", SENDONCE_SUBJECT="News")
    assert desk.send_until_done(day=BEFORE)[-1] == 0
    assert (desk.send().code, desk.deliveries()) == (1, 0)
    desk.sandbox.edit(desk.values["SENDONCE_REPLICATE_FROM"], html="<p>Today</p>")
    assert (desk.send().code, desk.deliveries()) == (0, 1)


# ---- a draft that somebody may still be writing ----


def later(desk: Desk, seconds: float) -> None:
    """Have Mailchimp's clock go forward."""
    offset_s = desk.sandbox.settings()["clock_offset_s"]
    desk.sandbox.settings(clock_offset_s=offset_s + seconds)


def draft_of(desk: Desk) -> str:
    return str(desk.sandbox.state()["campaigns"][0]["id"])


@pytest.fixture
def quiet_desk(make_desk: Callable[..., Desk]) -> Desk:
    """A desk with a draft that must come to rest."""
    desk = make_desk(SENDONCE_DRAFT_QUIET_SECONDS="900")
    desk.prepare()
    return desk


def test_a_draft_that_is_edited_between_two_runs_waits_anew_and_is_sent_once_it_rests(
    quiet_desk: Desk,
) -> None:
    desk = quiet_desk
    told = desk.send("--dry-run")
    assert (told.code, "it may be sent from " in told.err, desk.record()) == (75, True, {})
    first = json.loads(desk.run("--json", "send-batch", "--date", DAY).out)
    assert (first["exit"], first["outcome"], desk.deliveries()) == (75, "waiting", 0)
    assert "SENDONCE_DRAFT_QUIET_SECONDS is 900" in first["message"]
    (entry,) = desk.record()["campaigns"]
    later(desk, 890)
    said, what_to_do = desk.send().err.splitlines()
    assert (said, what_to_do) == (first["message"], "What to do: sendonce runbook guard")
    assert desk.record()["campaigns"] == [entry]
    desk.sandbox.edit(draft_of(desk), html="<p>One more word</p>")
    later(desk, 20)
    assert (desk.send("--dry-run").code, desk.send().code) == (75, 75)
    (anew,) = desk.record()["campaigns"]
    assert anew["draft_hash"] != entry["draft_hash"]
    assert anew["quiet_since"] > entry["quiet_since"]
    later(desk, 910)
    assert desk.send("--dry-run").code == 0
    assert (desk.send().code, desk.deliveries()) == (0, 1)


@pytest.mark.parametrize(
    "change",
    [{"subject": "Another"}, {"html": "<p>Another</p>"}, {"settings": {"preview_text": "x"}}],
)
def test_each_part_of_a_draft_is_watched(change: dict[str, Any], quiet_desk: Desk) -> None:
    assert quiet_desk.send().code == 75
    quiet_desk.sandbox.edit(draft_of(quiet_desk), **change)
    later(quiet_desk, 910)
    assert (quiet_desk.send().code, quiet_desk.deliveries()) == (75, 0)


def test_new_subscribers_are_no_change_of_the_draft(quiet_desk: Desk) -> None:
    assert quiet_desk.send().code == 75
    quiet_desk.sandbox.add_audience(7, "Renamed", id=LIST_ID)
    later(quiet_desk, 910)
    assert (quiet_desk.send().code, quiet_desk.deliveries()) == (0, 1)


def test_a_wait_is_not_mailed_by_cron_however_long_it_lasts(quiet_desk: Desk) -> None:
    for seconds in (0, 300, 300):
        later(quiet_desk, seconds)
        told = quiet_desk.run("-q", "send-batch", "--date", DAY)
        assert (told.code, told.all) == (75, "")
    shown = " ".join(quiet_desk.run("ledger", "show", DAY).out.split())
    assert "waiting" in shown
    assert "the last of 3 runs that ended so" in shown


def test_the_wait_can_be_passed_and_that_is_on_record(quiet_desk: Desk) -> None:
    assert quiet_desk.send("--override", "quiet", "--reason", "the boss says so").code == 0
    assert quiet_desk.deliveries() == 1
    assert "Guard quiet passed by " in " ".join(quiet_desk.run("ledger", "show", DAY).out.split())


def test_a_send_that_was_unclear_is_not_held_up_by_the_wait(quiet_desk: Desk) -> None:
    desk = quiet_desk
    assert desk.send().code == 75
    later(desk, 910)
    desk.sandbox.faults("post=503empty")
    assert desk.send().code == 75
    assert (desk.record()["state"], desk.deliveries()) == ("sending", 0)
    desk.sandbox.faults()
    # what was asked to be sent is sent, whatever it looks like now
    desk.sandbox.edit(draft_of(desk), subject="Another")
    later(desk, 10)
    assert (desk.send().code, desk.deliveries()) == (0, 1)


def test_a_guard_that_guards_nothing_with_this_source_is_a_warning(make_desk: Callable[..., Desk]) -> None:
    desk = make_desk("html", SENDONCE_DRAFT_QUIET_SECONDS="900")
    told = desk.send()
    assert (told.code, desk.deliveries()) == (0, 1)
    assert "Warning: SENDONCE_DRAFT_QUIET_SECONDS guards nothing with SENDONCE_SOURCE=html" in told.err


# ---- a test mail ----


def test_a_test_mail_is_asked_for_and_nothing_is_sent_or_recorded(desk: Desk) -> None:
    desk.prepare()
    told = desk.send("--test-to", "ann@example.com")
    assert (told.code, desk.deliveries(), desk.record()) == (0, 0, {})
    assert 'A test mail of "Digest 2026-01-05" (' in told.out
    (asked,) = [call for call in desk.sandbox.calls() if call["path"].endswith("/actions/test")]
    assert asked["status"] == 204
    assert desk.leftovers() == []
    assert desk.send().code == 0
    refused = desk.send("--test-to", "ann@example.com")
    assert (refused.code, "needs no mailing now" in refused.err) == (1, True)


def test_a_test_mail_of_what_is_not_there_yet_is_refused(make_desk: Callable[..., Desk]) -> None:
    assert "There is no campaign named" in make_desk().send("--test-to", "ann@example.com").err
    created = make_desk("html").send("--test-to", "ann@example.com")
    assert (created.code, "There is no draft of 2026-01-05 yet" in created.err) == (1, True)


@pytest.mark.parametrize(
    "words", [("ann",), ("",), ("ann@example.com", "--dry-run"), ("ann@example.com", "--wait")]
)
def test_a_test_mail_needs_an_address_and_nothing_else(words: tuple[str, ...], desk: Desk) -> None:
    desk.prepare()
    assert desk.send("--test-to", *words).code == 2


@pytest.mark.parametrize(("word", "code"), [("500", 75), ("400", 1), ("401", 78), ("reset-after", 75)])
def test_a_test_mail_that_fails_says_so(word: str, code: int, desk: Desk) -> None:
    desk.prepare()
    desk.sandbox.faults({"on": "test", "word": word})
    told = desk.send("--test-to", "ann@example.com")
    assert (told.code, desk.record()) == (code, {})
    assert "test mail" in told.err or "key" in told.err
