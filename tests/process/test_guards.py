"""Guards through the real command: settings, refusals, passing one."""

from __future__ import annotations

import json
import os
from datetime import datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest

from support.runs import DAY, Desk

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
    assert (refused.code, "needs no mailing any more" in refused.err) == (1, True)


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
