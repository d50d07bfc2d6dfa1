"""The rest of a mailing that stopped half-way, and a second mailing: ordered by hand, each address at most once."""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from support import tally
from support.runs import DAY, Desk, wait_until
from support.sandbox import LIST_ID, Sandbox

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ORDER = ("--remaining", "--reason", "canceled half-way")
PEOPLE = 5


@pytest.fixture(params=["draft", "replicate", "html"])
def desk(request: pytest.FixtureRequest, make_desk: Callable[..., Desk]) -> Desk:
    """A job of each source."""
    return make_desk(request.param)


def half_canceled(desk: Desk, delivered: int = 2) -> str:
    """Have the day's campaign sent and canceled after so many mails; its id."""
    desk.prepare()
    assert desk.send().code == 0
    main = str(desk.record()["campaigns"][0]["id"])
    desk.sandbox.edit(main, delivered=delivered, status="canceled", keep_deliveries=True)
    return main


def repair_as_twin(desk: Desk) -> None:
    """Have the record show the repair as a twin of the day's own campaign."""
    ledger = json.loads(desk.ledger_file.read_text())
    twin = ledger["batches"][DAY]["campaigns"][1]
    twin["role"] = "twin"
    for name in ("state", "nonce", "order"):
        del twin[name]
    desk.ledger_file.write_text(json.dumps(ledger))


def mailed(desk: Desk) -> tuple[int, int, int]:
    """How many mails went out, to how many people, and how many at most to one, by the sandbox's own count."""
    total = desk.sandbox.mailbox()["total"]
    return total["deliveries"], total["distinct"], total["most"]


def add_segment(desk: Desk, addresses: list[str] | None) -> int:
    """Put a tag of these people in place, or without them a saved segment of conditions; its number."""
    what: dict[str, object] = {"static_segment": addresses}
    if addresses is None:
        conditions = [{"condition_type": "Aim", "field": "aim", "op": "nosent", "value": "1"}]
        what = {"options": {"match": "all", "conditions": conditions}}
    client = http.client.HTTPConnection("127.0.0.1", desk.sandbox.port, timeout=60)
    key = base64.b64encode(f"any:{desk.values['MAILCHIMP_API_KEY']}".encode()).decode()
    headers = {"Authorization": f"Basic {key}", "Content-Type": "application/json"}
    client.request("POST", f"/3.0/lists/{LIST_ID}/segments", json.dumps({"name": "S", **what}), headers)
    made = json.loads(client.getresponse().read())
    client.close()
    return int(made["id"])


def test_the_rest_of_a_canceled_mailing_goes_to_those_alone_who_were_not_sent_it(desk: Desk) -> None:
    main = half_canceled(desk)
    told = desk.send("--dry-run", *ORDER)
    assert (told.code, "about 3 people" in told.out) == (0, True), told.all
    assert f"leaving out who was sent {main}" in " ".join(told.out.split())

    done = desk.send("--wait", *ORDER)
    assert (done.code, "Mailchimp has finished: 3 emails" in done.out) == (0, True), done.all
    assert mailed(desk) == (PEOPLE, PEOPLE, 1)
    first, repair = desk.record()["campaigns"]
    assert (first["id"], first["role"]) == (main, "main")
    assert (repair["role"], repair["state"], repair["by"]) == ("remaining 1", "sent", "sendonce")
    assert repair["title"] == f"Digest {DAY} (remaining 1) [{repair['nonce']}]"
    assert repair["order"].endswith(": canceled half-way")
    assert desk.leftovers() == []

    # there is nobody left, and a plain run has nothing to do with it
    nobody = desk.send(*ORDER)
    assert (nobody.code, "would reach nobody" in nobody.err) == (1, True), nobody.all
    assert desk.send().code == 0
    assert mailed(desk) == (PEOPLE, PEOPLE, 1)


