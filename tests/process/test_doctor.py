"""`doctor` over the real command: each broken set-up has just its fault named, and what is in order has none."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from support import servers
from support.runs import Desk, Ended
from support.sandbox import API_KEY, LIST_ID

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import date
    from pathlib import Path

    from support.ordinary_desk import OrdinaryDesk
    from support.sandbox import Sandbox

# one with a change of clocks in which it is not near midnight: the day must not end while a test runs
ZONE = next(z for z in ("Europe/Berlin", "America/New_York") if 2 <= datetime.now(ZoneInfo(z)).hour < 22)
ENV = "/etc/sendonce/.env"
COMMAND = f"/opt/sendonce/bin/sendonce --env-file {ENV} -q send-batch"
LINE = f"*/10 8-11 * * * root {COMMAND}\n"
KEY = "fedcba9876543210fedcba9876543210-us1"


class Setup:
    """A machine below a folder, with one job in order: the draft of today is released, cron starts it."""

    def __init__(self, root: Path, sandbox: Sandbox, source: str = "draft", **settings: str) -> None:
        self.root, self.sandbox = root, sandbox
        for folder in ("etc/cron.d", "opt/sendonce/bin", "proc/self", "var/spool/cron/crontabs"):
            (root / folder).mkdir(parents=True)
        (root / "opt/sendonce/bin/sendonce").touch()
        (root / "etc/localtime").symlink_to(f"/usr/share/zoneinfo/{ZONE}")
        (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\nann:x:7:7::/home/ann:/bin/sh\n")
        self.mount("ext4")
        self.state = root / "var/lib/sendonce"
        self.state.mkdir(mode=0o700, parents=True)
        settings = {"SENDONCE_TIMEZONE": ZONE, "SENDONCE_STATE": str(self.state), **settings}
        self.desk = Desk(root / "etc/sendonce", sandbox, source, **settings)
        self.today = datetime.now(ZoneInfo(ZONE)).date()
        self.cron(LINE)
        if source == "draft":
            self.draft = self.release(self.today)

    def cron(self, text: str, name: str = "etc/cron.d/sendonce") -> None:
        """Put a crontab in place of the other."""
        (self.root / name).write_bytes(text.encode())

    def user_cron(self, text: str) -> None:
        """Have the crontab of root start the job, and nothing else."""
        self.cron("")
        self.cron(text, "var/spool/cron/crontabs/root")

    def mount(self, kind: str) -> None:
        """Say what kind of file system all of it lies on."""
        (self.root / "proc/self/mountinfo").write_text(
            f"21 1 8:1 / / rw,noatime shared:1 - {kind} /dev/x rw\n"
        )

    def release(self, day: date, **fields: object) -> str:
        """Give a campaign the title of a day."""
        return self.sandbox.add_draft(f"Digest {day}", **{"list_id": LIST_ID, **fields})

    def doctor(self, *arguments: str) -> Ended:
        """What the command says."""
        return self.desk.run("doctor", "--root", str(self.root), *arguments)

    def findings(self) -> list[dict[str, Any]]:
        """All findings; the exit code must be what they say."""
        ended = self.doctor("--json")
        document = json.loads(ended.out)
        findings: list[dict[str, Any]] = document["findings"]
        assert ended.err == ""
        assert (document["version"], document["command"], document["exit"]) == (1, "doctor", ended.code)
        assert ended.code == (0 if all(f["is_ok"] for f in findings) else 1)
        return findings


def change(**changes: str | None) -> Callable[[Setup], None]:
    return lambda it: it.desk.write_env(**changes)


def cron(text: str) -> Callable[[Setup], None]:
    return lambda it: it.user_cron(text)


def mailchimp(**settings: object) -> Callable[[Setup], object]:
    return lambda it: it.sandbox.settings(**settings)


def edit(**fields: object) -> Callable[[Setup], object]:
    return lambda it: it.sandbox.edit(it.draft, **fields)


def nobody_in_the_audience(it: Setup) -> None:
    it.desk.write_env(SENDONCE_LIST_ID=it.sandbox.add_audience(0))


def twin(it: Setup) -> None:
    it.release(it.today)


def no_draft(it: Setup) -> None:
    it.sandbox.delete(it.draft)


def no_html_file(it: Setup) -> None:
    (it.desk.folder / "day.html").unlink()


def html_for_today_only(it: Setup) -> None:
    it.desk.write_env(SENDONCE_HTML_FILE="{date}.html")
    shutil.copy(it.desk.folder / "day.html", it.desk.folder / f"{it.today}.html")


def unready_tomorrow(it: Setup) -> None:
    it.release(it.today + timedelta(days=1), settings={"subject_line": ""})


def odd_holidays(it: Setup) -> None:
    (it.desk.folder / "holidays.txt").write_text("the 25th of December\n")
    it.desk.write_env(SENDONCE_SKIP_DATES="holidays.txt")


def no_campaign_to_copy(it: Setup) -> None:
    it.sandbox.delete(it.desk.values["SENDONCE_REPLICATE_FROM"])


def scheduled_for_another_day(it: Setup) -> None:
    it.sandbox.edit(
        it.draft, status="schedule", send_time=(datetime.now(UTC) + timedelta(days=3)).isoformat()
    )


def draft_of_a_past_day(it: Setup) -> None:
    it.release(it.today - timedelta(days=5))


def draft_of_a_sent_day(it: Setup) -> None:
    it.sandbox.edit(it.draft, status="sent", delivered=5, emails_sent=5)
    it.release(it.today)


def no_state_folder(it: Setup) -> None:
    it.state.rmdir()


def open_state_folder(it: Setup) -> None:
    it.state.chmod(0o750)


def state_below_tmp(it: Setup) -> None:
    folder = it.root / "tmp/state"
    folder.mkdir(mode=0o700, parents=True)
    it.desk.write_env(SENDONCE_STATE=str(folder))


def sent_with_backup(it: Setup) -> None:
    assert it.desk.run("send-batch").code == 0
    assert (it.state / "daily.json.bak").exists()


def damaged_ledger(it: Setup) -> None:
    (it.state / "daily.json").write_bytes(b"\0" * 40)


def ledger_of_another_api(it: Setup) -> None:
    sent_with_backup(it)
    ledger = it.state / "daily.json"
    ledger.write_text(ledger.read_text().replace(it.sandbox.url.split("/")[2], "us19.api.mailchimp.com"))


def damaged_backup(it: Setup) -> None:
    sent_with_backup(it)
    (it.state / "daily.json.bak").write_text('{"version": 1')


def open_record(it: Setup) -> None:
    (it.state / "daily.recipients.db").touch()
    (it.state / "daily.recipients.db").chmod(0o644)


def empty_lock(it: Setup) -> None:
    (it.state / "daily.lock").touch()


def folder_for_lock(it: Setup) -> None:
    (it.state / "daily.lock").mkdir()


def old_key(it: Setup) -> None:
    file = it.desk.folder / "key"
    file.touch(mode=0o600)
    file.write_text(it.desk.values["MAILCHIMP_API_KEY"])
    before_keys_expired = datetime(2026, 1, 5, tzinfo=UTC).timestamp()
    os.utime(file, (before_keys_expired, before_keys_expired))
    it.desk.write_env(MAILCHIMP_API_KEY=None, MAILCHIMP_API_KEY_FILE=str(file))


def env_mode(mode: int) -> Callable[[Setup], None]:
    return lambda it: it.desk.env_file.chmod(mode)


def broken_line(it: Setup) -> None:
    it.desk.env_file.write_text(f"{it.desk.env_file.read_text()}SENDONCE_TITEL=x\n")


def folder_for_crontab(it: Setup) -> None:
    (it.root / "etc/crontab").mkdir()


def other_zone_of_cron(it: Setup) -> None:
    (it.root / "etc/localtime").unlink()
    (it.root / "etc/timezone").write_text("Asia/Tokyo\n")


def dot_in_name(it: Setup) -> None:
    (it.root / "etc/cron.d/sendonce").rename(it.root / "etc/cron.d/sendonce.cron")


def two_users(it: Setup) -> None:
    it.cron(f"*/10 8-11 * * * {COMMAND}\n", "var/spool/cron/crontabs/ann")


def script(it: Setup) -> None:
    it.user_cron("*/10 8-11 * * * /usr/local/bin/mail.sh\n")
    (it.root / "usr/local/bin").mkdir(parents=True)
    (it.root / "usr/local/bin/mail.sh").write_text(f"#!/bin/sh\n# the day's mail\n{COMMAND}\n")


def timer_asleep(it: Setup) -> None:
    it.cron("")
    timer(it, is_enabled=False)


def timer(it: Setup, *, is_enabled: bool = True) -> None:
    (it.root / "etc/cron.d/sendonce").unlink()
    folder = it.root / "etc/systemd/system"
    (folder / "timers.target.wants").mkdir(parents=True)
    (folder / "sendonce.service").write_text(f"[Service]\nExecStart={COMMAND}\n")
    (folder / "sendonce.timer").write_text("[Timer]\nOnCalendar=*-*-* 08..11:00/10\n")
    if is_enabled:
        (folder / "timers.target.wants/sendonce.timer").symlink_to("/etc/systemd/system/sendonce.timer")


def mailchimp_down(it: Setup) -> None:
    it.sandbox.faults("root=503empty")


BROKEN: dict[str, tuple[str, Callable[[Setup], object], set[str], str, str]] = {
    # name: source, what is done to it, findings that are not in order, words of the fact, words of the remedy
    "a key that is not accepted": ("draft", mailchimp(api_key=KEY), {"key"}, "does not accept the API key from", "Put a key that works"),
    "a key that may not send": ("draft", mailchimp(role="viewer"), {"role"}, "role viewer", "manager, admin or owner"),
    "a key of another account": ("draft", change(MAILCHIMP_ACCOUNT_ID="ffffffff"), {"account"}, "belongs to account 5a4db0c5", "the right account"),
    "a wrong clock": ("draft", mailchimp(clock_offset_s=-300), {"clock"}, "s ahead of Mailchimp's", "timedatectl"),
    "Mailchimp not answering": ("draft", mailchimp_down, {"mailchimp"}, "HTTP 503", "status.mailchimp.com"),
    "an audience that is not there": ("draft", change(SENDONCE_LIST_ID="abcdef1234"), {"audience"}, "no audience abcdef1234", "SENDONCE_LIST_ID"),
    "an audience of nobody": ("html", nobody_in_the_audience, {"audience-empty"}, "Nobody is in", "that is meant"),
    "no draft yet": ("draft", no_draft, {"draft-missing"}, "no campaign named", "Give the finished campaign that name"),
    "two drafts of one name": ("draft", twin, {"today"}, "Several drafts are named", "a run would refuse"),
    "a draft without subject": ("draft", edit(settings={"subject_line": ""}), {"checklist"}, "is not ready in Mailchimp: Subject", "Put that right in Mailchimp"),
    "a paused campaign": ("draft", edit(status="paused"), {"today"}, 'is "paused"', "Put that right"),
    "a campaign scheduled for another day": ("draft", scheduled_for_another_day, {"today"}, "is scheduled in Mailchimp for", "Mend the schedule"),
    "a mail to nobody": ("draft", edit(status="sent", emails_sent=0), {"today"}, "0 emails", "look at its audience"),
    "a campaign of a kind that is not sent": ("draft", edit(type="rss"), {"today"}, 'of type "rss"', "Put that right"),
    "no HTML file": ("html", no_html_file, {"source", "next-days"}, "day.html cannot be read", "before the first try"),
    "no HTML file for tomorrow": ("html", html_for_today_only, {"next-days"}, ".html cannot be read", "before the first try"),
    "a draft of tomorrow without subject": ("draft", unready_tomorrow, {"next-days"}, "is not ready in Mailchimp", "Put that right"),
    "a file of holidays that cannot be read": ("draft", odd_holidays, {"skip-dates"}, "holidays.txt", "Put it right"),
    "nothing to copy": ("replicate", no_campaign_to_copy, {"source"}, "is not in Mailchimp", "before the first try"),
    "a draft of a past day": ("draft", draft_of_a_past_day, {"leftover"}, "is past", "delete it in Mailchimp"),
    "a draft of a day that was sent": ("draft", draft_of_a_sent_day, {"leftover"}, "was sent", "delete it in Mailchimp"),
    "no state folder": ("draft", no_state_folder, {"state"}, "/var/lib/sendonce cannot be used: No such file", "Mount it"),
    "a state folder open to others": ("draft", open_state_folder, {"state-mode"}, "mode 0750", "chmod 700 /var/lib/sendonce"),
    "a state folder on NFS": ("draft", lambda it: it.mount("nfs4"), {"state-remote"}, "is on nfs4", "Use a local disk"),
    "a state folder on FUSE": ("draft", lambda it: it.mount("fuse.sshfs"), {"state-remote"}, "is on fuse.sshfs", "Use a local disk"),
    "a state folder in a container": ("draft", lambda it: it.mount("overlay"), {"state-container"}, "the container's own layer", "Mount a volume"),
    "a state folder in memory": ("draft", lambda it: it.mount("tmpfs"), {"state-temporary"}, "is emptied (tmpfs)", "one that lasts"),
    "a state folder below /tmp": ("draft", state_below_tmp, {"state-temporary"}, "emptied (/tmp", "one that lasts"),
    "a damaged ledger": ("draft", damaged_ledger, {"ledger"}, "(40 bytes) is damaged", "sendonce ledger rebuild"),
    "the ledger of another API host": ("draft", ledger_of_another_api, {"ledger"}, "is the memory of us19", "Do what that says"),
    "a damaged backup": ("draft", damaged_backup, {"backup"}, "daily.json.bak cannot be read", "Remove it"),
    "a record of recipients open to others": ("draft", open_record, {"recipients"}, "mode 0644", "Do what that says"),
    "an empty lock": ("draft", empty_lock, {"lease"}, "no owner is recorded", "lock status"),
    "a folder for a lock": ("draft", folder_for_lock, {"lock"}, "is a folder, where the lock file", "Do what that says"),
    "a server that is not there": ("draft", change(SENDONCE_STATE="sqlite:////nowhere/x.db"), {"server"}, "does not exist", "wait until the server is back"),
    "an .env that others may read": ("draft", env_mode(0o644), {"env-rights"}, "mode 0644", "chmod 600"),
    "an .env that others may write": ("draft", env_mode(0o666), {"env-rights"}, "can be written by others", "Put it right"),
    "a misspelt setting": ("draft", broken_line, {"settings"}, "is SENDONCE_TITLE meant?", "Put it right"),
    "a time zone that does not exist": ("draft", change(SENDONCE_TIMEZONE="Europe/Bärlin"), {"settings"}, "is no time zone", "Put it right"),
    "cron in another zone": ("draft", other_zone_of_cron, {"zone"}, "cron's is Asia/Tokyo", "those of Asia/Tokyo"),
    "a command that is no program": ("draft", change(SENDONCE_ON_FAILURE="/nowhere/tell --all"), {"command"}, "SENDONCE_ON_FAILURE begins with /nowhere/tell", "chmod +x"),
    "a command that is not executable": ("draft", change(SENDONCE_ON_SENT="/etc/passwd"), {"command"}, "/etc/passwd, which is no file that can be executed", "chmod +x"),
    "metrics in a folder that is not there": ("draft", change(SENDONCE_METRICS_FILE="/nowhere/x.prom"), {"file"}, "there is no folder /nowhere", "Make the folder"),
    "a folder for a log": ("draft", change(SENDONCE_LOG_FILE="/etc"), {"file"}, "SENDONCE_LOG_FILE, /etc, cannot be written: it ", "Make the folder"),
    "a setting in the crontab": ("draft", cron(LINE.replace("root ", "").join(("SENDONCE_WINDOW=07:00-12:00\n", ""))), {"crontab-settings"}, "SENDONCE_WINDOW set above it", "into the .env"),
    "a shell that is not there": ("draft", cron(LINE.replace("root ", "").join(("SHELL=/bin/fish\n", ""))), {"crontab-shell"}, "SHELL=/bin/fish", "Take it out"),
    "a quote that is not closed": ("draft", cron(f"*/10 8-11 * * * '{COMMAND}\n"), {"crontab-quote"}, "is not closed", "Close it"),
    "no line": ("draft", cron(""), {"crontab-none"}, "No crontab line", "Put in one line"),
    "two lines": ("draft", lambda it: it.cron(LINE * 2), {"crontab-duplicate"}, "2 lines start this job: /etc/cron.d/sendonce line 1", "Leave one"),
    "two users": ("draft", two_users, {"crontab-two-users"}, "(as ann)", "Leave the line of the user"),
    "a percent sign": ("draft", cron(f"*/10 8-11 * * * {COMMAND} --date $(date +%F)\n"), {"crontab-percent"}, "line 1: to cron a % ends", "Write \\%"),
    "no newline at the end": ("draft", cron(f"*/10 8-11 * * * {COMMAND}"), {"crontab-newline"}, "does not end with a newline", "empty line"),
    "a user where none belongs": ("draft", cron(LINE), {"crontab-user-column"}, '"root" stands before', 'Take out "root"'),
    "no user where one belongs": ("draft", lambda it: it.cron(f"*/10 8-11 * * * {COMMAND}\n"), {"crontab-no-user"}, "the user is missing", "after the fifth field"),
    "a relative path": ("draft", cron(f"*/10 8-11 * * * bin/sendonce --env-file {ENV} send-batch\n"), {"crontab-relative"}, "is a relative path", "whole path"),
    "a command that is not there": ("draft", cron(LINE.replace("root /opt", "/old")), {"crontab-command"}, "there is no /old/sendonce/bin/sendonce", "that is installed"),
    "output thrown away": ("draft", cron(f'MAILTO=""\n*/10 8-11 * * * {COMMAND} >/dev/null 2>&1\n'), {"crontab-silenced"}, "line 2", "Set MAILTO"),
    "an hour that is skipped": ("draft", cron(f"*/10 2 * * * {COMMAND}\n"), {"crontab-clock-change"}, "02:00 does not exist on", "Choose hours"),
    "one try a day": ("draft", cron(f"0 9 * * * {COMMAND}\n"), {"crontab-one-try"}, "one try a day only", "try several times"),
    "a line that cron cannot read": ("draft", cron(f"*/10 8-31 * * * {COMMAND}\n"), {"crontab-syntax", "crontab-none"}, "cannot read this sendonce line (bad hour)", "Write minute, hour"),
    "a file that cron leaves out": ("draft", dot_in_name, {"crontab-left-out", "crontab-none"}, "/etc/cron.d/sendonce.cron", "Rename it"),
    "a crontab that cannot be read": ("draft", folder_for_crontab, {"crontab-unread"}, "/etc/crontab could not be looked at", "As root"),
    "a timer that is not enabled": ("draft", timer_asleep, {"timer-disabled"}, "is not enabled", "systemctl enable --now sendonce.timer"),
}  # fmt: skip
NOTES = {
    *("draft-missing", "next-days", "lease", "zone", "crontab-one-try", "crontab-unread", "crontab-settings"),
}


STOPPED = {
    *("crontab-newline", "crontab-user-column", "crontab-no-user", "crontab-quote", "crontab-command"),
    *("crontab-relative", "crontab-shell", "crontab-percent"),
}
"""Of a line with one of these it is not said that it starts the job."""


def test_there_are_enough_broken_set_ups() -> None:
    assert len(BROKEN) >= 25


def test_a_record_of_recipients_is_named_where_there_is_one(tmp_path: Path, sandbox: Sandbox) -> None:
    it = Setup(tmp_path / "root", sandbox)
    assert "recipients" not in {finding["id"] for finding in it.findings()}
    assert it.desk.run("send-batch").code == 0
    assert it.desk.run("recipients", "sync").code == 0
    [found] = [finding for finding in it.findings() if finding["id"] == "recipients"]
    assert (found["level"], found["fact"]) == ("ok", "Who got 1 campaign is on record.")


@pytest.mark.parametrize("name", BROKEN)
def test_of_a_broken_set_up_just_the_fault_is_named(name: str, tmp_path: Path, sandbox: Sandbox) -> None:
    source, break_it, expected, fact, remedy = BROKEN[name]
    it = Setup(tmp_path / "root", sandbox, source)
    break_it(it)
    wrong = [f for f in it.findings() if f["level"] != "ok"]
    assert {f["id"] for f in wrong} == expected, wrong
    assert {f["id"] for f in wrong if f["is_ok"]} == expected & NOTES
    keeps_it_from_starting = expected & STOPPED
    assert keeps_it_from_starting == set() or "crontab" not in {f["id"] for f in it.findings()}
    told = next(f for f in wrong if fact in f["fact"])
    assert remedy in told["remedy"]
    assert API_KEY[:20] not in json.dumps(wrong)


@pytest.mark.parametrize(
    ("command", "expected", "said"),
    [
        (f"{COMMAND} --dry-run", "fault", "--dry-run only says what a run would do"),
        (f"{COMMAND} --date 2026-01-05", "fault", "--date 2026-01-05 is the same date every day"),
        (f"{COMMAND} --date=2026-01-05", "fault", "--date 2026-01-05 is the same date every day"),
        (f"{COMMAND} --test-to ops@example.com", "fault", "--test-to sends a test mail"),
        (f"{COMMAND} --early", "fault", "--early is for a date in the future"),
        (f"{COMMAND} --date today --remaining --reason x", "fault", "--remaining is an order"),
        (f"{COMMAND} --date today --again --reason x", "fault", "--again is an order"),
        (f"{COMMAND} --dryrun", "fault", "--dryrun"),
        (f"{COMMAND} now", "fault", "Got unexpected extra argument (now)"),
        (f"{COMMAND} --date", "fault", "Option '--date' requires an argument"),
        (f"{COMMAND} --help", "fault", "--help only prints the help"),
        (COMMAND.replace("-q", "--version"), "fault", "--version only prints the version"),
        (f"{COMMAND} --override gap", "fault", "--override needs --reason"),
        (f"{COMMAND} --override gap --reason x", "note", "--override gap has every run pass"),
        (f"{COMMAND} --outside-window", "note", "--outside-window has every run pass"),
        (f"sh -c '{COMMAND} --dry-run'", "fault", "--dry-run only says"),
        (f"{COMMAND} --dry-run && {COMMAND}", "", ""),
        (f"{COMMAND} --date yesterday --wait -v --json", "", ""),
        (f"{COMMAND} --date `date +\\%F` $MORE # not --dry-run", "", ""),
    ],
)
def test_what_follows_send_batch_is_read_as_the_command_line_reads_it(
    command: str, expected: str, said: str, tmp_path: Path, sandbox: Sandbox
) -> None:
    it = Setup(tmp_path / "root", sandbox)
    it.user_cron(f"*/10 8-11 * * * {command}\n")
    found = {f["level"]: f["fact"] for f in it.findings() if f["id"].startswith("crontab-")}
    assert list(found) == [expected] * bool(expected)
    assert said in found.get(expected, "")
    # of a line that sends nothing it is not said as well that all is in order
    assert ("crontab" in {f["id"] for f in it.findings()}) == (expected != "fault")


def test_a_timer_whose_service_only_rehearses_is_a_fault(tmp_path: Path, sandbox: Sandbox) -> None:
    it = Setup(tmp_path / "root", sandbox)
    timer(it)
    service = it.root / "etc/systemd/system/sendonce.service"
    service.write_text(service.read_text().replace("send-batch", "send-batch --dry-run"))
    (finding,) = [f for f in it.findings() if f["level"] != "ok"]
    assert (finding["id"], finding["level"]) == ("crontab-option", "fault")


@pytest.mark.parametrize(
    ("source", "settings", "html", "level", "said"),
    [
        ("draft", {"SENDONCE_MAX_RECIPIENTS": "4"}, "", "fault", "There are 5 recipients; SENDONCE_MAX_RECIPIENTS is 4"),
        ("draft", {"SENDONCE_MIN_RECIPIENTS": "6"}, "", "fault", "SENDONCE_MIN_RECIPIENTS is 6"),
        ("draft", {"SENDONCE_WINDOW": "00:00-00:01"}, "", "fault", "SENDONCE_WINDOW is 00:00-00:01, and closed"),
        ("draft", {"SENDONCE_WINDOW": "23:58-23:59"}, "", "note", "SENDONCE_WINDOW is 23:58-23:59, and not open yet"),
        ("draft", {"SENDONCE_DRAFT_QUIET_SECONDS": "600"}, "", "note", "SENDONCE_DRAFT_QUIET_SECONDS is 600"),
        ("html", {"SENDONCE_REFUSE_PLACEHOLDERS": "yes"}, "<p>TODO</p>", "fault", 'still has "TODO" in it'),
        ("html", {"SENDONCE_HTML_MAX_AGE_HOURS": "20"}, "old", "fault", "SENDONCE_HTML_MAX_AGE_HOURS is 20"),
        ("html", {"SENDONCE_REFUSE_PLACEHOLDERS": "yes"}, "<p>Good</p>", "ok", "for 5 people"),
    ],
)  # fmt: skip
def test_what_the_guards_will_say_of_today_is_said_by_the_doctor(
    source: str, settings: dict[str, str], html: str, level: str, said: str, tmp_path: Path, sandbox: Sandbox
) -> None:
    it = Setup(tmp_path / "root", sandbox, source, **settings)
    if html:
        (it.desk.folder / "day.html").write_text(html)
    if html == "old":
        os.utime(it.desk.folder / "day.html", (1_600_000_000, 1_600_000_000))
    (today,) = [f for f in it.findings() if f["id"] == "today"]
    assert (today["level"], said in today["fact"]) == (level, True), today
    # as the run does
    assert it.desk.run("send-batch").code == {"ok": 0, "note": 75, "fault": 1}[level]


def test_a_line_that_never_starts_inside_the_window_is_a_fault(tmp_path: Path, sandbox: Sandbox) -> None:
    """Cron's hours are those of the zone, from 8 to 11."""
    it = Setup(tmp_path / "root", sandbox, SENDONCE_WINDOW="12:00-23:59")
    (finding,) = [f for f in it.findings() if f["id"].startswith("crontab-")]
    assert (finding["id"], finding["level"]) == ("crontab-window", "fault")
    assert f"the first is 08:00 ({ZONE})" in finding["fact"]
    it.desk.write_env(SENDONCE_WINDOW="11:50-23:59")
    assert [f for f in it.findings() if f["id"].startswith("crontab-")] == []
    it.user_cron(LINE.replace("root ", "").replace("send-batch", "send-batch --outside-window"))
    it.desk.write_env(SENDONCE_WINDOW="12:00-23:59")
    assert "crontab-window" not in {f["id"] for f in it.findings()}


