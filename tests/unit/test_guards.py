"""Guards: what is set beside the protocol, and may forbid a send but never order one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from sendonce.core.errors import NoAnswer, Refused
from sendonce.core.guards import NO_GUARDS, Facts, Guard, Guards, Mailed, Window, objection, of_account
from sendonce.core.model import Ending, Source, State
from sendonce.core.rehearse import draft_of
from support.world import ACCOUNT, LIST, START, World, before, meanwhile, spec_of, unclear, world_of

BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2026, 11, 30, 11, 0, tzinfo=UTC)
"""In Berlin it is 12:00."""
MORNING = Window(time(7), time(11, 30))


def said(guards: Guards, **facts: Any) -> tuple[str, bool] | None:
    found = objection(guards, Facts(**{"now": NOON, **facts}), BERLIN)
    return None if found is None else (found.said, found.heals)


# ---- one guard at a time ----


def test_without_guards_nothing_is_objected_to() -> None:
    assert said(NO_GUARDS, recipients=0, texts=("TODO",)) is None


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (datetime(2026, 11, 30, 5, 59, 59, tzinfo=UTC), "not open yet"),
        (datetime(2026, 11, 30, 6, 0, tzinfo=UTC), None),
        (datetime(2026, 11, 30, 10, 29, 59, tzinfo=UTC), None),
        (datetime(2026, 11, 30, 10, 30, tzinfo=UTC), "closed"),
    ],
)
def test_a_window_is_in_the_jobs_zone_from_its_first_minute_to_before_its_last(
    now: datetime, expected: str | None
) -> None:
    found = said(Guards(window=MORNING), now=now)
    if expected is None:
        assert found is None
        return
    assert found is not None
    text = f"SENDONCE_WINDOW is 07:00-11:30, and {expected}; --outside-window sends all the same."
    assert found == (text, expected == "not open yet")


@pytest.mark.parametrize(
    ("recipients", "expected"),
    [
        (99, "There are 99 recipients; SENDONCE_MIN_RECIPIENTS is 100."),
        (100, None),
        (200, None),
        (201, "There are 201 recipients; SENDONCE_MAX_RECIPIENTS is 200."),
        (None, "Mailchimp does not say how many recipients there are."),
    ],
)
def test_recipients_are_counted_and_an_unknown_number_is_no_number(
    recipients: int | None, expected: str | None
) -> None:
    found = said(Guards(min_recipients=100, max_recipients=200), recipients=recipients)
    assert found == (None if expected is None else (expected, False))


@pytest.mark.parametrize("limits", [{"min_recipients": 100}, {"max_recipients": 200}])
def test_one_limit_alone_leaves_the_other_side_open(limits: dict[str, Any]) -> None:
    assert said(Guards(**limits), recipients=150) is None
    outside = 0 if "max_recipients" in limits else 10**6
    assert said(Guards(**limits), recipients=outside) is None


@pytest.mark.parametrize(("hours", "is_too_soon"), [(5.9, True), (6, False), (200, False)])
def test_an_audience_that_got_a_campaign_lately_waits(hours: float, is_too_soon: bool) -> None:
    last = Mailed("abc", "Flash sale", NOON - timedelta(hours=hours))
    found = said(Guards(min_gap_h=6), last_mailed=last)
    text = 'This audience got "Flash sale" (abc) at 2026-11-30 06:06; SENDONCE_MIN_GAP_HOURS is 6.'
    assert found == ((text, True) if is_too_soon else None)
    assert said(Guards(min_gap_h=6)) is None


@pytest.mark.parametrize(("hours", "is_too_old"), [(20, False), (20.1, True), (-5, False)])
def test_an_old_file_is_refused(hours: float, is_too_old: bool) -> None:
    found = said(Guards(html_max_age_h=20), made_at=NOON - timedelta(hours=hours))
    text = "The HTML file is of 2026-11-29 15:54; SENDONCE_HTML_MAX_AGE_HOURS is 20."
    assert found == ((text, False) if is_too_old else None)
    assert said(Guards(html_max_age_h=20)) is None


def test_a_key_of_another_account_is_refused() -> None:
    guards = Guards(account_id="mine")
    assert of_account(guards, "mine") is None
    assert of_account(NO_GUARDS, "mine") is None
    assert of_account(guards._replace(passed=frozenset({Guard.ACCOUNT})), "") is None
    found = of_account(guards, "")
    assert found is not None
    assert (found.said, found.heals) == (
        'The key is of account "", not of "mine" (MAILCHIMP_ACCOUNT_ID).',
        False,
    )


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("TODO: intro", "TODO"),
        ("Hi {{name}}", "{{"),
        ("News of {date}", "{date"),
        ("<p>Lorem ipsum", "Lorem ipsum"),
    ],
)
def test_what_is_not_finished_is_refused(text: str, mark: str) -> None:
    found = said(Guards(checks_placeholders=True), texts=("Subject", text))
    assert found == (f'Subject or content still has "{mark}" in it.', False)


def test_mailchimps_own_merge_tags_are_finished() -> None:
    assert said(Guards(checks_placeholders=True), texts=("Hi *|FNAME|*", "{ font: x }")) is None


# ---- several, and passing one ----


def test_what_a_person_must_look_at_is_said_before_what_time_heals() -> None:
    guards = Guards(window=Window(time(13), time(14)), min_recipients=100)
    assert said(guards, recipients=1) == ("There are 1 recipients; SENDONCE_MIN_RECIPIENTS is 100.", False)


def test_a_guard_that_is_passed_is_silent_and_the_others_are_not() -> None:
    guards = Guards(window=MORNING, min_recipients=100, passed=frozenset({Guard.WINDOW}))
    assert said(guards, recipients=100) is None
    assert said(guards, recipients=1) is not None


# ---- in a run, and in a dry run ----


def guarded(guards: Guards, source: Source = Source.DRAFT) -> World:
    world = world_of(source)
    world.guards = guards
    return world


@pytest.mark.parametrize("source", [Source.DRAFT, Source.HTML])
def test_a_guard_that_objects_is_a_refusal_on_record_and_the_dry_run_says_the_same(source: Source) -> None:
    world = guarded(Guards(max_recipients=100), source)
    told = world.rehearse()
    assert (told.code, told.ending) == (1, Ending.REFUSED)
    assert "A run would refuse: There are 4812 recipients; SENDONCE_MAX_RECIPIENTS is 100." in told.message
    ended = world.run()
    assert (ended.code, ended.ending, ended.posts) == (1, Ending.REFUSED, ())
    assert (
        "is not sent: There are 4812 recipients; SENDONCE_MAX_RECIPIENTS is 100. Nothing was sent by this run."
        in ended.message
    )
    assert world.record().state is State.REFUSED
    world.guards = NO_GUARDS
    assert world.runs_until_done()[-1] == 0
    assert world.deliveries() == 1


@pytest.mark.parametrize("source", [Source.DRAFT, Source.HTML])
def test_a_guard_that_time_heals_is_temporary_and_a_later_run_sends(source: Source) -> None:
    world = guarded(Guards(window=Window(time(9), time(10))), source)
    told = world.rehearse()
    assert (told.code, told.ending) == (75, Ending.TEMPORARY)
    assert "Nothing would be sent now: SENDONCE_WINDOW is 09:00-10:00, and not open yet" in told.message
    ended = world.run()
    assert (ended.code, ended.posts) == (75, ())
    assert world.record().state is State.READY
    world.pass_time(3600)
    assert world.run().code == 0
    assert world.deliveries() == 1


def test_any_campaign_of_the_audience_counts_for_the_gap_and_none_of_another_audience() -> None:
    world = guarded(Guards(min_gap_h=12))
    for title, hours, list_id in (
        ("Old", -20, LIST),
        ("Flash sale", -2, LIST),
        ("Older", -11, LIST),
        ("Elsewhere", -1, "list2"),
    ):
        world.account.add(title, "sent", list_id=list_id).mailed_at_s = hours * 3600
    world.account.add("Never mailed")
    ended = world.run()
    assert (ended.code, ended.posts) == (75, ())
    assert '"Flash sale"' in ended.message
    assert "at 2026-11-30 06:00" in ended.message
    world.pass_time(10 * 3600)
    assert world.run().code == 0


def test_the_account_is_asked_only_if_it_matters() -> None:
    world = guarded(Guards(account_id=ACCOUNT, min_recipients=1))
    ended = world.run()
    assert (ended.code, "mailer.account" in ended.calls) == (0, True)
    other = guarded(Guards(account_id="another", min_recipients=1))
    told = other.rehearse()
    assert (told.code, "The key is of account" in told.message) == (1, True)
    with pytest.raises(Refused, match="The key is of account"):
        draft_of(other.rules(), other.begin().ports)
    assert (other.run().code, other.deliveries()) == (1, 0)


def test_what_another_account_has_sent_under_the_title_is_not_the_days() -> None:
    world = guarded(Guards(account_id="another"))
    world.account.mail(world.account.campaigns["ffffff"])
    ended = world.run()
    assert (ended.code, world.record().state) == (1, State.REFUSED)
    assert "mailer.listing" not in ended.calls


def test_recipients_are_counted_once_mailchimp_has_counted_them() -> None:
    world = guarded(Guards(max_recipients=100))
    world.account.audience, world.account.ready_from_s = 0, 20.0
    world.account.later.append((20.0, lambda: setattr(world.account, "audience", 4812)))
    ended = world.run()
    assert (ended.code, ended.posts) == (1, ())
    assert "There are 4812 recipients" in ended.message


@pytest.mark.parametrize("act", ["delete", "mail"])
def test_a_draft_that_is_gone_or_mailed_while_it_is_counted_is_looked_at_anew(act: str) -> None:
    world = guarded(Guards(max_recipients=10_000))
    made = world.account.campaigns["ffffff"]
    ended = world.run(on={"mailer.checklist": [meanwhile(lambda: getattr(world.account, act)(made))]})
    assert ended.posts == ()
    assert (ended.code, world.deliveries()) == ((1, 0) if act == "delete" else (0, 1))


def test_a_condition_is_not_counted_before_there_is_a_campaign() -> None:
    world = guarded(Guards(max_recipients=100), Source.HTML)
    world.spec = replace(
        spec_of(), recipients={"list_id": LIST, "segment_opts": {"match": "all", "conditions": []}}
    )
    assert world.rehearse().ending is Ending.WOULD_SEND


def test_a_draft_that_is_not_ready_is_not_judged_by_guards_yet() -> None:
    world = guarded(Guards(max_recipients=100))
    world.account.not_ready = ("No subject",)
    assert "does not call" in world.rehearse().message
    assert "does not call" in world.run().message
    assert "mailer.account" not in guarded(Guards(min_recipients=1)).run().calls


def test_an_old_file_and_an_unfinished_one_are_refused_before_a_send() -> None:
    old = guarded(Guards(html_max_age_h=20), Source.HTML)
    old.spec = replace(spec_of(), made_at=START - timedelta(hours=30))
    assert "The HTML file is of 2026-11-29 02:00" in old.run().message
    assert old.deliveries() == 0
    unfinished = guarded(Guards(checks_placeholders=True), Source.HTML)
    unfinished.spec = spec_of(subject_line="News of {date}")
    ended = unfinished.run()
    assert (ended.code, ended.posts) == (1, ())
    assert 'still has "{date" in it' in ended.message
    assert "A run would refuse" in unfinished.rehearse().message


def test_a_guard_does_not_take_back_a_send_that_may_have_left() -> None:
    world = guarded(NO_GUARDS)
    assert world.run(on={"mailer.send": [unclear(acts=False)]}).code == 75
    world.guards = Guards(max_recipients=100)
    world.pass_time(1000)
    ended = world.run()
    assert (ended.code, ended.posts) == (1, ())
    assert "An earlier run asked for its send" in ended.message
    assert world.record().state is State.SENDING
    world.guards = NO_GUARDS
    assert world.run().code == 0
    assert world.deliveries() == 1


def test_an_account_that_cannot_be_asked_for_is_no_objection_and_no_send() -> None:
    world = guarded(Guards(account_id=ACCOUNT))
    ended = world.run(on={"mailer.account": [before(NoAnswer("503."))]})
    assert (ended.code, ended.posts) == (75, ())