def test_a_repair_that_was_killed_goes_on_and_reaches_each_once(desk: Desk) -> None:
    half_canceled(desk)
    for nth in range(10):
        desk.sandbox.clear_calls()
        with desk.start("send-batch", "--date", DAY, *ORDER) as process:
            wait_until(lambda nth=nth: process.poll() is not None or len(desk.sandbox.calls()) >= nth + 3)  # type: ignore[misc]
            process.send_signal(signal.SIGKILL)
            process.communicate()
    # an unclear send is waited out; once nobody is left, the order refuses
    wait_until(lambda: desk.send(*ORDER).code != 75, within_s=60, what="the repair is through")
    assert mailed(desk) == (PEOPLE, PEOPLE, 1)
    assert [e["role"] for e in desk.record()["campaigns"]][:2] == ["main", "remaining 1"]


def test_a_lost_answer_to_a_repair_is_looked_up_and_not_repeated(desk: Desk) -> None:
    half_canceled(desk)
    desk.sandbox.faults("send=accept-reset nth=1")
    wait_until(lambda: desk.send(*ORDER).code == 0, within_s=60, what="the repair is through")
    assert mailed(desk) == (PEOPLE, PEOPLE, 1)


@pytest.mark.wide
def test_a_canceled_mailing_is_repaired_although_the_ledger_was_lost(desk: Desk) -> None:
    half_canceled(desk)
    desk.ledger_file.unlink()
    assert desk.send(*ORDER).code == 0
    assert mailed(desk) == (PEOPLE, PEOPLE, 1)
    assert (desk.record()["state"], desk.record()["campaigns"][0]["role"]) == ("refused", "main")
    desk.ledger_file.unlink()
    # it was mailed: found, put on record, and nobody is left for a second one
    wait_until(lambda: desk.send(*ORDER).code == 0, what="the repair is found")
    wait_until(lambda: desk.send(*ORDER).code == 1, what="nobody remains")
    assert mailed(desk) == (PEOPLE, PEOPLE, 1)


def test_the_gap_to_the_campaign_that_it_completes_does_not_hold_up_a_repair(
    make_desk: Callable[..., Desk],
) -> None:
    desk = make_desk("draft", SENDONCE_MIN_GAP_HOURS="5")
    half_canceled(desk)
    assert desk.send(*ORDER).code == 0
    assert mailed(desk) == (PEOPLE, PEOPLE, 1)


def test_nothing_remains_of_a_mailing_that_reached_all_who_were_counted(desk: Desk) -> None:
    desk.prepare()
    assert desk.send("--wait").code == 0
    refused = desk.send(*ORDER)
    assert (refused.code, "nobody remains" in " ".join(refused.err.split())) == (1, True), refused.all
    assert len(desk.record()["campaigns"]) == 1


def test_while_the_first_is_being_mailed_nothing_is_repaired(desk: Desk) -> None:
    desk.prepare()
    desk.sandbox.settings(sending_s=600)
    assert desk.send().code == 0
    busy = desk.send(*ORDER)
    assert (busy.code, "still being mailed" in busy.err) == (75, True), busy.all


def test_a_date_that_was_never_mailed_cannot_be_repaired_or_repeated(desk: Desk) -> None:
    desk.prepare()
    refused = desk.send(*ORDER)
    assert (refused.code, "(no campaign)" in " ".join(refused.err.split())) == (1, True), refused.all
    assert desk.deliveries() == 0


@pytest.mark.parametrize(
    "words",
    [
        ("send-batch", "--remaining", "--reason", "x"),
        ("send-batch", "--date", DAY, "--remaining"),
        ("send-batch", "--date", DAY, "--again", "--reason", " "),
        ("send-batch", "--date", DAY, "--again", "--remaining", "--reason", "x"),
        ("send-batch", "--date", DAY, "--again", "--reason", "nobody types the date"),
    ],
)
def test_an_order_without_date_reason_or_somebody_to_type_the_date_is_wrong_usage(
    words: tuple[str, ...], make_desk: Callable[..., Desk]
) -> None:
    desk = make_desk("draft")
    desk.prepare()
    assert desk.send().code == 0
    assert desk.run(*words).code == 2
    assert desk.deliveries() == 1


