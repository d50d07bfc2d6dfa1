"""Any sequence of runs, deaths, lost answers, lags and operator's commands, through the real command line."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from support.runs import DAY, Desk, kill, wait_until
from support.sandbox import Sandbox

SOURCES = st.sampled_from(["draft", "html"])
BROKEN = st.sampled_from(
    [
        "post=accept-reset",
        "post=reset-before",
        "post=503empty",
        "post=429",
        "create=reset-after",
        "any=502html nth=2",
    ]
)


class Newsletter(RuleBasedStateMachine):
    """One job and one day."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="sendonce-state-machine-"))
        self.sandbox = Sandbox(audience=3, sending=0.1)
        self.desk: Desk | None = None

    def at(self, source: str) -> Desk:
        """The job; the first rule that runs decides its source."""
        if self.desk is None:
            self.desk = Desk(self.folder / "desk", self.sandbox, source)
            self.desk.prepare()
        return self.desk

    @rule(source=SOURCES)
    def run(self, source: str) -> None:
        assert self.at(source).send().code in {0, 75}

    @rule(source=SOURCES, words=BROKEN)
    def run_with_a_broken_answer(self, source: str, words: str) -> None:
        self.sandbox.faults(words)
        assert self.at(source).send().code in {0, 75}
        self.sandbox.faults()

    @rule(source=SOURCES, nth=st.integers(1, 9), when=st.sampled_from(["stall-before", "stall-after"]))
    def run_and_die_at_a_request(self, source: str, nth: int, when: str) -> None:
        desk = self.at(source)
        self.sandbox.clear_calls()
        self.sandbox.faults({"on": "any", "nth": nth, "word": when})
        process = desk.start("send-batch", "--date", DAY)
        wait_until(lambda: process.poll() is not None or len(self.sandbox.calls()) >= nth)
        kill(process)
        self.sandbox.faults()

    @rule(listing_s=st.sampled_from([0, 0.8]), status_s=st.sampled_from([0, 0.8]))
    def lag(self, listing_s: float, status_s: float) -> None:
        self.sandbox.settings(listing_lag_s=listing_s, status_lag_s=status_s)

    @rule()
    def reset(self) -> None:
        if self.desk is not None:
            assert self.desk.run("ledger", "reset", "--date", DAY, "--yes").code in {0, 1, 75}

    @rule()
    def lose_the_ledger(self) -> None:
        if self.desk is not None:
            self.desk.ledger_file.unlink(missing_ok=True)

    @invariant()
    def at_most_one_delivery(self) -> None:
        if self.desk is not None:
            assert self.desk.deliveries() <= 1

    @invariant()
    def sent_is_the_truth(self) -> None:
        if self.desk is not None and self.desk.record().get("state") == "sent":
            assert self.desk.deliveries() == 1

    def teardown(self) -> None:
        try:
            if self.desk is not None:
                self.sandbox.settings(listing_lag_s=0, status_lag_s=0)
                assert self.desk.send_until_done(at_most=20)[-1] == 0
                assert (self.desk.deliveries(), self.desk.record()["state"]) == (1, "sent")
        finally:
            self.sandbox.close()
            shutil.rmtree(self.folder, ignore_errors=True)


TestNewsletter = Newsletter.TestCase
TestNewsletter.settings = settings(
    max_examples=6,
    stateful_step_count=6,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
