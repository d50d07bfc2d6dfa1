"""What a run tells others: a ping, a file of metrics, a command of the user's. None of it changes how the run ends.

The outcome is on record before any of these, and what goes wrong here is a warning.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from sendonce.core.errors import Stopped
from sendonce.core.model import Ending, many
from sendonce.exits import ExitCode, code_of, code_of_ending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sendonce.adapters.clock import SystemClock
    from sendonce.adapters.log import Log
    from sendonce.core.model import Outcome
    from sendonce.settings import Settings

SENT_NOW = {Ending.SENT, Ending.FOUND_SENT}
DELIVERED = {*SENT_NOW, Ending.ALREADY_SENT}


class Told(NamedTuple):
    """How a run ended, for others: no address, no key, no text from outside."""

    date: str
    ending: str
    code: int
    campaign_id: str = ""
    recipients: int | None = None
    emails_sent: int | None = None
    tries: int | None = None


class Monitor:
    """Those who are to be told of one run. Where nothing is set, nothing is done and nothing imported."""

    def __init__(
        self, settings: Settings, clock: SystemClock, log: Log, environ: Mapping[str, str], *, run_id: str
    ) -> None:
        self._settings, self._clock, self._log = settings, clock, log
        self._environ, self._run_id = environ, run_id
        self._began_s = clock.monotonic()

    def started(self) -> None:
        """Say that a run has begun, to whoever measures how long it takes."""
        self._without_harm("The ping", lambda: self._ping("/start", ""))

    @contextmanager
    def told_of_faults(self, day: str) -> Iterator[None]:
        """Say it if the run ends with a fault, which goes on upwards."""
        try:
            yield
        except (Exception, Stopped, KeyboardInterrupt) as fault:
            self._tell(Told(day, "error", code_of(fault)))
            raise

    def ended(self, outcome: Outcome, tries: int | None) -> None:
        """Say how it ended. Never raises for what a network, a disk or a command can do."""
        about = (outcome.campaign_id, outcome.recipients, outcome.emails_sent, tries)
        self._tell(Told(outcome.date, outcome.ending.value, code_of_ending(outcome.ending), *about))

    def _tell(self, told: Told) -> None:
        is_good = told.code == ExitCode.OK
        self._without_harm("The metrics", lambda: self._write_metrics(told))
        what = "" if is_good else f"/{told.code}"
        self._without_harm("The ping", lambda: self._ping(what, _line(told, self._settings.job)))
        if not is_good:
            self._without_harm(
                "SENDONCE_ON_FAILURE",
                lambda: self._call("SENDONCE_ON_FAILURE", self._settings.on_failure, told),
            )
        elif told.ending in SENT_NOW:
            self._without_harm(
                "SENDONCE_ON_SENT", lambda: self._call("SENDONCE_ON_SENT", self._settings.on_sent, told)
            )

    def _without_harm(self, what: str, do: Callable[[], None]) -> None:
        """Do it; whatever goes wrong is a warning. Nothing here may stop a mail, or change how a run ended."""
        try:
            do()
        except Exception as fault:  # noqa: BLE001 - as it says
            self._log.warn(f"{what} went wrong: {type(fault).__name__}.")

    def _ping(self, what: str, body: str) -> None:
        if self._settings.ping_url is None:
            return
        from sendonce.adapters.ping import ping

        base, question, query = self._settings.ping_url.reveal().partition("?")
        url = f"{base.rstrip('/')}{what}?{query}{'&' if question else ''}rid={self._run_id}"
        if failed := ping(url, body):
            self._log.warn(f"The ping of SENDONCE_PING_URL{what} did not arrive: {failed}.")

    def _write_metrics(self, told: Told) -> None:
        if self._settings.metrics_file is None:
            return
        from sendonce.adapters.metrics import Metric, write_metrics

        now_s = self._clock.now().timestamp()
        is_delivered = told.ending in DELIVERED and told.code == ExitCode.OK
        metrics = [
            Metric("sendonce_last_run_timestamp_seconds", "When the last run ended.", now_s),
            Metric(
                "sendonce_last_success_timestamp_seconds",
                "When a run last ended with the day's campaign sent.",
                now_s if is_delivered else None,
            ),
            Metric("sendonce_last_exit_code", "Exit code of the last run.", told.code),
            *(
                Metric(
                    "sendonce_last_outcome",
                    "How the last run ended.",
                    float(ending.value == told.ending),
                    f',outcome="{ending.value}"',
                )
                for ending in Ending
            ),
            Metric(
                "sendonce_recipients", "Recipients of the last campaign, counted before.", told.recipients
            ),
            Metric(
                "sendonce_emails_sent", "Emails of the last campaign that Mailchimp sent.", told.emails_sent
            ),
            Metric("sendonce_tries", "Runs that the last date took so far.", told.tries),
            Metric(
                "sendonce_duration_seconds",
                "Duration of the last run.",
                self._clock.monotonic() - self._began_s,
            ),
        ]
        if failed := write_metrics(self._settings.metrics_file, self._settings.job, metrics):
            self._log.warn(f"The metrics {self._settings.metrics_file} could not be written: {failed}.")

    def _call(self, name: str, command: tuple[str, ...], told: Told) -> None:
        if not command:
            return
        from sendonce.adapters.hooks import call

        parts = {"version": 1, "job": self._settings.job, **told._asdict()}
        if failed := call(command, json.dumps(parts), self._environ):
            self._log.warn(f"{name} ({command[0]}): {failed}.")


def _line(told: Told, job: str) -> str:
    ending = "skipped (paused)" if told.ending == Ending.PAUSED else told.ending
    parts = [f"sendonce {job} {told.date}: {ending}, exit {told.code}"]
    parts += [f"campaign {told.campaign_id}"] if told.campaign_id else []
    parts += [many(told.emails_sent, "email")] if told.emails_sent is not None else []
    return ", ".join(parts)
