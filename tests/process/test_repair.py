"""The rest of a mailing that stopped half-way, and a second mailing: ordered by hand, each address at most once."""

from __future__ import annotations

import base64
import http.client
import json
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from support.runs import DAY, Desk, wait_until
from support.sandbox import LIST_ID

if TYPE_CHECKING:
    from collections.abc import Callable

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
    assert (nobody.code, "the audience or segment is empty" in nobody.err) == (1, True), nobody.all
    assert desk.send().code in {0, 1}
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
    assert (refused.code, "no campaign of" in refused.err) == (1, True), refused.all
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
