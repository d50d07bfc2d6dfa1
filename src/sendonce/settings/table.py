"""Every setting there is: the one table behind the defaults, the README and `.env.example`."""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class SettingDoc(NamedTuple):
    """One setting. `meaning` is Markdown; `limits` are seconds, lowest and highest.

    `derived_default` says in words how the default follows from other settings, where it does.
    """

    name: str
    meaning: str
    default: str = ""
    derived_default: str = ""
    limits: tuple[int, int] | None = None
    example: str = ""
    is_required: bool = False
    is_secret: bool = False

    @property
    def default_text(self) -> str:
        """Say the default as the README says it."""
        text = self.derived_default or "–"
        if self.is_required:
            text = "required"
        elif self.default:
            text = self.default if self.limits else f"`{self.default}`"
        return f"{text} ({self.limits[0]}–{self.limits[1]})" if self.limits else text

    @property
    def plain_meaning(self) -> str:
        """Say the meaning without Markdown, for messages and `.env.example`."""
        return re.sub(r"\[([^]]*)\]\(([^)]*)\)", r"\2", self.meaning).replace("`", "")


SETTINGS: Final[tuple[SettingDoc, ...]] = (
    SettingDoc(
        "MAILCHIMP_API_KEY",
        "the API key: 20 to 64 letters and digits, a hyphen and the data centre, as `us19`; "
        "or `MAILCHIMP_API_KEY_FILE`",
        is_required=True,
        is_secret=True,
    ),
    SettingDoc(
        "MAILCHIMP_API_KEY_FILE",
        "a file that holds the API key instead (one trailing newline is dropped)",
        example="/etc/sendonce/mailchimp.key",
    ),
    SettingDoc(
        "MAILCHIMP_SERVER_PREFIX",
        "the data centre, e.g. `us19`; one that is not the key's is an error",
        derived_default="suffix of the key",
        example="us19",
    ),
    SettingDoc(
        "MAILCHIMP_API_URL",
        "another base URL, on this machine only (the sandbox, tests): `http://127.0.0.1:PORT/3.0`",
        example="http://127.0.0.1:8025/3.0",
    ),
    SettingDoc(
        "MAILCHIMP_ACCOUNT_ID",
        "guard: the account that the key must belong to, as `sendonce doctor` names it",
        example="8d3a3db4d97663a9074efcc16",
    ),
    SettingDoc(
        "SENDONCE_JOB",
        "the name of this daily mailing: 1 to 40 of `a-z`, `0-9`, `_` and `-`; "
        "one `.env` file for each job, and one ledger",
        default="daily",
    ),
    SettingDoc(
        "SENDONCE_TIMEZONE",
        "an IANA name, as `Europe/Berlin`; decides what “today” is",
        is_required=True,
        example="Europe/Berlin",
    ),
    SettingDoc(
        "SENDONCE_STATE",
        "the folder of the ledger and the lock; it must exist (`sendonce init` creates it). For several servers "
        "the URL of a Redis or a database ([docs](docs/several-servers.md)); or `SENDONCE_STATE_FILE`",
        is_required=True,
        example="/var/lib/sendonce",
    ),
    SettingDoc(
        "SENDONCE_STATE_FILE",
        "a file that holds such a URL instead (one trailing newline is dropped)",
        example="/etc/sendonce/state.url",
    ),
    SettingDoc(
        "SENDONCE_LEASE_SECONDS",
        "after so long without renewal another run may take over",
        default="60",
        limits=(3, 300),
    ),
    SettingDoc(
        "SENDONCE_LOCK_WAIT_SECONDS",
        "how long to wait for another run",
        derived_default="lease + 15",
        limits=(0, 3600),
        example="75",
    ),
    SettingDoc(
        "SENDONCE_TIMEOUT_SECONDS",
        "longest wait for an answer (Mailchimp itself stops at 120)",
        default="130",
        limits=(1, 600),
    ),
    SettingDoc(
        "SENDONCE_SETTLE_SECONDS",
        "how long a campaign must still be a draft after an unclear send before a later run "
        "sends that same one again",
        default="180",
        limits=(1, 3600),
    ),
    SettingDoc(
        "SENDONCE_LISTING_SECONDS",
        "`replicate` and `html`: how old a created draft must be before it is sent, "
        "so that every listing shows it",
        default="30",
        limits=(0, 600),
    ),
    SettingDoc(
        "SENDONCE_DEADLINE_SECONDS",
        "a run is over after that, whatever happens",
        default="540",
        limits=(5, 86400),
    ),
    SettingDoc(
        "SENDONCE_SOURCE",
        "where the day's campaign comes from: `draft` (a person makes it), `replicate` (a copy of "
        "another campaign) or `html` (a file)",
        default="draft",
    ),
    SettingDoc(
        "SENDONCE_TITLE",
        "the day's campaign is the one with this title; `{date}`, `{date:%d %B %Y}`, `{job}` and nothing "
        "else; must identify the date",
        default="{job} {date}",
    ),
    SettingDoc(
        "SENDONCE_LIST_ID",
        "the audience's id; required for `html`, checked for the others when set",
        example="a1b2c3d4e5",
    ),
    SettingDoc(
        "SENDONCE_REPLICATE_FROM", "`replicate`: the id of the campaign to copy", example="1a2b3c4d5e"
    ),
    SettingDoc(
        "SENDONCE_SUBJECT",
        "the subject line, a pattern like the title; required for `html`, optional for `replicate`",
        example="News of {date:%d %B %Y}",
    ),
    SettingDoc(
        "SENDONCE_HTML_FILE", "`html`: path of the day's file, a pattern", example="content/{date}.html"
    ),
    SettingDoc("SENDONCE_FROM_NAME", "`html`: the sender's name", example="The Daily"),
    SettingDoc("SENDONCE_REPLY_TO", "`html`: the address that answers go to", example="news@example.com"),
    SettingDoc(
        "SENDONCE_SEGMENT_ID", "`html`, optional: the number of a segment of the audience", example="12345"
    ),
    SettingDoc("SENDONCE_PREVIEW_TEXT", "`html`, optional: the preview text", example="What happened today"),
    SettingDoc("SENDONCE_MIN_RECIPIENTS", "guard: to fewer nothing is sent", example="100"),
    SettingDoc("SENDONCE_MAX_RECIPIENTS", "guard: to more nothing is sent", example="20000"),
    SettingDoc(
        "SENDONCE_MIN_GAP_HOURS",
        "guard: nothing is sent to an audience that got *any* campaign so few hours ago, whoever sent it",
        example="12",
    ),
    SettingDoc(
        "SENDONCE_WINDOW", "guard: from when to when of the day something may be sent", example="07:00-11:30"
    ),
    SettingDoc("SENDONCE_HTML_MAX_AGE_HOURS", "guard, `html`: an older file is not sent", example="20"),
    SettingDoc(
        "SENDONCE_REFUSE_PLACEHOLDERS",
        "guard, `replicate` and `html`: with `yes`, no subject or content with `TODO`, `{{`, `{date` or the like in it",
        example="yes",
    ),
    SettingDoc(
        "SENDONCE_RECIPIENT_GUARD",
        "guard, `replicate` and `html`: the day's campaign leaves out everybody who was sent another campaign of the same "
        "date, of this `job` or to this `audience`",
        default="off",
        example="audience",
    ),
    SettingDoc(
        "SENDONCE_REFUSE_STALE",
        "guard, `replicate` and `html`: with `yes`, no campaign whose subject and content are those of the one mailed last",
        example="yes",
    ),
    SettingDoc(
        "SENDONCE_DRAFT_QUIET_SECONDS",
        "guard, `draft`: the draft is sent once nobody has changed it for so long",
        limits=(1, 86400),
        example="900",
    ),
    SettingDoc(
        "SENDONCE_SKIP_DATES",
        "a file of dates that are not mailed, one on each line (`2026-12-25 Christmas`, `2026-12-24..2026-12-26`), "
        "or an iCalendar (`pip install 'sendonce[ical]'`)",
        example="holidays.txt",
    ),
    SettingDoc(
        "SENDONCE_RECORD_RECIPIENTS",
        "with `yes`, `send-batch --wait` also records who got the campaign ([docs](docs/recipients.md))",
        default="no",
    ),
    SettingDoc(
        "SENDONCE_KEEP_ADDRESSES",
        "with `yes`, the record of recipients holds their addresses, too, and not only Mailchimp's `email_id`",
        default="no",
    ),
    SettingDoc(
        "SENDONCE_RECIPIENTS_FILE",
        "the file of the record of recipients; needed where `SENDONCE_STATE` is a Redis",
        derived_default="in the state folder or database",
        example="/var/lib/sendonce/daily.recipients.db",
    ),
    SettingDoc(
        "SENDONCE_LOG_FILE",
        "append one line per event to this file; a log that cannot be written is a warning",
        example="/var/log/sendonce.log",
    ),
    SettingDoc(
        "SENDONCE_LOG_FORMAT", "lines of the log as `text`, or one JSON object each (`json`)", default="text"
    ),
    SettingDoc(
        "SENDONCE_PING_URL",
        "a ping URL of healthchecks.io or its like: told of the start, of success, and of every other exit code",
        example="https://hc-ping.com/00000000-0000-0000-0000-000000000000",
        is_secret=True,
    ),
    SettingDoc(
        "SENDONCE_METRICS_FILE",
        "metrics for Prometheus' textfile collector, written after every run",
        example="/var/lib/prometheus/node-exporter/sendonce-daily.prom",
    ),
    SettingDoc(
        "SENDONCE_ON_SENT",
        "a command for when the day's campaign was sent; no shell; it gets the outcome as JSON on standard input",
        example="/usr/local/bin/tell-the-editors",
        is_secret=True,
    ),
    SettingDoc(
        "SENDONCE_ON_FAILURE",
        "a command for every other end but 0; as above",
        example="/usr/local/bin/call-somebody --urgent",
        is_secret=True,
    ),
)

DOCS: Final[dict[str, SettingDoc]] = {doc.name: doc for doc in SETTINGS}

# Names where the .env is, so it can stand anywhere but in there.
ENV_FILE_NAME: Final = "SENDONCE_ENV_FILE"


def settings_table() -> str:
    """Return all settings as a Markdown table, for the README."""
    rows = [f"| `{doc.name}` | {doc.default_text} | {doc.meaning} |" for doc in SETTINGS]
    return "\n".join(["| setting | default | meaning |", "|---|---|---|", *rows]) + "\n"