def typed(desk: Desk, text: str, *arguments: str) -> tuple[int, str]:
    """`send-batch --again` with something typed."""
    with desk.start(
        "send-batch", "--date", DAY, "--again", "--reason", "wrong link", *arguments, stdin=subprocess.PIPE
    ) as process:
        out, err = process.communicate(text, timeout=60)
    return process.returncode, out + err


def test_a_second_mailing_to_all_needs_the_date_typed(desk: Desk) -> None:
    desk.prepare()
    assert desk.send("--wait").code == 0
    code, said = typed(desk, "yes\n")
    assert (code, "That was not" in said) == (1, True)
    assert mailed(desk) == (PEOPLE, PEOPLE, 1)

    code, said = typed(desk, f"{DAY}\n")
    assert code == 0, said
    assert mailed(desk) == (2 * PEOPLE, PEOPLE, 2)
    entry = desk.record()["campaigns"][1]
    assert (entry["role"], entry["state"]) == ("again 1", "sent")
    assert entry["order"].endswith(": wrong link")
    code, said = typed(desk, "no\n")
    assert (code, "Ordered for that date so far: again 1 is sent." in said) == (1, True), said
    assert desk.send().code == 0
    assert mailed(desk) == (2 * PEOPLE, PEOPLE, 2)


def test_a_paused_job_repairs_nothing(make_desk: Callable[..., Desk]) -> None:
    desk = make_desk("html")
    half_canceled(desk)
    desk.run("pause", "--reason", "strike")
    paused = desk.send(*ORDER)
    assert (paused.code, "the job is paused" in " ".join(paused.out.split())) == (0, True), paused.all
    assert mailed(desk) == (2, 2, 1)


def test_who_is_in_no_tag_stays_out_of_the_rest(make_desk: Callable[..., Desk]) -> None:
    """A campaign for a tag: the rest is for the tag as well, and for nobody else."""
    desk = make_desk("draft")
    tag = add_segment(desk, ["member0001@example.com", "member0002@example.com"])
    desk.sandbox.add_draft(f"Digest {DAY}", list_id=LIST_ID, segment_opts={"saved_segment_id": tag})
    assert desk.send().code == 0
    main = str(desk.record()["campaigns"][0]["id"])
    desk.sandbox.edit(main, delivered=1, status="canceled", keep_deliveries=True)
    assert desk.send(*ORDER).code == 0
    assert mailed(desk) == (2, 2, 1)


def test_a_saved_segment_is_refused_with_the_way_out(make_desk: Callable[..., Desk]) -> None:
    desk = make_desk("draft")
    saved = add_segment(desk, None)
    desk.sandbox.add_draft(f"Digest {DAY}", list_id=LIST_ID, segment_opts={"saved_segment_id": saved})
    assert desk.send().code == 0
    main = str(desk.record()["campaigns"][0]["id"])
    desk.sandbox.edit(main, delivered=1, status="canceled", keep_deliveries=True)
    for words in (("--dry-run", *ORDER), ORDER):
        refused = desk.send(*words)
        assert (refused.code, "Use a tag instead" in " ".join(refused.all.split())) == (1, True), refused.all
    assert mailed(desk) == (1, 1, 1)


@pytest.mark.parametrize("source", ["replicate", "html"])
def test_with_the_guard_of_the_audience_nobody_gets_two_campaigns_of_a_date(
    source: str, make_desk: Callable[..., Desk]
) -> None:
    desk = make_desk(source, SENDONCE_RECIPIENT_GUARD="audience")
    other = desk.sandbox.add_draft("Special offer", list_id=LIST_ID)
    desk.sandbox.edit(other, status="sent", send_time=f"{DAY}T09:00:00+00:00", delivered=2)
    assert desk.send().code == 0
    assert mailed(desk) == (PEOPLE, PEOPLE, 1)
    created = next(c for c in desk.sandbox.calls("create"))
    conditions = created["body"]["recipients"]["segment_opts"]["conditions"]
    web_id = desk.sandbox.campaign(other)["web_id"]
    assert conditions == [{"condition_type": "Aim", "field": "aim", "op": "nosent", "value": str(web_id)}]


