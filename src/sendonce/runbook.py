"""Which section of docs/runbook.md a command's end belongs to: one table from endings, one from errors. And the page.

Of three ends the section hangs on what is said, as an `Outcome` has no other word for them: a send that is not
confirmed, of which the one wrong thing to do must be named, a guard, and a run that was cut off.
"""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sendonce.core import errors
from sendonce.core.model import Ending

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sendonce.core.model import Outcome


class Section(StrEnum):
    """The sections of the page, in their order."""

    DONE = "done"
    REFUSED = "refused"
    GUARD = "guard"
    SCHEDULED_ELSEWHEN = "scheduled-elsewhen"
    ALARM = "alarm"
    NOT_SENT = "not-sent"
    DOCTOR = "doctor"
    REFUSED_COMMAND = "refused-command"
    LEDGER_DIFFERS = "ledger-differs"
    DRILL = "drill"
    WRONG_USAGE = "wrong-usage"
    BUG = "bug"
    UNCLEAR = "unclear"
    TEMPORARY = "temporary"
    NO_ANSWER = "no-answer"
    LEASE = "lease"
    SERVER_AWAY = "server-away"
    NOT_RECORDED = "not-recorded"
    INTERRUPTED = "interrupted"
    SETTINGS = "settings"
    KEY = "key"
    STATE = "state"
    LEDGER_DAMAGED = "ledger-damaged"


UNCLEAR: Final = (
    "is not confirmed",
    "not known yet",
    "be read afterwards",
    "is on record as requested",
    "Whether it was sent for",
    "whether it left is not known",
    "own send took effect is not known",
)
"""What is said where a mail may have left: one of these anywhere, for what comes with it matters less."""
GUARD: Final = ("is not sent: ", "A run would refuse: ", "Nothing would be sent now: ")
"""How an end begins that a guard caused; before it comes at the most `Campaign ID`, no text from outside."""
CUT_OFF: Final = "This run was ended by"
"""How an end begins that a signal or the deadline brought."""
_ACCOUNT: Final = "(MAILCHIMP_ACCOUNT_ID)"

# beside the code of the branch in exits.py; a class without a line here has that of the class above it
OF_ERRORS: Final[Mapping[type[BaseException], Section]] = {
    errors.WrongUsage: Section.WRONG_USAGE,
    errors.Refused: Section.REFUSED,
    errors.Temporary: Section.TEMPORARY,
    errors.LeaseBusy: Section.LEASE,
    errors.ClaimLost: Section.LEASE,
    errors.NoAnswer: Section.NO_ANSWER,
    errors.StoreDown: Section.SERVER_AWAY,
    errors.NotRecorded: Section.NOT_RECORDED,
    errors.Unusable: Section.DRILL,  # what demo and drill are played on; all others have a class of their own
    errors.SettingsWrong: Section.SETTINGS,
    errors.CredentialsRejected: Section.KEY,
    errors.StateUnusable: Section.STATE,
    errors.LedgerDamaged: Section.LEDGER_DAMAGED,
    errors.InvariantBroken: Section.BUG,
    errors.Stopped: Section.INTERRUPTED,
    KeyboardInterrupt: Section.INTERRUPTED,
}
OF_COMMANDS: Final[Mapping[str, Section]] = {
    "check": Section.NOT_SENT,
    "doctor": Section.DOCTOR,
    "ledger verify": Section.LEDGER_DIFFERS,
    "demo": Section.DRILL,
    "drill": Section.DRILL,
}
"""Commands whose own "no" is neither an error nor a run's end."""
_OF_ENDINGS: Final[Mapping[Ending, Section]] = {
    Ending.REFUSED: Section.REFUSED,
    Ending.SCHEDULED_ELSEWHEN: Section.SCHEDULED_ELSEWHEN,
    Ending.ALARM: Section.ALARM,
    Ending.TEMPORARY: Section.TEMPORARY,
    Ending.WAITING: Section.GUARD,
}
"""Every ending whose exit code (exits.py) is not 0; a test holds the two together."""
RUNS: Final = frozenset({"send-batch", "check", "explain"})


def of_ending(ending: Ending) -> Section:
    """The section of a run's end as such."""
    return _OF_ENDINGS.get(ending, Section.DONE)


def of_outcome(command: str, outcome: Outcome) -> Section:
    """The section of how a run, or a look at one, ended."""
    section = of_ending(outcome.ending)
    if section not in {Section.REFUSED, Section.TEMPORARY, Section.SCHEDULED_ELSEWHEN}:
        return section
    if command == "check" and section is not Section.SCHEDULED_ELSEWHEN:
        return Section.NOT_SENT
    return _of_message(outcome.message) or section


def of_error(command: str, error: BaseException, message: str) -> Section:
    """The section of a command that ended with `error`; whatever is not in the tree is a bug."""
    section = next((OF_ERRORS[kind] for kind in type(error).__mro__ if kind in OF_ERRORS), Section.BUG)
    if section is not Section.REFUSED:
        return section
    return _of_message(message) or (Section.REFUSED if command in RUNS else Section.REFUSED_COMMAND)


def _of_message(message: str) -> Section | None:
    if any(said in message for said in UNCLEAR):
        return Section.UNCLEAR
    if message.startswith(CUT_OFF):
        return Section.INTERRUPTED
    begin = re.match(r"(?:Campaign \w+ )?(?:" + "|".join(map(re.escape, GUARD)) + ")", message)
    return Section.GUARD if begin or _ACCOUNT in message else None


def line(section: Section) -> str:
    """What ends a message that needs somebody."""
    return f"What to do: sendonce runbook {section}"


def page() -> str:
    """The whole page, as Markdown."""
    shipped = Path(__file__).with_name("runbook.md")
    return (shipped if shipped.exists() else _source()).read_text(encoding="utf-8")


def _source() -> Path:
    """Where it is in a clone, of which this package is the one that runs."""
    return Path(__file__).parents[2] / "docs" / "runbook.md"


def sections() -> dict[str, str]:
    """Each section by its name, as Markdown with its heading."""
    parts = re.split(r"(?m)^(?=## )", page())[1:]
    return {part.partition("\n")[0].removeprefix("## "): part.strip() + "\n" for part in parts}


def plain(text: str) -> str:
    """Markdown as text: the page is written so that little is left to do."""
    text = re.sub(r"(?m)^#+ (.*)$", lambda found: f"{found[1]}\n{'-' * len(found[1])}", text)
    return text.replace("**", "")
