"""Settings: flags, environment and `.env` in, one frozen `Settings` or one report of all faults out.

`table` has every setting, `env_file` reads the `.env`, `reading` checks one value at a time, `masking` says
what of a value may be shown.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from sendonce.core.errors import SettingsWrong, WrongUsage
from sendonce.core.guards import Guards, Scope
from sendonce.core.model import Source
from sendonce.settings.env_file import EnvFile, example_env, read_env, render_env
from sendonce.settings.masking import Secret, key_fault, masked, shown
from sendonce.settings.reading import Reading, Value, zone_exists
from sendonce.settings.table import DOCS, ENV_FILE_NAME, SETTINGS, SettingDoc, settings_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sendonce.settings.state_url import StateUrl

__all__ = [
    "NEEDED_BY",
    "SETTINGS",
    "Secret",
    "SettingDoc",
    "Settings",
    "environment",
    "example_env",
    "is_address",
    "load",
    "render_env",
    "settings_table",
    "where_env_file",
    "working_folder",
    "zone_exists",
]

_JOB_FORM: Final = "[a-z0-9][a-z0-9_-]{0,39}"
_JOB_WANTED: Final = "1 to 40 of a-z, 0-9, _ and -, the first a letter or digit"
_PREFIX_FORM: Final = "[a-z]{2,4}[0-9]{1,3}"
_ID_FORM: Final = "[0-9a-f]{6,20}"
_ACCOUNT_FORM: Final = "[0-9A-Za-z]{6,40}"
_URL_FORM: Final = r"http://((?:127\.0\.0\.1|localhost|\[::1\]):([0-9]{1,5}))/3\.0"
_ADDRESS_FORM: Final = r"""[^@\s<>()"',;:\\]{1,64}@[^@\s<>()"',;:\\.]+(\.[^@\s<>()"',;:\\.]+)+"""
_STATE_FILE_FORM: Final = rf"{_JOB_FORM}\.(json|lock)(\..*)?"
_HIGHEST_PORT: Final = 65535
_LOCK_WAIT_OVER_LEASE_S: Final = 15

TEXT_OR_FILE: Final = (
    ("MAILCHIMP_API_KEY", "MAILCHIMP_API_KEY_FILE"),
    ("SENDONCE_STATE", "SENDONCE_STATE_FILE"),
)
"""Settings that may hold a secret, each with the one that names a file in its place."""

NEEDED_BY: Final[Mapping[Source, tuple[str, ...]]] = {
    Source.DRAFT: (),
    Source.REPLICATE: ("SENDONCE_REPLICATE_FROM",),
    Source.HTML: (
        "SENDONCE_LIST_ID",
        "SENDONCE_SUBJECT",
        "SENDONCE_HTML_FILE",
        "SENDONCE_FROM_NAME",
        "SENDONCE_REPLY_TO",
    ),
}


class Settings(NamedTuple):
    """All settings, checked. Texts that are not set are "". Paths are absolute, `_s` are seconds.

    `title`, `subject` and `html_file` are patterns for `core.dates.render`. `api_key`, `api_host` and
    `base_url` are None and "" only for a command that does not talk to Mailchimp. `origins` says of each
    setting that has a value where it came from; `warnings` are sentences for people.
    """

    job: str
    zone: str
    state: Path | StateUrl
    api_key: Secret | None
    server_prefix: str
    api_host: str
    base_url: str
    account_id: str
    lease_s: float
    lock_wait_s: float
    timeout_s: float
    settle_s: float
    listing_s: float
    deadline_s: float
    source: Source
    title: str
    list_id: str
    replicate_from: str
    subject: str
    html_file: str
    from_name: str
    reply_to: str
    segment_id: int | None
    preview_text: str
    guards: Guards
    recipient_guard: Scope
    skip_dates: Path | None
    is_recording_recipients: bool
    is_keeping_addresses: bool
    recipients_file: Path | None
    log_file: Path | None
    is_log_json: bool
    ping_url: Secret | None
    metrics_file: Path | None
    on_sent: tuple[str, ...]
    on_failure: tuple[str, ...]
    env_file: Path | None
    origins: Mapping[str, str]
    warnings: tuple[str, ...]


class _Access(NamedTuple):
    """How to reach Mailchimp."""

    key: Secret | None = None
    prefix: str = ""
    host: str = ""
    url: str = ""


def is_address(text: str) -> bool:
    """Whether it has the form of an email address."""
    return re.fullmatch(_ADDRESS_FORM, text) is not None


def environment() -> Mapping[str, str]:
    """Return the environment of this process, for `load`; nothing else in sendonce reads it."""
    return os.environ


def working_folder() -> Path:
    """Where a relative path of the command line starts; ".", where nothing can be, if that folder was removed."""
    try:
        return Path.cwd()
    except OSError:
        return Path()


def load(
    env_file: Path | None,
    job: str | None,
    environ: Mapping[str, str],
    cwd: Path,
    *,
    needs_mailchimp: bool = True,
    needs_state: bool = True,
) -> Settings:
    """Return settings from flags (`env_file`, `job`), the environment and the `.env`, the stronger first.

    `cwd` is where a relative `env_file` and the default `./.env` are looked for, and nothing else. Without
    `needs_mailchimp` the API key may be missing; without `needs_state` so may SENDONCE_STATE, and `state` is then
    "/", for a command that does not look at it. Raise WrongUsage if the job's name cannot be one,
    SettingsWrong with all faults if anything else cannot be used.
    """
    if job is not None and not re.fullmatch(_JOB_FORM, job):
        raise WrongUsage(f"--job {shown(job)} is not the name of a job; wanted: {_JOB_WANTED}.")
    try:
        file, looked_in = _env_file(env_file, environ, cwd)
    except SettingsWrong as error:
        raise SettingsWrong(_report([error.message]), (error.message,)) from error
    faults, warnings = list(file.faults) if file else [], list(file.warnings) if file else []
    values = _merged(_layers(file, environ, job), faults)
    unknown = sorted(n for n in environ if n.startswith("SENDONCE_") and n not in DOCS and n != ENV_FILE_NAME)
    if unknown:
        # Not a fault: Kubernetes puts SENDONCE_PORT and the like there for a service of that name.
        warnings.append(f"The environment has names that are no settings of sendonce: {', '.join(unknown)}.")
    reading = Reading(values, file.spoiled if file else frozenset(), looked_in)
    access = _access(reading, warnings, needs_mailchimp=needs_mailchimp)
    settings = _settings(reading, access, file, warnings, needs_state=needs_state)
    faults += reading.faults
    if faults:
        raise SettingsWrong(_report(faults), tuple(faults))
    return settings


def _report(faults: list[str]) -> str:
    if len(faults) == 1:
        return f"Nothing was sent: {faults[0]}"
    return "\n  ".join([f"Nothing was sent: there are {len(faults)} faults in the settings.", *faults])


def where_env_file(flag: Path | None, environ: Mapping[str, str], cwd: Path) -> Path | None:
    """Return where the `.env` is, as `load` finds it; None if there is none, or it is not named as it must be."""
    named = environ.get(ENV_FILE_NAME, "")
    if flag is not None:
        return cwd / flag
    if named.strip():
        return Path(named) if Path(named).is_absolute() else None
    return cwd / ".env" if os.path.lexists(cwd / ".env") else None


def _env_file(flag: Path | None, environ: Mapping[str, str], cwd: Path) -> tuple[EnvFile | None, str]:
    """Return the `.env` and, in words, where settings were looked for.

    Raise SettingsWrong with the fault alone, not yet a report; only the default `.env` may be missing.
    """
    named = environ.get(ENV_FILE_NAME, "")
    path = where_env_file(flag, environ, cwd)
    if path is None and named.strip():
        raise SettingsWrong(
            f"{ENV_FILE_NAME} (environment): {shown(named)} is relative; "
            "a path must be absolute when set in the environment"
        )
    if path is None:
        return None, f"the environment, and there is no {cwd / '.env'}"
    if "\0" in str(path):
        raise SettingsWrong(f"The path of the .env, {shown(str(path))}, has a NUL in it")
    return read_env(path), f"the environment or {path}"


def _layers(file: EnvFile | None, environ: Mapping[str, str], job: str | None) -> list[dict[str, Value]]:
    """Return what each source sets, the weakest first; an empty value sets nothing."""
    layers: list[dict[str, Value]] = []
    if file:
        layers.append(
            {
                name: Value(line.value, f"{file.path} line {line.number}", file.folder)
                for name, line in file.lines.items()
                if name in DOCS and line.value.strip()
            }
        )
    layers.append(
        {name: Value(environ[name], "environment") for name in DOCS if environ.get(name, "").strip()}
    )
    if job is not None:
        layers.append({"SENDONCE_JOB": Value(job, "--job")})
    return layers


def _merged(layers: list[dict[str, Value]], faults: list[str]) -> dict[str, Value]:
    merged: dict[str, Value] = {}
    for layer in layers:
        for name, file_name in TEXT_OR_FILE:
            if name in layer and file_name in layer:
                places = f"{name} ({layer[name].origin}) and {file_name} ({layer[file_name].origin})"
                faults.append(f"{places} are both set; leave one")
            # The two are one setting: a key in the environment also wins over a key file in the .env.
            if name in layer or file_name in layer:
                merged.pop(name, None)
                merged.pop(file_name, None)
        merged |= layer
    return merged


def _settings(
    reading: Reading, access: _Access, file: EnvFile | None, warnings: list[str], *, needs_state: bool
) -> Settings:
    """Read every setting once; what is wrong is in `reading.faults` afterwards."""
    source = reading.source()
    for name in NEEDED_BY[source]:
        reading.require(name, f"SENDONCE_SOURCE={source} needs it")
    lease_s = reading.seconds("SENDONCE_LEASE_SECONDS")
    lock_wait_s = reading.seconds("SENDONCE_LOCK_WAIT_SECONDS", lease_s + _LOCK_WAIT_OVER_LEASE_S)
    deadline_s = reading.seconds("SENDONCE_DEADLINE_SECONDS")
    if deadline_s <= lease_s:
        warnings.append(
            f"SENDONCE_DEADLINE_SECONDS ({deadline_s:g}) should be longer than SENDONCE_LEASE_SECONDS ({lease_s:g}): "
            "a run so short can never take over what a run on another machine or in a container left behind."
        )
    segment = reading.matching("SENDONCE_SEGMENT_ID", "[1-9][0-9]{0,11}", "the segment's number, as 12345")
    ping_url = reading.web_address("SENDONCE_PING_URL")
    account_id = reading.matching("MAILCHIMP_ACCOUNT_ID", _ACCOUNT_FORM, "the id that sendonce doctor names")
    guards, subject = _guards(reading, account_id), reading.pattern("SENDONCE_SUBJECT")
    recipient_guard = Scope(
        reading.matching("SENDONCE_RECIPIENT_GUARD", "off|job|audience", "off, job or audience") or Scope.OFF
    )
    warnings += _idle_guards(guards, recipient_guard, source, subject)
    state = _state(reading, warnings, is_needed=needs_state)
    id_wanted = "6 to 20 of 0-9 and a-f, as 1a2b3c4d5e"
    return Settings(
        job=reading.matching("SENDONCE_JOB", _JOB_FORM, _JOB_WANTED),
        zone=reading.zone(),
        state=state,
        api_key=access.key,
        server_prefix=access.prefix,
        api_host=access.host,
        base_url=access.url,
        account_id=account_id,
        lease_s=lease_s,
        lock_wait_s=lock_wait_s,
        timeout_s=reading.seconds("SENDONCE_TIMEOUT_SECONDS"),
        settle_s=reading.seconds("SENDONCE_SETTLE_SECONDS"),
        listing_s=reading.seconds("SENDONCE_LISTING_SECONDS"),
        deadline_s=deadline_s,
        source=source,
        title=reading.pattern("SENDONCE_TITLE", must_identify_date=True),
        list_id=reading.matching("SENDONCE_LIST_ID", _ID_FORM, id_wanted),
        replicate_from=reading.matching("SENDONCE_REPLICATE_FROM", _ID_FORM, id_wanted),
        subject=subject,
        html_file=reading.path_pattern("SENDONCE_HTML_FILE"),
        from_name=reading.text("SENDONCE_FROM_NAME"),
        reply_to=reading.matching("SENDONCE_REPLY_TO", _ADDRESS_FORM, "an address, as news@example.com"),
        segment_id=int(segment) if segment else None,
        preview_text=reading.text("SENDONCE_PREVIEW_TEXT"),
        guards=guards,
        recipient_guard=recipient_guard,
        skip_dates=reading.path("SENDONCE_SKIP_DATES"),
        is_recording_recipients=_is_yes(reading, "SENDONCE_RECORD_RECIPIENTS"),
        is_keeping_addresses=_is_yes(reading, "SENDONCE_KEEP_ADDRESSES"),
        recipients_file=_recipients_file(reading, state),
        log_file=reading.path("SENDONCE_LOG_FILE"),
        is_log_json=reading.matching("SENDONCE_LOG_FORMAT", "text|json", "text or json") == "json",
        ping_url=Secret(ping_url) if ping_url else None,
        metrics_file=reading.path("SENDONCE_METRICS_FILE"),
        on_sent=reading.command("SENDONCE_ON_SENT"),
        on_failure=reading.command("SENDONCE_ON_FAILURE"),
        env_file=file.path if file else None,
        origins=_origins(reading, access),
        warnings=tuple(warnings),
    )


def _recipients_file(reading: Reading, state: Path | StateUrl) -> Path | None:
    """Return where the record of recipients is to be; not in a file of lease or ledger, which it would spoil."""
    name = "SENDONCE_RECIPIENTS_FILE"
    path = reading.path(name)
    if path is None or not isinstance(state, Path) or "SENDONCE_STATE" not in reading.values:
        return path
    is_theirs = re.fullmatch(_STATE_FILE_FORM, path.name) is not None
    if is_theirs and os.path.realpath(path.parent) == os.path.realpath(state):
        reading.wrong(
            name,
            "is where a job keeps its lock or its ledger; name a file of its own, as daily.recipients.db",
        )
    return path


def _guards(reading: Reading, account_id: str) -> Guards:
    guards = Guards(
        account_id=account_id,
        window=reading.window("SENDONCE_WINDOW"),
        min_recipients=reading.number("SENDONCE_MIN_RECIPIENTS"),
        max_recipients=reading.number("SENDONCE_MAX_RECIPIENTS"),
        min_gap_h=reading.hours("SENDONCE_MIN_GAP_HOURS"),
        html_max_age_h=reading.hours("SENDONCE_HTML_MAX_AGE_HOURS"),
        checks_placeholders=_is_yes(reading, "SENDONCE_REFUSE_PLACEHOLDERS"),
        refuses_stale=_is_yes(reading, "SENDONCE_REFUSE_STALE"),
        draft_quiet_s=reading.seconds("SENDONCE_DRAFT_QUIET_SECONDS", 0) or None,
    )
    least, most = guards.min_recipients, guards.max_recipients
    if least is not None and most is not None and least > most:
        reading.wrong(
            "SENDONCE_MAX_RECIPIENTS",
            f"is less than SENDONCE_MIN_RECIPIENTS ({least}); nothing would ever be sent",
        )
    return guards


def _idle_guards(guards: Guards, scope: Scope, source: Source, subject: str) -> Iterator[str]:
    """Guards that are set and can never refuse anything: who set them counts on them."""
    if source is not Source.HTML and guards.html_max_age_h is not None:
        yield f"SENDONCE_HTML_MAX_AGE_HOURS guards nothing with SENDONCE_SOURCE={source}: it is for html."
    of_made = (
        ("SENDONCE_REFUSE_PLACEHOLDERS", guards.checks_placeholders),
        ("SENDONCE_RECIPIENT_GUARD", scope is not Scope.OFF),
    )
    for name, is_set in of_made:
        if is_set and source is Source.DRAFT:
            yield f"{name} guards nothing with SENDONCE_SOURCE=draft: it is for replicate and html."
    if guards.draft_quiet_s is not None and source is not Source.DRAFT:
        yield f"SENDONCE_DRAFT_QUIET_SECONDS guards nothing with SENDONCE_SOURCE={source}: it is for draft."
    if guards.refuses_stale and source is Source.DRAFT:
        yield "SENDONCE_REFUSE_STALE guards nothing with SENDONCE_SOURCE=draft: it is for replicate and html."
    elif guards.refuses_stale and "{date" in subject:
        yield (
            "SENDONCE_REFUSE_STALE guards nothing while SENDONCE_SUBJECT has a date in it: no two subjects are the same."
        )


def _is_yes(reading: Reading, name: str) -> bool:
    return reading.matching(name, "yes|no", "yes or no") == "yes"


def _origins(reading: Reading, access: _Access) -> dict[str, str]:
    origins = {doc.name: "default" for doc in SETTINGS if doc.default}
    origins["SENDONCE_LOCK_WAIT_SECONDS"] = "default"
    if access.prefix:
        origins["MAILCHIMP_SERVER_PREFIX"] = "suffix of the key"
    origins |= {name: value.origin for name, value in reading.values.items()}
    return {doc.name: origins[doc.name] for doc in SETTINGS if doc.name in origins}


def _state(reading: Reading, warnings: list[str], *, is_needed: bool) -> Path | StateUrl:
    """Return the folder or the URL, from its setting or its file. Nothing of a URL is shown: it may hold a password."""
    name, file_name = "SENDONCE_STATE", "SENDONCE_STATE_FILE"
    reading.take_from_file(name, file_name, warnings)
    if is_needed and file_name not in reading.values and file_name not in reading.spoiled:
        reading.require(name)
    value = reading.values.get(name)
    if (
        value is not None
        and "://" not in value.text
        and re.match(r"[a-z0-9+.-]+:|.*password\s*=", value.text)
    ):
        reading.faults.append(
            f"{name} ({value.origin}): the value looks like a URL and has no ://, or is a DSN"
        )
        return Path("/")
    if value is None or "://" not in value.text:
        return reading.path(name) or Path("/")
    from sendonce.settings.state_url import read_url  # noqa: PLC0415 - a folder needs nothing of it

    url = read_url(value.text)
    if isinstance(url, str):
        reading.faults.append(f"{name} ({value.origin}): the URL {url}")
        return Path("/")
    return url


def _access(reading: Reading, warnings: list[str], *, needs_mailchimp: bool) -> _Access:
    key = _key(reading, warnings, needs_mailchimp=needs_mailchimp)
    wanted = (
        "the data centre alone, 2 to 4 letters and a number, as us19 (from https://us19.admin.mailchimp.com)"
    )
    prefix = reading.matching("MAILCHIMP_SERVER_PREFIX", _PREFIX_FORM, wanted)
    suffix = key.reveal().rpartition("-")[2] if key else ""
    if prefix and suffix and prefix != suffix:
        # The client would take the prefix and send the key to a data centre that does not know it.
        reading.wrong("MAILCHIMP_SERVER_PREFIX", f"is not the data centre of the key, {suffix}; leave it out")
    prefix = prefix or suffix
    url = reading.matching(
        "MAILCHIMP_API_URL", _URL_FORM, "http://127.0.0.1:PORT/3.0; only this machine is allowed"
    )
    if url:
        host, port = re.findall(_URL_FORM, url)[0]
        if not 0 < int(port) <= _HIGHEST_PORT:
            reading.wrong(
                "MAILCHIMP_API_URL", f"has a port that does not exist; wanted: 1 to {_HIGHEST_PORT}"
            )
        return _Access(key, prefix, host, url)
    host = f"{prefix}.api.mailchimp.com" if prefix else ""
    return _Access(key, prefix, host, f"https://{host}/3.0" if host else "")


def _key(reading: Reading, warnings: list[str], *, needs_mailchimp: bool) -> Secret | None:
    """Return the API key, from its setting or its file; None if there is none, or none that can be used."""
    name, file_name = "MAILCHIMP_API_KEY", "MAILCHIMP_API_KEY_FILE"
    if not reading.take_from_file(name, file_name, warnings):
        return None
    if needs_mailchimp and file_name not in reading.values and file_name not in reading.spoiled:
        reading.require(name)
    if name not in reading.values:
        return None
    text = reading.values[name].text
    fault = key_fault(text)
    if fault:
        reading.wrong(name, f"({masked(text)}) {fault}")
        return None
    return Secret(text)