@pytest.mark.wide
def test_whom_the_local_record_knows_is_left_out_by_a_tag_even_of_a_campaign_that_is_gone(
    make_desk: Callable[..., Desk],
) -> None:
    desk = make_desk("html", SENDONCE_KEEP_ADDRESSES="yes")
    half_canceled(desk)
    assert desk.send(*ORDER, "--wait").code == 0
    assert desk.run("recipients", "sync", "--date", DAY).code == 0
    repair = str(desk.record()["campaigns"][1]["id"])
    first = desk.record()["campaigns"][0]["id"]
    # two new people; and the campaign of the repair is deleted, so Mailchimp no longer says who was sent it
    desk.sandbox.add_audience(PEOPLE + 2, id=LIST_ID)
    desk.sandbox.delete(repair)
    repair_as_twin(desk)

    done = desk.send(*ORDER)
    assert done.code == 0, done.all
    tags = [c["body"] for c in desk.sandbox.calls("add-segment")]
    assert [len(tag["static_segment"]) for tag in tags] == [PEOPLE]
    conditions = desk.sandbox.calls("create")[-1]["body"]["recipients"]["segment_opts"]["conditions"]
    web_id = str(desk.sandbox.campaign(first)["web_id"])
    assert conditions[0] == {"condition_type": "Aim", "field": "aim", "op": "nosent", "value": web_id}
    assert conditions[1]["op"] == "static_not"
    assert mailed(desk) == (PEOPLE + 2, PEOPLE + 2, 1)


@pytest.mark.wide
def test_without_the_local_record_a_campaign_of_the_date_that_is_gone_stops_the_repair(
    make_desk: Callable[..., Desk],
) -> None:
    desk = make_desk("html")
    half_canceled(desk)
    assert desk.send(*ORDER, "--wait").code == 0
    repair = str(desk.record()["campaigns"][1]["id"])
    desk.sandbox.delete(repair)
    repair_as_twin(desk)
    refused = desk.send(*ORDER)
    assert (refused.code, "cannot be left out" in " ".join(refused.err.split())) == (1, True), refused.all
    assert mailed(desk) == (PEOPLE, PEOPLE, 1)


@pytest.mark.wide
def test_a_hundred_thousand_half_canceled_and_killed_ten_times_get_one_mail_each(tmp_path: Path) -> None:
    people, delivered = 100_000, 50_000
    with Sandbox(audience=people, sending=0.2) as sandbox:
        desk = Desk(tmp_path / "desk", sandbox, "html", SENDONCE_TIMEOUT_SECONDS="20")
        half_canceled(desk, delivered)
        assert mailed(desk) == (delivered, delivered, 1)
        kills = 0
        for nth in itertools.cycle(range(1, 14)):
            if kills == 10:
                break
            sandbox.clear_calls()
            with desk.start("send-batch", "--date", DAY, *ORDER) as process:
                wait_until(lambda nth=nth: process.poll() is not None or len(sandbox.calls()) >= nth)  # type: ignore[misc]
                kills += process.poll() is None
                process.send_signal(signal.SIGKILL)
                process.communicate()
        wait_until(lambda: desk.send(*ORDER).code != 75, within_s=90, what="the repair is through")
        assert mailed(desk) == (people, people, 1)
        tally.add_judged("runs of the command", mailed(desk)[2])

        wait_until(lambda: desk.run("recipients", "sync", "--date", DAY).code == 0, within_s=60)
        twice = desk.run("recipients", "duplicates", "--date", DAY)
        assert twice.code == 0, twice.all
        counted = json.loads(desk.run("--json", "recipients", "duplicates", "--date", DAY).out)
        assert counted["duplicates"] == []