def test_a_send_that_is_not_confirmed_is_said(tmp_path: Path, sandbox: Sandbox) -> None:
    it = Setup(tmp_path / "root", sandbox)
    sandbox.faults("post=503empty get=503empty after=send")
    assert it.desk.run("send-batch").code == 75
    sandbox.faults()
    (finding,) = [f for f in it.findings() if f["id"] == "unconfirmed"]
    assert (finding["level"], it.draft in finding["fact"]) == ("note", True)
    assert "Do not send it by hand, do not reset" in finding["remedy"]


def test_a_pause_is_said_also_on_a_day_that_is_sent_and_the_next_days_are_not_ready(
    tmp_path: Path, sandbox: Sandbox
) -> None:
    it = Setup(tmp_path / "root", sandbox)
    it.release(it.today + timedelta(days=5))
    assert it.desk.run("send-batch").code == 0
    until = it.today + timedelta(days=5)
    assert it.desk.run("pause", "--reason", "Strike", "--until", str(until)).code == 0
    found = {f["id"]: f for f in it.findings()}
    assert found["paused"]["level"] == "note"
    assert "Strike" in found["paused"]["fact"]
    # four days are paused, the fifth has its draft, and the two after it have none
    said = "The next 7 days: 1 is ready, 2 have no draft yet, 4 are paused."
    assert found["next-days"]["fact"] == said
    explained = it.desk.run("explain")
    assert (explained.code, "Pause" in explained.out, "Strike" in explained.out) == (0, True, True)


