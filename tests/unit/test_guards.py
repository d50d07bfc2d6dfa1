"""Guards: what is set beside the protocol, and may forbid a send but never order one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from sendonce.core.campaigns import Campaign, Content, fingerprint
from sendonce.core.errors import NoAnswer, Refused
from sendonce.core.guards import (
    NO_GUARDS,
    Facts,
    Former,
    Guard,
    Guards,
    Mailed,
    Window,
    objection,
    of_account,
)
from sendonce.core.model import Ending, Source, State
from sendonce.core.rehearse import draft_of
from support.world import (
    ACCOUNT,
    KEY,
    LIST,
    START,
    Made,
    World,
    before,
    meanwhile,
    only_campaign,
    spec_of,
    unclear,
    world_of,
)

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
    assert found == (
        f'Subject or content still has "{mark}" in it; SENDONCE_REFUSE_PLACEHOLDERS is set.',
        False,
    )


def test_mailchimps_own_merge_tags_are_finished() -> None:
    assert said(Guards(checks_placeholders=True), texts=("Hi *|FNAME|*", "{ font: x }")) is None


def test_what_was_mailed_last_is_not_mailed_once_more() -> None:
    found = said(Guards(refuses_stale=True), same_as=Former("abc", "Digest 2026-11-29", "2026-11-29"))
    text = 'Subject and content are those of "Digest 2026-11-29" (abc), mailed for 2026-11-29.'
    assert found == (f"{text} SENDONCE_REFUSE_STALE is set.", False)
    assert said(Guards(refuses_stale=True)) is None


@pytest.mark.parametrize(
    ("since", "until"),
    [
        (datetime(2026, 11, 30, 10, 50, 0, tzinfo=UTC), None),
        (datetime(2026, 11, 30, 10, 50, 0, 1, tzinfo=UTC), "12:00:01"),
        (datetime(2026, 11, 30, 10, 50, 1, tzinfo=UTC), "12:00:01"),
        (datetime(2026, 11, 30, 11, 0, 0, tzinfo=UTC), "12:10:00"),
    ],
)
def test_a_draft_that_was_changed_lately_waits(since: datetime, until: str | None) -> None:
    found = said(Guards(draft_quiet_s=600), quiet_since=since)
    text = f"If nobody changes it before, it may be sent from 2026-11-30 {until} CET on"
    assert found == (None if until is None else (f"{text}; SENDONCE_DRAFT_QUIET_SECONDS is 600.", True))
    assert said(Guards(draft_quiet_s=600)) is None
    assert said(NO_GUARDS, quiet_since=since) is None


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
    assert (ended.ending, ended.posts) == (Ending.TEMPORARY, ())
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


# ---- what was mailed last, once more ----

STALE = Guards(refuses_stale=True)
YESTERDAY = "Digest 2026-11-29"
BODY = Content("<p>Hello</p>")
"""What `spec_of` has."""


def mailed_before(
    world: World,
    title: str = YESTERDAY,
    *,
    hours: float = -24,
    subject: str = "News",
    content: Content = BODY,
) -> Made:
    """Have a campaign been mailed so many hours from START."""
    made = world.account.add(title, "sent", content=content, spec=spec_of(subject_line=subject))
    made.mailed_at_s = hours * 3600
    return made


@pytest.mark.parametrize("source", [Source.REPLICATE, Source.HTML])
@pytest.mark.parametrize("body", ["<p>Hello</p>", "\r\n<p>Hello</p>\n"])
def test_yesterdays_mail_is_not_sent_as_todays_until_somebody_passes_it(source: Source, body: str) -> None:
    world = guarded(STALE, source)
    earlier = mailed_before(world, content=Content(body, "made by Mailchimp"))
    text = f'Subject and content are those of "{YESTERDAY}" ({earlier.id}), mailed for 2026-11-29.'
    told = world.rehearse()
    assert (told.code, f"A run would refuse: {text}" in told.message) == (1, True)
    ended = world.run()
    assert (ended.code, ended.posts, text in ended.message) == (1, (), True)
    assert world.record().state is State.REFUSED
    # there is a draft by now
    assert f"A run would refuse: {text}" in world.rehearse().message
    world.guards = STALE._replace(passed=frozenset({Guard.STALE}))
    ended = world.run()
    # the read-back of what was written, and none to compare it with
    assert (ended.code, ended.calls.count("mailer.content")) == (0, 1)
    assert world.deliveries() == 1


@pytest.mark.parametrize(
    "fields",
    [{"subject": "Other news"}, {"content": Content("<p>Hello?</p>")}, {"content": Content("", "x")}],
)
def test_another_subject_or_another_content_is_todays(fields: dict[str, Any]) -> None:
    world = guarded(STALE, Source.HTML)
    mailed_before(world, **fields)
    assert world.rehearse().code == 0
    assert world.run().code == 0


@pytest.mark.parametrize(
    "fields", [{"content": Content("<p>By hand</p>")}, {"spec": spec_of(subject_line="New")}]
)
def test_what_counts_is_the_draft_as_mailchimp_has_it_when_it_is_to_be_sent(fields: dict[str, Any]) -> None:
    world = guarded(STALE, Source.HTML)
    mailed_before(world)

    def touch() -> None:
        (draft,) = (made for made in world.account.campaigns.values() if made.status == "save")
        for name, value in fields.items():
            setattr(draft, name, value)

    assert world.run(on={"mailer.checklist": [meanwhile(touch)]}).code == 0


def test_white_space_around_a_subject_is_no_other_subject() -> None:
    world = guarded(STALE, Source.HTML)
    mailed_before(world, subject="News ")
    assert world.run().code == 1


def test_a_created_campaign_whose_send_is_open_is_not_compared() -> None:
    world = guarded(NO_GUARDS, Source.HTML)
    assert world.run(on={"mailer.send": [unclear(acts=False)]}).code == 75
    mailed_before(world)
    world.guards = STALE
    world.pass_time(1000)
    assert world.rehearse().ending is Ending.WOULD_SEND
    assert world.run().code == 0
    assert world.deliveries() == 1


def test_the_plain_text_that_mailchimp_makes_of_html_does_not_count_and_that_of_a_plain_one_does() -> None:
    world = guarded(STALE, Source.REPLICATE)
    world.spec = replace(world.spec, type="plaintext", content=Content("", "Hello"))
    earlier = mailed_before(world, content=Content("", "Hello!"))
    assert world.rehearse().code == 0
    earlier.content = Content("<p>any</p>", "Hello")
    assert world.rehearse().code == 1


def test_only_the_campaign_of_this_job_that_was_mailed_last_counts() -> None:
    world = guarded(STALE, Source.HTML)
    mailed_before(world, "Digest 2026-11-27", hours=-72)
    mailed_before(world, "Another job 2026-11-29", hours=-1)
    mailed_before(world, "Digest 2026-12-01", hours=-2)
    world.account.add("Digest 2026-11-26", content=BODY, spec=spec_of())
    world.account.schedule(world.account.add("Digest 2026-11-28", content=BODY, spec=spec_of()), 3600.0)
    mailed_before(world, hours=-24, subject="Other news")
    assert world.rehearse().code == 0
    # a day that was made up for later is what people got last
    late = mailed_before(world, "Digest 2026-11-28 [0a1b2c3d]", hours=-23)
    told = world.rehearse()
    assert (told.code, f"({late.id}), mailed for 2026-11-28." in told.message) == (1, True)


def test_of_two_that_were_mailed_in_one_second_the_one_for_the_later_date_counts() -> None:
    for days in (("2026-11-28", "2026-11-29"), ("2026-11-29", "2026-11-28")):
        world = guarded(STALE, Source.HTML)
        for day in days:
            mailed_before(world, f"Digest {day}", subject="News" if day == "2026-11-29" else "Other news")
        assert world.rehearse().code == 1


def test_an_earlier_campaign_that_is_gone_is_no_objection_nor_is_one_without_a_time() -> None:
    world = guarded(STALE, Source.HTML)
    earlier = mailed_before(world)
    assert world.run(on={"mailer.checklist": [meanwhile(lambda: world.account.delete(earlier))]}).code == 0
    timeless = guarded(STALE, Source.HTML)
    mailed_before(timeless).mailed_at_s = None
    assert timeless.rehearse().code == 0


def test_a_persons_draft_is_not_compared_and_without_the_guard_nothing_is_read() -> None:
    draft = guarded(STALE)
    mailed_before(draft, subject="By hand", content=only_draft(draft).content)
    assert draft.run().code == 0
    unset = guarded(Guards(checks_placeholders=True), Source.HTML)
    mailed_before(unset)
    ended = unset.run()
    # the read-back of what was written
    assert (ended.code, ended.calls.count("mailer.content")) == (0, 1)


def only_draft(world: World) -> Made:
    (only,) = (made for made in world.account.campaigns.values() if made.title == KEY)
    return only


def test_an_earlier_campaign_that_cannot_be_read_is_no_send() -> None:
    world = guarded(STALE, Source.HTML)
    mailed_before(world)
    ended = world.run(on={"mailer.content": [None, before(NoAnswer("503."))]})
    assert (ended.code, ended.posts) == (75, ())


# ---- a draft that somebody may still be writing ----

QUIET = Guards(draft_quiet_s=900)


def change(world: World, **settings: object) -> None:
    """Have a person go on writing."""
    made = only_campaign(world)
    made.spec = replace(made.spec, settings={**made.spec.settings, **settings})


def test_a_draft_is_sent_once_it_was_the_same_for_so_long() -> None:
    world = guarded(QUIET)
    told = world.rehearse()
    assert (told.code, told.ending) == (75, Ending.WAITING)
    text = "If nobody changes it before, it may be sent from 2026-11-30 08:15:0"
    assert f"Nothing would be sent now: {text}" in told.message
    ended = world.run()
    assert (ended.code, ended.ending, ended.posts) == (75, Ending.WAITING, ())
    assert f"Campaign ffffff is not sent: {text}" in ended.message
    (entry,) = world.record().campaigns
    assert (world.record().state, len(entry.draft_hash)) == (State.READY, 64)
    assert entry.quiet_since is not None
    world.pass_time(890)
    assert world.rehearse().code == 75
    assert world.run().code == 75
    assert world.record().campaigns == (entry,)
    world.pass_time(12)
    assert world.rehearse().ending is Ending.WOULD_SEND
    assert world.run().code == 0
    assert world.deliveries() == 1
    assert world.record().campaigns[0].quiet_since == entry.quiet_since


def test_every_change_starts_the_wait_anew() -> None:
    world = guarded(QUIET)
    assert world.run().code == 75
    world.pass_time(1000)
    change(world, subject_line="Written anew")
    assert "from 2026-11-30 08:31:4" in world.rehearse().message
    ended = world.run()
    assert (ended.code, "from 2026-11-30 08:31:4" in ended.message) == (75, True)
    world.pass_time(890)
    only_campaign(world).content = Content("<p>And the body</p>")
    assert world.run().code == 75
    world.pass_time(890)
    assert world.run().code == 75
    world.pass_time(20)
    assert world.run().code == 0
    assert world.deliveries() == 1


def test_another_draft_under_the_title_has_a_wait_of_its_own() -> None:
    world = guarded(QUIET)
    assert world.run().code == 75
    first = only_campaign(world)
    world.account.delete(first)
    world.account.add(content=first.content)
    world.pass_time(1000)
    assert world.run().code == 75
    world.pass_time(1000)
    assert world.run().code == 0


def test_who_passes_the_guard_does_not_wait() -> None:
    world = guarded(QUIET._replace(passed=frozenset({Guard.QUIET})))
    assert world.rehearse().ending is Ending.WOULD_SEND
    assert world.run().code == 0
    assert world.record().campaigns[0].draft_hash == ""


def test_a_send_whose_outcome_is_open_is_not_held_up() -> None:
    world = guarded(NO_GUARDS)
    assert world.run(on={"mailer.send": [unclear(acts=False)]}).code == 75
    world.guards = QUIET
    world.pass_time(1000)
    assert world.rehearse().ending is Ending.WOULD_SEND
    ended = world.run()
    assert (ended.code, ended.posts) == (0, ("ffffff",))
    assert world.deliveries() == 1


def test_only_a_persons_draft_is_watched() -> None:
    world = guarded(QUIET, Source.HTML)
    assert world.rehearse().code == 0
    assert world.run().code == 0
    assert world.record().campaigns[0].draft_hash == ""


def test_a_wait_is_never_mailed_by_cron_and_does_not_make_a_first_75_a_second_one() -> None:
    world = guarded(QUIET)
    hushed = []
    for on in (
        {},
        {},
        {"mailer.listing": [before(NoAnswer("503."))]},
        {"mailer.listing": [before(NoAnswer("503."))]},
    ):
        outcome = world.run(on=on).outcome
        assert outcome is not None
        hushed.append((outcome.ending, outcome.is_hushed))
        world.pass_time(60)
    assert hushed == [
        (Ending.WAITING, True), (Ending.WAITING, True), (Ending.TEMPORARY, True), (Ending.TEMPORARY, False),
    ]  # fmt: skip


def test_a_wait_leaves_the_alarm_of_an_earlier_day_to_the_run_that_says_it() -> None:
    world = guarded(NO_GUARDS)
    earlier = world.account.add(YESTERDAY)
    world.account.audience, world.account.mailing_s = 0, 60.0
    assert world.run(day="2026-11-29").code == 0
    world.pass_time(100)
    assert earlier.status == "sent"
    world.guards = QUIET
    ended = world.run()
    assert (ended.ending, "mailed to nobody" in ended.message) == (Ending.WAITING, False)
    world.pass_time(1000)
    ended = world.run()
    assert (ended.ending, f"Campaign {earlier.id} of 2026-11-29 was mailed to nobody" in ended.message) == (
        Ending.ALARM,
        True,
    )


def test_what_a_person_must_look_at_is_said_while_it_waits() -> None:
    world = guarded(QUIET._replace(max_recipients=100))
    assert (world.run().ending, world.record().campaigns[0].draft_hash != "") == (Ending.REFUSED, True)


def test_a_draft_that_goes_while_a_dry_run_looks_is_not_waited_for() -> None:
    world = guarded(QUIET)
    made = only_campaign(world)
    told = world.rehearse(on={"mailer.campaign": [meanwhile(lambda: world.account.delete(made))]})
    assert told.ending is Ending.WOULD_SEND  # as the listing had it; a run looks again


# ---- the hash ----

DRAFT = Campaign(
    "aaaaaa", KEY, "save", "regular", LIST, None,
    settings={"subject_line": "News", "title": KEY},
    recipients={"list_id": LIST, "recipient_count": 5, "segment_text": "Match all. For a total of <b>1,204</b> emails."},
    tracking={"opens": True},
)  # fmt: skip


@pytest.mark.parametrize(
    "changed",
    [
        {"recipients": {**DRAFT.recipients, "recipient_count": 6}},
        {"recipients": {**DRAFT.recipients, "segment_text": "Match all. For a total of <b>9</b> emails."}},
        {"recipients": {**DRAFT.recipients, "list_name": "Renamed", "list_is_active": True}},
        {"recipients": dict(reversed(list(DRAFT.recipients.items())))},
        {"recipient_count": 6},
        {"web_id": 4711},
        {"emails_sent": 0},
    ],
)
def test_what_mailchimp_counts_is_no_change_of_a_draft(changed: dict[str, Any]) -> None:
    assert fingerprint(replace(DRAFT, **changed), BODY) == fingerprint(DRAFT, BODY)


@pytest.mark.parametrize(
    "changed",
    [
        {"settings": {**DRAFT.settings, "preview_text": "x"}},
        {"settings": {**DRAFT.settings, "subject_line": "news"}},
        {"recipients": {**DRAFT.recipients, "list_id": "list2"}},
        {"recipients": {**DRAFT.recipients, "segment_opts": {"saved_segment_id": 7}}},
        {
            "recipients": {
                **DRAFT.recipients,
                "segment_text": "Match any. For a total of <b>1,204</b> emails.",
            }
        },
        {"tracking": {"opens": False}},
        {"type": "plaintext"},
    ],
)
def test_what_a_person_sets_is_a_change(changed: dict[str, Any]) -> None:
    assert fingerprint(replace(DRAFT, **changed), BODY) != fingerprint(DRAFT, BODY)


def test_content_is_part_of_the_hash_each_part_in_its_place() -> None:
    hashes = {
        fingerprint(DRAFT, Content(*parts)) for parts in (("a", "b"), ("ab", ""), ("", "ab"), ("a ", "b"))
    }
    assert len(hashes) == 4
    assert len(fingerprint(replace(DRAFT, recipients={}, settings={"subject_line": "\ud83d"}), BODY)) == 64