def test_two_who_order_a_second_mailing_at_once_cause_one(make_desk: Callable[..., Desk]) -> None:
    desk = make_desk("html")
    desk.prepare()
    assert desk.send("--wait").code == 0
    words = ("send-batch", "--date", DAY, "--again", "--reason", "wrong link", "--wait")
    with (
        desk.start(*words, stdin=subprocess.PIPE) as one,
        desk.start(*words, stdin=subprocess.PIPE) as other,
    ):
        # both are asked before either has typed
        for process in (one, other):
            assert process.stderr is not None
            assert "--again mails the campaign" in process.stderr.readline()
        ended = []
        for process in (one, other):
            out, err = process.communicate(f"{DAY}\n", timeout=60)
            ended.append((process.returncode, out + err))
    assert [code for code, _ in ended] == [0, 1], ended
    assert "Meanwhile somebody else ordered something" in " ".join(ended[1][1].split())
    assert mailed(desk) == (2 * PEOPLE, PEOPLE, 2)


def test_an_open_repair_is_looked_after_although_the_job_is_paused(make_desk: Callable[..., Desk]) -> None:
    desk = make_desk("html")
    half_canceled(desk)
    desk.sandbox.faults("send=accept-reset nth=1")
    desk.sandbox.settings(status_lag_s=60)
    assert desk.send(*ORDER).code == 75
    desk.sandbox.settings(status_lag_s=0)
    assert desk.run("pause", "--reason", "strike").code == 0
    found = desk.send(*ORDER)
    assert (found.code, "Mailchimp shows it as sent" in found.out) == (0, True), found.all
    assert mailed(desk) == (PEOPLE, PEOPLE, 1)


@pytest.mark.wide
def test_a_rehearsal_knows_whom_the_local_record_covers(make_desk: Callable[..., Desk]) -> None:
    desk = make_desk("html", SENDONCE_KEEP_ADDRESSES="yes")
    half_canceled(desk)
    assert desk.send(*ORDER, "--wait").code == 0
    assert desk.run("recipients", "sync", "--date", DAY).code == 0
    desk.sandbox.add_audience(PEOPLE + 2, id=LIST_ID)
    desk.sandbox.delete(str(desk.record()["campaigns"][1]["id"]))
    told = desk.send("--dry-run", *ORDER)
    assert (told.code, "Would create" in told.out) == (0, True), told.all
    assert desk.sandbox.calls("add-segment") == []
    assert desk.send(*ORDER).code == 0
    assert mailed(desk) == (PEOPLE + 2, PEOPLE + 2, 1)


def test_a_reason_for_nothing_is_wrong_usage(make_desk: Callable[..., Desk]) -> None:
    desk = make_desk("draft")
    desk.prepare()
    assert desk.send("--reason", "just so").code == 2
    assert desk.deliveries() == 0


def test_two_jobs_of_one_audience_that_start_in_the_same_minute_mail_nobody_twice(
    make_desk: Callable[..., Desk],
) -> None:
    desks = [
        make_desk("html", SENDONCE_RECIPIENT_GUARD="audience", SENDONCE_TITLE=f"{name} {{date}}")
        for name in ("Digest", "Offer")
    ]
    with (
        desks[0].start("send-batch", "--date", DAY) as one,
        desks[1].start("send-batch", "--date", DAY) as other,
    ):
        ended = [process.communicate(timeout=60) for process in (one, other)]
    assert sorted((one.returncode, other.returncode)) in ([0, 1], [0, 75], [1, 75]), ended
    for desk in desks:
        wait_until(lambda desk=desk: desk.send().code in {0, 1}, within_s=60)  # type: ignore[misc]
    assert mailed(desks[0]) == (PEOPLE, PEOPLE, 1)


def test_an_order_is_not_held_up_by_a_calendar_that_skips_its_date(make_desk: Callable[..., Desk]) -> None:
    desk = make_desk("draft", SENDONCE_SKIP_DATES="holidays.txt")
    (desk.folder / "holidays.txt").write_text("2026-12-25 Christmas\n")
    half_canceled(desk)
    desk.sandbox.faults("send=reset-before nth=1")
    assert desk.send(*ORDER).code == 75
    (desk.folder / "holidays.txt").write_text(f"{DAY} put in afterwards\n")
    wait_until(lambda: desk.send(*ORDER).code == 0, within_s=60, what="the repair is through")
    assert mailed(desk) == (PEOPLE, PEOPLE, 1)