@pytest.mark.parametrize("kind", ["unreadable", "a folder"])
def test_an_env_file_that_cannot_be_read_is_78_and_a_finding(ordinary_desk: OrdinaryDesk, kind: str) -> None:
    ordinary_desk.give()
    if kind == "a folder":
        ordinary_desk.env_file.unlink()
        ordinary_desk.env_file.mkdir()
    ordinary_desk.env_file.chmod(0)
    told = ordinary_desk.run("send-batch")
    assert (told.code, "What to do: sendonce runbook settings" in told.err) == (78, True), told.all
    assert f"{ordinary_desk.env_file} cannot be read: Permission denied; run sendonce as" in told.err
    found = json.loads(ordinary_desk.run("doctor", "--root", str(ordinary_desk.folder), "--json").out)
    assert "settings" in {f["id"] for f in found["findings"] if f["level"] == "fault"}


def as_it_is(it: Setup) -> None:
    pass


GOOD: dict[str, tuple[str, Callable[[Setup], object]]] = {
    "a draft": ("draft", as_it_is),
    "an HTML file": ("html", as_it_is),
    "a copy": ("replicate", as_it_is),
    "a day that is sent": ("draft", sent_with_backup),
    "a timer": ("draft", timer),
    "a script": ("draft", script),
    "a key of the time when keys did not expire": ("draft", old_key),
    "the crontab of the user": ("draft", cron(f"MAILTO=ops@example.com\n*/10 8-11 * * 1-5 {COMMAND}\n")),
    "an account that is the right one": (
        "draft",
        change(MAILCHIMP_ACCOUNT_ID="5a4db0c5", SENDONCE_LIST_ID=LIST_ID),
    ),
    "a campaign that is scheduled": (
        "draft",
        lambda it: it.sandbox.edit(
            it.draft, status="schedule", send_time=(datetime.now(UTC) + timedelta(minutes=30)).isoformat()
        ),
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_of_a_set_up_in_order_nothing_is_said(name: str, tmp_path: Path, sandbox: Sandbox) -> None:
    source, prepare = GOOD[name]
    it = Setup(tmp_path / "root", sandbox, source)
    prepare(it)
    assert [f for f in it.findings() if f["level"] != "ok"] == []
    assert {"settings", "key", "role", "clock", "state", "ledger", "lease", "zone", "crontab"} <= {
        f["id"] for f in it.findings()
    }
    quiet = it.doctor("-q")
    assert (quiet.code, quiet.all) == (0, "")


def test_a_server_that_is_ready_is_in_order(tmp_path: Path, sandbox: Sandbox) -> None:
    it = Setup(tmp_path / "root", sandbox)
    it.desk.write_env(SENDONCE_STATE=f"sqlite:///{it.state}/ledger.db")
    (fault,) = [f for f in it.findings() if f["level"] != "ok"]
    assert (fault["id"], "sendonce init" in fault["fact"]) == ("server", True)
    assert it.desk.run("init").code == 0
    assert [f for f in it.findings() if f["level"] != "ok"] == []


def test_all_faults_of_the_settings_are_findings(tmp_path: Path, sandbox: Sandbox) -> None:
    it = Setup(tmp_path / "root", sandbox)
    it.desk.env_file.write_text("SENDONCE_TITEL=x\nSENDONCE_TIMEZONE=Mars\nSENDONCE_SOURCE=post\nbare\n")
    wrong = [f["fact"] for f in it.findings() if f["level"] != "ok"]
    # these four, and that neither key nor state is set
    assert len(wrong) == 6
    assert sum("SENDONCE_TITEL" in fact for fact in wrong) == 1
    assert sum("Mars" in fact for fact in wrong) == 1


def test_nothing_is_changed_and_nothing_sent(tmp_path: Path, sandbox: Sandbox) -> None:
    it = Setup(tmp_path / "root", sandbox)
    before = {p: p.lstat().st_mtime_ns for p in it.root.rglob("*")}
    it.sandbox.clear_calls()
    assert it.doctor().code == 0
    assert {p: p.lstat().st_mtime_ns for p in it.root.rglob("*")} == before
    assert {call["method"] for call in it.sandbox.calls()} == {"GET"}


@pytest.mark.parametrize(
    "environ",
    [{}, {"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}],
)
def test_it_reads_well_at_80_columns_and_in_ascii(
    environ: dict[str, str], tmp_path: Path, sandbox: Sandbox
) -> None:
    it = Setup(tmp_path / "root", sandbox, SENDONCE_TITLE="Günther ✓ {date}")
    told = it.desk.run("doctor", "--root", str(it.root), environ=environ)
    assert (told.code, told.err) == (0, "")
    assert ("\\u2713" in told.out) == bool(environ)
    lines = [
        line
        for line in told.out.splitlines()
        if not line.startswith("        ") and str(tmp_path) not in line
    ]
    assert max(map(len, lines)) <= 80
    assert "        SENDONCE_TIMEZONE = " in told.out
    assert told.out.splitlines()[-1].startswith("Faults: 0, notes: 1, in order: ")


def test_each_setting_is_listed_with_its_place(tmp_path: Path, sandbox: Sandbox) -> None:
    it = Setup(tmp_path / "root", sandbox)
    environ = {"SENDONCE_LIST_ID": LIST_ID, "SENDONCE_STATE": ""}
    told = it.desk.run("doctor", "--root", str(it.root), environ=environ).out
    lines = [line.strip() for line in told.splitlines()]
    assert f"SENDONCE_LIST_ID = {LIST_ID} (environment)" in lines
    place = list(it.desk.values).index("SENDONCE_STATE") + 1
    assert f"SENDONCE_STATE = {it.state} (line {place})" in lines
    assert it.desk.values["MAILCHIMP_API_KEY"] not in told


def test_as_cron_the_settings_of_the_terminal_are_not_seen(tmp_path: Path, sandbox: Sandbox) -> None:
    it = Setup(tmp_path / "root", sandbox)
    it.desk.write_env(SENDONCE_TIMEZONE=None)
    environ = {"SENDONCE_TIMEZONE": ZONE}
    here = it.desk.run("doctor", "--root", str(it.root), environ=environ)
    assert here.code == 0
    as_cron = it.desk.run("doctor", "--root", str(it.root), "--as-cron", environ=environ)
    assert as_cron.code == 1
    assert "env -i HOME=" in as_cron.out
    assert "SENDONCE_TIMEZONE is not set" in as_cron.out
    document = json.loads(
        it.desk.run("doctor", "--as-cron", "--json", "--root", str(it.root), environ=environ).out
    )
    assert (document["exit"], "PATH=/usr/bin:/bin /bin/sh -c " in document["as_cron"]) == (1, True)


def test_as_cron_a_relative_env_file_is_looked_for_where_cron_starts(
    tmp_path: Path, sandbox: Sandbox
) -> None:
    it = Setup(tmp_path / "root", sandbox)
    (it.desk.folder / "mine.env").symlink_to(".env")
    # the last --env-file counts
    words = ("doctor", "--root", str(it.root), "--env-file", "mine.env")
    assert it.desk.run(*words, cwd=it.desk.folder).code == 0
    as_cron = it.desk.run(*words, "--as-cron", cwd=it.desk.folder)
    assert (as_cron.code, "/mine.env does not exist" in as_cron.out) == (1, True)


def test_the_crontab_command_is_asked_on_this_machine(tmp_path: Path, sandbox: Sandbox) -> None:
    it = Setup(tmp_path / "root", sandbox)
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "crontab").write_text(
        f"#!/bin/sh\necho '5 9 * * * nice sendonce --env-file {it.desk.env_file} send-batch %'\n"
    )
    (folder / "crontab").chmod(0o755)
    told = it.desk.run("doctor", "--json", environ={"PATH": f"{folder}:/usr/bin:/bin"})
    of_cron = {f["id"]: f["fact"] for f in json.loads(told.out)["findings"] if f["id"].startswith("crontab-")}
    assert of_cron["crontab-percent"].startswith("crontab -l line 1: ")
    assert {"crontab-percent", "crontab-relative", "crontab-one-try"} <= set(of_cron)


def test_a_crontab_command_that_hangs_does_not_hold_the_doctor(tmp_path: Path, sandbox: Sandbox) -> None:
    it = Setup(tmp_path / "root", sandbox)
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "crontab").write_text("#!/bin/sh\nexec sleep 100\n")
    (folder / "crontab").chmod(0o755)
    told = json.loads(it.desk.run("doctor", "--json", environ={"PATH": f"{folder}:/usr/bin:/bin"}).out)
    assert "crontab -l could not be looked at: it does not answer." in [f["fact"] for f in told["findings"]]


def test_what_an_ordinary_user_may_not_read_is_a_note_and_no_trouble(ordinary_desk: OrdinaryDesk) -> None:
    root, secret = (
        ordinary_desk.folder,
        "*/10 8-11 * * * root /secret/bin/sendonce --env-file /secret/x.env send-batch\n",
    )
    (root / "etc/cron.d").mkdir(parents=True)
    (root / "var/spool/cron/crontabs").mkdir(parents=True)
    (root / "secret/bin").mkdir(parents=True)
    (root / "etc/cron.d/other").write_text(secret)
    (root / "etc/crontab").write_text(LINE)
    ordinary_desk.give()
    for name in ("etc/crontab", "var/spool/cron/crontabs", "secret"):
        (root / name).chmod(0)
    try:
        told = ordinary_desk.run("doctor", "--root", str(root), "--json")
        findings = {f["id"]: f for f in json.loads(told.out)["findings"]}
        assert findings["crontab-unread"]["fact"] == "/etc/crontab could not be looked at: Permission denied."
        # the line may be in there
        assert findings["crontab-none"]["level"] == "note"
        assert told.code == 0
    finally:
        for name in ("etc/crontab", "var/spool/cron/crontabs", "secret"):
            (root / name).chmod(0o755)


def test_a_silenced_line_is_a_note_where_a_ping_tells_of_failures(tmp_path: Path, sandbox: Sandbox) -> None:
    it = Setup(tmp_path / "root", sandbox)
    it.user_cron(f'MAILTO=""\n*/10 8-11 * * * {COMMAND}\n')
    it.desk.write_env(SENDONCE_PING_URL="http://127.0.0.1:9/ping")
    (finding,) = [f for f in it.findings() if f["level"] != "ok"]
    assert (finding["id"], finding["level"]) == ("crontab-silenced", "note")


# --- lease and ledger on a server

GOOD_SERVER: dict[str, dict[str, str]] = {
    "redis": {"appendonly": "yes"},
    "postgresql": {"fsync": "on"},
    "mariadb": {"innodb-flush-log-at-trx-commit": "1"},
}
SERVERS = ["redis", "postgresql", pytest.param("mariadb", marks=pytest.mark.wide)]
DATABASES = SERVERS[1:]


def on_server(root: Path, sandbox: Sandbox, server: Any) -> Setup:
    """A job in order whose lease and ledger are on the server."""
    it = Setup(root, sandbox)
    it.desk.write_env(SENDONCE_STATE=server.url())
    assert it.desk.run("init").code == 0
    return it


def the_fault(it: Setup) -> tuple[str, str]:
    """The id and fact of the only finding that is not in order."""
    ended = it.doctor()
    assert servers.SECRET not in ended.all
    (wrong,) = [f for f in it.findings() if f["level"] != "ok"]
    assert wrong["remedy"]
    return wrong["id"], wrong["fact"]


@pytest.mark.parametrize("kind", SERVERS)
def test_of_a_server_in_order_nothing_is_said_and_one_that_is_down_is_named(
    kind: str, tmp_path: Path, sandbox: Sandbox
) -> None:
    with servers.private(kind, **GOOD_SERVER[kind]) as server:
        it = on_server(tmp_path / "root", sandbox, server)
        assert [f for f in it.findings() if f["level"] != "ok"] == []
        assert {"server", "ledger", "lease"} <= {f["id"] for f in it.findings()}
        server.kill()
        name, fact = the_fault(it)
        assert name == "server"
        assert f"127.0.0.1:{server.port}" in fact
        assert "it refuses connections" in fact


@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_that_lets_a_ledger_down_is_a_note(kind: str, tmp_path: Path, sandbox: Sandbox) -> None:
    with servers.private(kind) as server:
        it = on_server(tmp_path / "root", sandbox, server)
        assert the_fault(it)[0] == "server-settings"
        assert it.doctor().code == 0


@pytest.mark.parametrize("kind", SERVERS)
def test_a_password_that_the_server_does_not_accept_is_named(
    kind: str, tmp_path: Path, sandbox: Sandbox
) -> None:
    it = Setup(tmp_path / "root", sandbox)
    right = servers.shared(kind).url()
    it.desk.write_env(SENDONCE_STATE=right.replace(servers.SECRET, "hunter3"))
    name, fact = the_fault(it)
    assert (name, "it does not accept user and password of the URL" in fact) == ("server", True)


@pytest.mark.parametrize("kind", DATABASES)
def test_a_database_that_is_not_there_or_has_no_tables_is_named(
    kind: str, tmp_path: Path, sandbox: Sandbox
) -> None:
    it = Setup(tmp_path / "root", sandbox)
    server = servers.shared(kind)
    it.desk.write_env(SENDONCE_STATE=server.url(server.new_database()))
    name, fact = the_fault(it)
    assert (name, "has no tables of sendonce yet" in fact, "sendonce init" in fact) == ("server", True, True)
    it.desk.write_env(SENDONCE_STATE=server.url("sendonce_nowhere"))
    name, fact = the_fault(it)
    assert (name, "it has no such database" in fact) == ("server", True)


@pytest.mark.wide
def test_a_name_that_leads_nowhere_is_told_from_a_server_that_is_down(
    tmp_path: Path, sandbox: Sandbox
) -> None:
    it = Setup(tmp_path / "root", sandbox)
    it.desk.write_env(SENDONCE_STATE="redis://redis.invalid/0")
    name, fact = the_fault(it)
    assert (name, "its name could not be looked up" in fact) == ("server", True)


def test_a_replica_of_redis_is_named(tmp_path: Path, sandbox: Sandbox) -> None:
    with servers.private("redis", **GOOD_SERVER["redis"]) as server:
        it = on_server(tmp_path / "root", sandbox, server)
        with server.client() as client:
            client.replicaof("127.0.0.1", 1)
        name, fact = the_fault(it)
        assert (name, "it is a read-only replica: name the primary" in fact) == ("server", True)


def test_rights_that_a_user_of_redis_does_not_have_are_named(tmp_path: Path, sandbox: Sandbox) -> None:
    with servers.private("redis", **GOOD_SERVER["redis"]) as server:
        it = on_server(tmp_path / "root", sandbox, server)
        with server.client() as client:
            client.acl_setuser(
                "reader",
                enabled=True,
                passwords=["+other"],
                keys=["sendonce:*"],
                commands=["+@read", "+ping"],
            )
        it.desk.write_env(SENDONCE_STATE=f"redis://reader:other@127.0.0.1:{server.port}/0")
        name, fact = the_fault(it)
        assert (name, "may not do what is needed" in fact) == ("server", True)


def test_a_user_of_postgresql_who_may_only_read_and_a_read_only_database_are_named(
    tmp_path: Path, sandbox: Sandbox
) -> None:
    with servers.private("postgresql", **GOOD_SERVER["postgresql"]) as server:
        it = on_server(tmp_path / "root", sandbox, server)
        server.asked(
            "CREATE ROLE reader LOGIN PASSWORD 'other'",
            "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader",
            database=servers.DATABASE,
        )
        it.desk.write_env(
            SENDONCE_STATE=f"postgresql+psycopg://reader:other@127.0.0.1:{server.port}/{servers.DATABASE}"
        )
        name, fact = the_fault(it)
        assert (name, "may not do what is needed there" in fact) == ("server", True)
        it.desk.write_env(SENDONCE_STATE=server.url())
        server.asked(f"ALTER DATABASE {servers.DATABASE} SET default_transaction_read_only = on")
        name, fact = the_fault(it)
        assert (name, "it is read-only, as a replica is" in fact) == ("server", True)


@pytest.mark.wide
def test_a_user_of_mariadb_who_may_only_read_and_a_read_only_server_are_named(
    tmp_path: Path, sandbox: Sandbox
) -> None:
    with servers.private("mariadb", **GOOD_SERVER["mariadb"]) as server:
        it = on_server(tmp_path / "root", sandbox, server)
        server.asked(
            "CREATE USER reader@'127.0.0.1' IDENTIFIED BY 'other'",
            f"GRANT SELECT ON {servers.DATABASE}.* TO reader@'127.0.0.1'",
        )
        it.desk.write_env(
            SENDONCE_STATE=f"mysql+pymysql://reader:other@127.0.0.1:{server.port}/{servers.DATABASE}"
        )
        name, fact = the_fault(it)
        assert (name, "may not do what is needed there" in fact) == ("server", True)
        it.desk.write_env(SENDONCE_STATE=server.url())
        server.asked("SET GLOBAL read_only = 1")
        name, fact = the_fault(it)
        assert (name, "it is read-only, as a replica is" in fact) == ("server", True)
