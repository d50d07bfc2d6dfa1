"""Cases from the field: what Mailchimp, or something in its place, answers. A1 to A5, and the key in all of them.

Times are short: a run gives up an answer after 2 s, and an unclear send is settled 1 s later.
"""

from __future__ import annotations

import base64
import json
import re
import signal
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from support.cases import case_desk, holds, run_once, shows_nothing_of, together
from support.runs import DAY, Desk, kill, wait_until
from support.sandbox import Sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.runs import Ended

NO_BODY = ("503empty", "502noct", "500emptyjson", "500badjson", "403bare")
UNCLEAR_ERRORS = ("500json", "502html", "503:1", "408json", "400html", "404bare", "407noct")
UNCLEAR_SUCCESSES = ("200", "200html", "200empty", "202badjson", "302html", "307bare", "308json")
BROKEN_OFF = ("reset-before", "close-before", "stall-before")
LOST_AFTER_EFFECT = (
    *("accept-hang", "accept-reset", "close-after", "garbage", "late:0.5", "drip:1"),
    *("accept-503empty", "accept-200html"),
)
NO_AFTER_EFFECT = ("accept-429", "accept-403bare", "accept-400sending", "accept-403json", "accept-401")
CLEAR_NO = ("400notready", "400sending", "403json", "404json", "422json")


def requests_of_day(sandbox: Sandbox) -> list[str]:
    """The names of the requests that arrived, in order."""
    return [str(call["name"]) for call in sandbox.calls()]


def each(
    tmp_path: Path, words: tuple[str, ...], story: Callable[[Desk, str], None], *, source: str = "draft"
) -> None:
    """Tell the same story with every word at once, each with a desk and a sandbox of its own."""

    def one(word: str) -> None:
        with Sandbox(audience=5, sending=0.2) as sandbox:
            desk = case_desk(tmp_path / word.replace(":", "-"), sandbox, source)
            desk.prepare()
            try:
                story(desk, word)
            except AssertionError as error:
                error.add_note(f"in the case of {word}")
                raise

    together(words, one)


def status_of(word: str) -> str:
    """The status that a word makes the sandbox answer with."""
    found = re.search(r"\d{3}", word)
    assert found
    return found.group()


def unclear_then_sent(desk: Desk, word: str) -> None:
    """An unclear answer to a send without effect: 75, then the same campaign is sent by the next run."""
    desk.sandbox.faults(f"post={word}")
    first = run_once(desk)
    assert (first.code, desk.deliveries()) == (75, 0), first
    assert "not confirmed" in first.err
    assert desk.record()["state"] != "sent"
    assert desk.record()["campaigns"][0]["requested_at"] is not None
    if word[0].isdigit():
        assert f"HTTP {status_of(word)}" in first.err
    desk.sandbox.faults()
    desk.sandbox.clear_calls()
    second = run_once(desk)
    assert (second.code, desk.deliveries(), desk.sandbox.sends()) == (0, 1, 2), second
    names = requests_of_day(desk.sandbox)
    assert names.index("campaign") < names.index("send"), "sent again without having looked"
    holds(desk, first, second, looks=word == NO_BODY[0])


# --------------------------------------------------------------------------------------------------------- A1, A2


def test_an_error_without_a_usable_body_is_no_success_and_the_next_run_sends(tmp_path: Path) -> None:
    each(tmp_path, NO_BODY, unclear_then_sent)


