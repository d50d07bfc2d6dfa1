"""`pytest -m live`: ask a real account what nobody else knows. Never in CI.

MAILCHIMP_LIVE_KEY     an API key
MAILCHIMP_LIVE_LIST    the id of a spare audience of at most five members, who will get a few mails
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from live.questions import MEMBERS_AT_MOST, QUESTIONS, Account, told
from support.sandbox import API_KEY, LIST_ID, Sandbox

if TYPE_CHECKING:
    from collections.abc import Callable


def table(answers: list[tuple[str, str]]) -> str:
    """The answers with the date, as docs/mailchimp.md wants them."""
    head = f"Answers of a live account, {datetime.now(UTC):%Y-%m-%d}:"
    return "\n".join([head, *(f"  {question}\n    {answer}" for question, answer in answers)])


@pytest.mark.live
@pytest.mark.timeout(3600)
def test_a_real_account_answers(capsys: pytest.CaptureFixture[str]) -> None:
    key, list_id = os.environ.get("MAILCHIMP_LIVE_KEY", ""), os.environ.get("MAILCHIMP_LIVE_LIST", "")
    if not key or not list_id:
        pytest.skip("needs MAILCHIMP_LIVE_KEY and MAILCHIMP_LIVE_LIST")
    account = Account(f"https://{key.rpartition('-')[2]}.api.mailchimp.com/3.0", key, list_id)
    assert account.members() <= MEMBERS_AT_MOST, "that audience is not a spare one: nothing was sent"
    answers = []
    try:
        for question in QUESTIONS:
            answers.append(((question.__doc__ or "").splitlines()[0], question(account)))
    finally:
        account.tidy()
        with capsys.disabled():
            print("\n" + table(answers))


EXPECTED_OF_THE_SANDBOX = {
    "second_send": "first 204; at once after it 400",
    "two_sends_at_once": "emails_sent 3 for 3 members",
    "listing_lag": "in 5 tries",
    "status_lag": "left save after",
    "web_id_grows": ": [",
    "same_segment_twice": "of 20 were made",
    "title_of_a_copy": '"sendonce live: original (copy 01)"',
    "paused_and_canceled": "a send then 400",
}


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: q.__name__)
def test_each_question_can_be_asked(question: Callable[[Account], str]) -> None:
    """On the sandbox, so that a live run, which costs mails, does not fail on a slip of the pen."""
    with Sandbox(audience=3, sending=0.3) as sandbox:
        account = Account(sandbox.url, API_KEY, LIST_ID, poll_s=0.05)
        assert account.members() == 3
        answer = question(account)
        account.tidy()
        drafts = [c for c in sandbox.state()["campaigns"] if c["status"] == "save"]
    assert EXPECTED_OF_THE_SANDBOX[question.__name__] in answer
    assert drafts == []


def test_an_answer_is_told_in_words() -> None:
    assert told((400, {"title": "Bad Request", "detail": "no"})) == "400 Bad Request: no"
    assert told((204, None)) == "204"