@pytest.mark.parametrize(
    "words", [UNCLEAR_ERRORS, UNCLEAR_SUCCESSES, BROKEN_OFF], ids=["errors", "successes", "broken off"]
)
def test_an_answer_that_is_neither_yes_nor_no_is_read_again_and_then_the_same_campaign_is_sent(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    each(tmp_path, words, unclear_then_sent)


def test_a_page_of_something_else_than_the_api_is_called_that(tmp_path: Path) -> None:
    def story(desk: Desk, word: str) -> None:
        desk.sandbox.faults(f"post={word}")
        ended = run_once(desk)
        assert ended.code == 75
        assert "not an answer of the Mailchimp API" in ended.err
        if "html" in word:
            assert "content type text/html" in ended.err
        assert desk.sandbox.calls("unknown") == [], "a redirect was followed"
        holds(desk, ended, looks=False)

    each(tmp_path, ("200html", "302html", "307html", "200noct"), story)


UNREADABLE = (
    *NO_BODY,
    *("200html", "302html", "200emptyjson", "429"),
    *("reset-before", "cutjson", "drip:1", "nodate"),
)


@pytest.mark.parametrize("words", [UNREADABLE[:7], UNREADABLE[7:]], ids=["some", "others"])
def test_nothing_is_sent_while_mailchimp_cannot_be_read(tmp_path: Path, words: tuple[str, ...]) -> None:
    def story(desk: Desk, word: str) -> None:
        desk.sandbox.faults(f"get={word}")
        first = run_once(desk)
        assert (first.code, desk.deliveries(), desk.sandbox.sends()) == (75, 0, 0), first
        if word[0].isdigit():
            assert f"HTTP {status_of(word)}" in first.err
        desk.sandbox.faults()
        second = run_once(desk)
        assert (second.code, desk.deliveries()) == (0, 1), second
        holds(desk, first, second, looks=False)

    each(tmp_path, words, story)


def test_one_unreadable_answer_among_good_ones_is_asked_for_again_in_the_same_run(tmp_path: Path) -> None:
    def story(desk: Desk, word: str) -> None:
        desk.sandbox.faults(f"get={word} nth=1")
        ended = run_once(desk)
        assert (ended.code, desk.deliveries()) == (0, 1), ended
        holds(desk, ended, looks=False)

    each(tmp_path, ("503empty", "200html", "403bare", "reset-before"), story)


@pytest.mark.parametrize(("source", "on"), [("replicate", "create"), ("html", "put")])
def test_an_unclear_answer_while_the_campaign_is_made_sends_nothing_and_leaves_one_campaign(
    tmp_path: Path, source: str, on: str
) -> None:
    def story(desk: Desk, word: str) -> None:
        desk.sandbox.faults(f"{on}={word}")
        first = run_once(desk)
        assert (first.code, desk.sandbox.sends()) == (75, 0), first
        desk.sandbox.faults()
        codes = desk.send_until_done()
        assert (codes[-1], desk.deliveries(), desk.sandbox.sends()) == (0, 1, 1)
        made = [c for c in desk.sandbox.state()["campaigns"] if c["title"].startswith(f"Digest {DAY} [")]
        assert len(made) == 1
        holds(desk, first, *[first] * len(codes))

    each(tmp_path, ("503empty", "accept-reset"), story, source=source)


# ------------------------------------------------------------------------------------------------------------- A3


def test_a_send_whose_answer_was_lost_is_found_by_reading(tmp_path: Path) -> None:
    def story(desk: Desk, word: str) -> None:
        desk.sandbox.faults(f"post={word}")
        first = run_once(desk)
        assert first.code == 0, first
        assert desk.record()["state"] == "sent"
        desk.sandbox.faults()
        second, third = run_once(desk), run_once(desk)
        assert (second.code, third.code) == (0, 0)
        assert (desk.sandbox.accepted(), desk.sandbox.sends()) == (1, 1)
        holds(desk, first, second, third, looks=False)

    each(tmp_path, LOST_AFTER_EFFECT, story)


def test_a_no_that_comes_after_the_effect_is_seen_through_by_reading(tmp_path: Path) -> None:
    def story(desk: Desk, word: str) -> None:
        desk.sandbox.faults(f"post={word}")
        first = run_once(desk)
        assert first.code == 0, first
        desk.sandbox.faults()
        second = run_once(desk)
        assert (second.code, desk.sandbox.accepted(), desk.sandbox.sends()) == (0, 1, 1)
        holds(desk, first, second, looks=False)

    each(tmp_path, NO_AFTER_EFFECT, story)


@pytest.mark.parametrize("word", ["accept-hang", "accept-reset", "accept-503empty"])
def test_a_run_that_cannot_read_after_a_lost_answer_says_so_and_the_next_one_reads_before_anything_else(
    tmp_path: Path, sandbox: Sandbox, word: str
) -> None:
    desk = case_desk(tmp_path / "desk", sandbox)
    desk.prepare()
    sandbox.faults(f"post={word} get=503empty after=send")
    first = run_once(desk)
    assert first.code == 75, first
    assert "not known yet" in first.err
    assert desk.record()["state"] == "sending"
    sandbox.faults()
    sandbox.clear_calls()
    second = run_once(desk)
    assert (second.code, desk.record()["state"]) == (0, "sent")
    assert sandbox.calls("send") == []
    third = run_once(desk)
    assert (third.code, sandbox.accepted(), sandbox.sends()) == (0, 1, 1)
    holds(desk, first, second, third)


def test_a_send_that_the_provider_dropped_is_made_again_only_once_it_read_as_a_draft_for_the_settle_time(
    tmp_path: Path, sandbox: Sandbox
) -> None:
    desk = case_desk(tmp_path / "desk", sandbox, SENDONCE_SETTLE_SECONDS="600")
    desk.prepare()
    sandbox.faults("post=accept-hang get=503empty after=send")
    with desk.start("send-batch", "--date", DAY) as first:
        wait_until(lambda: desk.record().get("campaigns", [{}])[0].get("gave_up_at") is not None)
        kill(first)
    campaign = desk.record()["campaigns"][0]["id"]
    sandbox.edit(campaign, status="save", keep_deliveries=True)
    sandbox.faults()
    early = run_once(desk)
    assert (early.code, sandbox.sends()) == (75, 1), early
    assert "not known yet" in early.err
    desk.write_env(SENDONCE_SETTLE_SECONDS="1")
    ends = [early]
    while ends[-1].code == 75 and len(ends) < 20:
        ends.append(run_once(desk))
    assert (ends[-1].code, sandbox.sends(campaign), desk.deliveries()) == (0, 2, 2)
    holds(desk, *ends, at_most=2, killed=1)


def test_a_send_stays_unknown_as_long_as_mailchimp_cannot_be_read(tmp_path: Path, sandbox: Sandbox) -> None:
    desk = case_desk(tmp_path / "desk", sandbox)
    desk.prepare()
    sandbox.faults("post=accept-hang get=503empty after=send")
    first = run_once(desk)
    sandbox.faults("post=accept-hang get=503empty")
    second, third = run_once(desk), run_once(desk)
    assert [e.code for e in (first, second, third)] == [75, 75, 75]
    assert (sandbox.accepted(), sandbox.sends()) == (1, 1)
    assert desk.record()["state"] == "sending"
    holds(desk, first, second, third)


def test_a_status_that_lags_behind_the_send_is_waited_for(tmp_path: Path) -> None:
    with Sandbox(audience=5, sending=0.2, status_lag=1) as sandbox:
        desk = case_desk(tmp_path / "desk", sandbox, SENDONCE_SETTLE_SECONDS="3")
        desk.prepare()
        sandbox.faults("post=accept-reset")
        ended = run_once(desk)
        assert (ended.code, sandbox.accepted(), sandbox.sends()) == (0, 1, 1), ended
        holds(desk, ended, looks=False)


# ------------------------------------------------------------------------------------------------------------- A4


def start_and_stop_in_the_post(desk: Desk, number: signal.Signals) -> tuple[int, str]:
    """Start a run and end it by a signal while its send is taken but not answered; its exit code and what it said."""
    desk.sandbox.faults("post=accept-slow:20")
    with desk.start("send-batch", "--date", DAY) as run:
        wait_until(lambda: desk.sandbox.accepted() == 1)
        run.send_signal(number)
        out, err = run.communicate(timeout=30)
    desk.sandbox.faults()
    return run.returncode, out + err


def test_a_run_killed_between_acceptance_and_record_leaves_its_intent_and_the_next_one_finds_the_send(
    tmp_path: Path, sandbox: Sandbox
) -> None:
    desk = case_desk(tmp_path / "desk", sandbox)
    desk.prepare()
    start_and_stop_in_the_post(desk, signal.SIGKILL)
    assert desk.record()["state"] == "sending"
    shown = desk.run("ledger", "show", DAY)
    assert "started, outcome unknown" in shown.out
    assert "not sent" not in shown.out
    second = run_once(desk)
    assert (second.code, sandbox.accepted(), sandbox.sends()) == (0, 1, 1), second
    assert desk.record()["state"] == "sent"
    third = run_once(desk)
    assert third.code == 0
    holds(desk, second, third, killed=1)
    assert desk.leftovers() == []


def test_after_a_kill_in_the_post_nothing_is_sent_while_mailchimp_cannot_be_read(
    tmp_path: Path, sandbox: Sandbox
) -> None:
    desk = case_desk(tmp_path / "desk", sandbox)
    desk.prepare()
    start_and_stop_in_the_post(desk, signal.SIGKILL)
    sandbox.faults("get=503empty")
    second = run_once(desk)
    assert (second.code, sandbox.accepted(), sandbox.sends()) == (75, 1, 1)
    holds(desk, second, killed=1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda s: s.name)
def test_a_run_stopped_in_the_post_says_that_the_outcome_is_not_known(
    tmp_path: Path, sandbox: Sandbox, number: signal.Signals
) -> None:
    desk = case_desk(tmp_path / "desk", sandbox)
    desk.prepare()
    code, said = start_and_stop_in_the_post(desk, number)
    assert code == 75
    assert number.name in said
    assert "not known yet" in said
    assert desk.record()["campaigns"][0]["gave_up_at"] is not None
    assert desk.leftovers() == []
    second = run_once(desk)
    assert (second.code, sandbox.accepted(), sandbox.sends()) == (0, 1, 1)
    holds(desk, second, killed=1)


def test_a_run_that_hangs_in_the_post_ends_itself_at_its_deadline(tmp_path: Path, sandbox: Sandbox) -> None:
    slow = {"SENDONCE_TIMEOUT_SECONDS": "60", "SENDONCE_DEADLINE_SECONDS": "5"}
    desk = case_desk(tmp_path / "desk", sandbox, **slow)
    desk.prepare()
    sandbox.faults("post=accept-hang")
    first = run_once(desk)
    assert first.code == 75, first
    assert "not known yet" in first.err
    assert "SENDONCE_DEADLINE_SECONDS" in first.err
    assert desk.record()["state"] == "sending"
    sandbox.faults()
    second = run_once(desk)
    assert (second.code, sandbox.accepted(), sandbox.sends()) == (0, 1, 1)
    holds(desk, first, second)


# ------------------------------------------------------------------------------------------------------------- A5


def twice(desk: Desk) -> tuple[Ended, Ended]:
    """Run twice: the second ends as the first, and nothing is on record as sent."""
    first, second = run_once(desk), run_once(desk)
    assert first.code == second.code, second
    assert desk.record().get("state") != "sent"
    assert desk.deliveries() == 0
    holds(desk, first, second, looks=False)
    return first, second


def test_a_clear_no_to_the_send_is_a_refusal_with_mailchimps_own_words(tmp_path: Path) -> None:
    def story(desk: Desk, word: str) -> None:
        desk.sandbox.faults(f"post={word}")
        first, second = twice(desk)
        assert first.code == 1, first
        assert f"HTTP {status_of(word)}: " in first.err
        assert desk.record()["campaigns"][0]["id"] in first.err
        assert "Nothing was sent" in first.err
        assert first.err == second.err
        if word == "400notready":
            assert "not ready to send" in first.err
        assert desk.record()["state"] == "refused"
        desk.sandbox.faults()
        third = run_once(desk)
        assert (third.code, desk.deliveries()) == (0, 1), "a refused day is tried again"

    each(tmp_path, CLEAR_NO, story)


def test_a_send_refused_because_recipients_are_not_ready_is_tried_again_while_the_draft_is_young(
    tmp_path: Path, sandbox: Sandbox
) -> None:
    desk = case_desk(tmp_path / "desk", sandbox)
    campaign = sandbox.add_draft(f"Digest {DAY}", fresh=True)
    sandbox.faults("post=400recipients")
    young = run_once(desk)
    assert young.code == 75, young
    assert "recipients" in young.err
    sandbox.edit(campaign, create_time="2026-01-01T00:00:00+00:00")
    old = run_once(desk)
    assert old.code == 1, old
    assert desk.record()["state"] == "ready"
    sandbox.faults()
    done = run_once(desk)
    assert (done.code, desk.deliveries()) == (0, 1)
    holds(desk, young, old, done)


@pytest.mark.parametrize("on", ["get", "post"])
def test_a_key_that_is_not_accepted_is_unusable_and_names_the_setting(
    tmp_path: Path, sandbox: Sandbox, on: str
) -> None:
    desk = case_desk(tmp_path / "desk", sandbox)
    desk.prepare()
    sandbox.faults(f"{on}=401")
    first, _ = twice(desk)
    assert first.code == 78
    assert "MAILCHIMP_API_KEY" in first.err
    assert str(desk.env_file) in first.err


def test_throttling_and_gateways_are_temporary_each_time(tmp_path: Path) -> None:
    def story(desk: Desk, word: str) -> None:
        desk.sandbox.faults(f"post={word}")
        first, _ = twice(desk)
        assert first.code == 75

    each(tmp_path, ("429:1", "403html", "502html"), story)


def test_a_clear_no_to_a_read_is_a_refusal(tmp_path: Path) -> None:
    def story(desk: Desk, word: str) -> None:
        desk.sandbox.faults(f"get={word}")
        first, _ = twice(desk)
        assert first.code == 1
        assert f"HTTP {status_of(word)}: " in first.err or "404" in first.err
        assert desk.sandbox.sends() == 0

    each(tmp_path, ("400json", "403json", "404json"), story)


@pytest.mark.parametrize("source", ["replicate", "html"])
def test_a_clear_no_while_the_campaign_is_made_is_a_refusal(tmp_path: Path, source: str) -> None:
    def story(desk: Desk, word: str) -> None:
        desk.sandbox.faults(*word.split("+"))
        first, _ = twice(desk)
        assert first.code == 1, first
        assert desk.record()["state"] == "refused"

    words = ("create=400json", "put=403json")
    each(tmp_path, words, story, source=source)


def test_a_server_that_cannot_be_reached_is_temporary_and_nothing_was_sent(tmp_path: Path) -> None:
    with Sandbox(audience=5) as sandbox:
        desk = case_desk(tmp_path / "desk", sandbox)
        desk.prepare()
        sandbox.faults("connect=refuse")
        first, _ = twice(desk)
        assert first.code == 75
        sandbox.faults()
    gone = run = desk.send()
    assert run.code == 75
    assert "refused" in gone.err


# ------------------------------------------------------------------------------------------------------------- A9

CASE_KEY = "5ec4e75ec4e75ec4e75ec4e75ec4e75e-us1"


def test_the_key_is_in_no_output_ledger_lock_or_log_whatever_is_answered(tmp_path: Path) -> None:
    def story(desk: Desk, word: str) -> None:
        desk.write_env(MAILCHIMP_API_KEY=CASE_KEY)
        desk.sandbox.faults(word)
        manner = ["-v"] if word.startswith("get") else ["-v", "--json"]
        with desk.start("send-batch", "--date", DAY, *manner) as run:
            wait_until(lambda: desk.lock_file.exists() or run.poll() is not None)
            lock = desk.lock_file.read_bytes().decode(errors="replace") if desk.lock_file.exists() else ""
            out, err = run.communicate(timeout=60)
        shows_nothing_of(CASE_KEY, out, err, lock, folder=desk.folder)
        assert (desk.folder / "run.log").exists()
        holds(desk, killed=1, looks=False)

    words = ("post=503empty", "get=200html", "post=accept-reset", "post=400notready", "get=401", "post=429")
    each(tmp_path, words, story)


class Parrot(BaseHTTPRequestHandler):
    """A gateway whose error pages repeat what it was sent, as some do to help with debugging."""

    def do_GET(self) -> None:
        said = self.headers["Authorization"]
        key = base64.b64decode(said.partition(" ")[2]).decode().partition(":")[2]
        detail = f"You sent {said}, which is {key}. Try {key.partition('-')[0]}."
        body = json.dumps({"title": f"Forbidden for {key}", "detail": detail, "instance": key}).encode()
        self.send_response(403)
        self.send_header("Content-Type", f"application/problem+json; key={key}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - as the base class has it
        """Keep silent."""


@contextmanager
def parrot() -> Iterator[str]:
    """Run a Parrot; its base URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Parrot) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/3.0"
        finally:
            server.shutdown()
            thread.join()


def test_a_server_that_repeats_the_key_in_its_answer_does_not_get_it_into_output_ledger_or_log(
    tmp_path: Path, sandbox: Sandbox
) -> None:
    desk = case_desk(tmp_path / "desk", sandbox)
    with parrot() as url:
        desk.write_env(MAILCHIMP_API_URL=url)
        ended = run_once(desk, "-v")
    assert ended.code == 1
    assert "Forbidden" in ended.err
    holds(desk, ended)
