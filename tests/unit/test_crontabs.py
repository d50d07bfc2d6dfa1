"""What a crontab, or a timer, really does, read from its text alone."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sendonce.crontabs import Machine, Report, Table, Unit, Wanted, examine

FOLDER = Path(__file__).parents[1] / "crontabs"
ENV = "/etc/sendonce/digest.env"
WANTED = Wanted(ENV, "digest")
COMMAND = f"/opt/sendonce/bin/sendonce --env-file {ENV} -q send-batch"
GOOD = f"*/10 8-11 * * * {COMMAND}\n"
THERE = frozenset({ENV, "/opt/sendonce/bin/sendonce", "/usr/bin/python3", "/home/ann/daily/.env"})


SCRIPTS: dict[str, str] = {
    "/usr/local/bin/mail.sh": f"#!/bin/sh\n# it's sendonce\nset -eu\n{COMMAND}\n",
    "/usr/local/bin/set.sh": f'#!/bin/sh\nexport SENDONCE_ENV_FILE="{ENV}"\nPATH=/opt/sendonce/bin:/bin\n'
    "if ! sendonce \\\n -q send-batch; then\n  echo no; fi\n",
    "/home/ann/bin/cd.sh": "#!/bin/bash\ncd /home/ann/daily || exit 1\n/opt/sendonce/bin/sendonce send-batch\n",
    "/usr/local/bin/other.sh": f"#!/bin/sh\n{COMMAND.replace('digest.env', 'other.env')}\n",
    "/usr/local/bin/look.sh": f"#!/bin/sh\n/opt/sendonce/bin/sendonce --env-file {ENV} doctor # no send-batch\n",
    "/usr/local/bin/variable.sh": '#!/bin/sh\n/opt/sendonce/bin/sendonce --env-file "$1" send-batch\n',
}


def machine(zone: str = "Europe/Berlin", *, is_cron_tz_heeded: bool = False) -> Machine:
    return Machine(
        home_of={"root": "/root", "ann": "/home/ann", "sendonce": "/var/lib/sendonce"}.get,
        exists=THERE.__contains__,
        real=lambda path: path,
        zone=ZoneInfo(zone),
        zone_name=zone,
        is_cron_tz_heeded=is_cron_tz_heeded,
        today=date(2026, 11, 30),
        script=lambda path: SCRIPTS.get(path, ""),
    )


def look(*tables: Table, units: tuple[Unit, ...] = (), wanted: Wanted = WANTED, **how: object) -> Report:
    return examine(tables, units, wanted, machine(**how))  # type: ignore[arg-type]


def of_ann(text: str) -> Table:
    return Table("/var/spool/cron/crontabs/ann", text, "ann")


def of_system(text: str, path: str = "/etc/cron.d/sendonce") -> Table:
    return Table(path, text)


def ids(report: Report) -> set[str]:
    return {flaw.id for flaw in report.flaws}


# a bare `sendonce send-batch` looks for .env in the home folder, and nine o'clock is one try a day
BARE = {"crontab-no-env-file", "crontab-one-try"}


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("good", {"crontab-one-try"}),
        ("duplicate-lines", {"crontab-duplicate", *BARE}),
        ("no-final-newline", {"crontab-newline", *BARE}),
        ("percent", {"crontab-percent", *BARE}),
        ("percent-escaped", BARE),
        ("silenced", {"crontab-silenced", *BARE}),
        ("user-field-in-user-crontab", {"crontab-user-column", *BARE}),
    ],
)
def test_crontabs_from_the_field_have_just_these_flaws(file: str, expected: set[str]) -> None:
    text = (FOLDER / f"{file}.crontab").read_bytes().decode()
    report = look(of_ann(text))
    assert ids(report) == expected
    assert all(flaw.remedy for flaw in report.flaws)
    assert all("/var/spool/cron/crontabs/ann line " in flaw.fact for flaw in report.flaws)


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"MAILTO=ops@example.com\n# comment % here\n\n{GOOD}",
        f"  */10 8-11 * * mon-fri {COMMAND}\n",
        f"*/10 8-11 * * * cd /home/ann/daily && {COMMAND}\n",
        f"*/10 8-11 * * * cd /opt/sendonce/bin && ./sendonce --env-file {ENV} send-batch\n",
        f"PATH=/opt/sendonce/bin:/usr/bin\n*/10 8-11 * * * sendonce --env-file={ENV} send-batch\n",
        f"SENDONCE_ENV_FILE={ENV}\n*/10 8-11 * * * /opt/sendonce/bin/sendonce send-batch\n",
        f"*/10 8-11 * * * SENDONCE_ENV_FILE={ENV} /opt/sendonce/bin/sendonce send-batch\n",
        f"*/10 8-11 * * * /usr/bin/python3 -m sendonce --env-file {ENV} send-batch\n",
        f"*/10 8-11 * * * flock -n /run/sendonce {COMMAND}\n",
        f"*/10 8-11 * * * sh -c '{COMMAND}'\n",
        f'MAILTO=""\n*/10 8-11 * * * {COMMAND} >>/var/log/x.log 2>&1\n',
        f"*/10 8-11 * * * {COMMAND} >/dev/null\n",
        f"*/10 8-11 * * * {COMMAND} || mail -s failed ops@example.com\n",
        f'*/10 8-11 * * * {COMMAND} --date "$(date +\\%F)"\n',
        f"*/10 8-11 * * * {COMMAND} # it's daily\n",
        f"*/10 8-11 * * * echo it\\'s; {COMMAND}\n",
        f"SHELL=/usr/bin/python3\n{GOOD}",
        f"{GOOD}SENDONCE_TIMEZONE=UTC\n",
        f"*/10 * * * * {COMMAND}\n",
        f"@hourly {COMMAND}\n",
        f"0~30 8-11 * * * {COMMAND}\n",
        f"*/10 8-11 * * * {COMMAND} --job digest\n",
        f"*/10 8-11 * * * env A=B SENDONCE_ENV_FILE={ENV} /opt/sendonce/bin/sendonce send-batch\n",
        f"*/10 8-11 * * * cd / && flock -n /run/sendonce -c '{COMMAND}'\n",
        "*/10 8-11 * * * /usr/local/bin/mail.sh\n",
        "*/10 8-11 * * * flock -n /run/lock /usr/local/bin/mail.sh >/dev/null\n",
        "*/10 8-11 * * * sh bin/../../../usr/local/bin/set.sh\n",
    ],
)
def test_a_line_that_does_what_it_seems_to_has_no_flaw(text: str) -> None:
    report = look(of_ann(text))
    assert report.flaws == ()
    assert [line.user for line in report.lines] == ["ann"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"*/10 8-11 * * * {COMMAND} --date $(date +%F)\n", "crontab-percent"),
        (f"*/10 8-11 * * * {COMMAND}", "crontab-newline"),
        (f"*/10 8-11 * * * {COMMAND}\r\n", "crontab-crlf"),
        (f"*/10 8-11 * * * root {COMMAND}\n", "crontab-user-column"),
        (f"*/10 8-11 * * * sendonce {COMMAND}\n", "crontab-user-column"),
        (f"*/10 8-11 * * * sendonce --env-file {ENV} send-batch\n", "crontab-relative"),
        (f"*/10 8-11 * * * bin/sendonce --env-file {ENV} send-batch\n", "crontab-relative"),
        (f"*/10 8-11 * * * cd daily; ./sendonce --env-file {ENV} send-batch\n", "crontab-relative"),
        (
            "*/10 8-11 * * * /opt/sendonce/bin/sendonce --env-file ../../etc/sendonce/digest.env send-batch\n",
            "crontab-relative",
        ),
        (f"*/10 8-11 * * * /opt/old/bin/sendonce --env-file {ENV} send-batch\n", "crontab-command"),
        ("*/10 8-11 * * * /opt/sendonce/bin/sendonce send-batch\n", "crontab-no-env-file"),
        (f'MAILTO=""\n*/10 8-11 * * * {COMMAND}\n', "crontab-silenced"),
        (f"MAILTO=\n*/10 8-11 * * * {COMMAND} > /dev/null\n", "crontab-silenced"),
        (f"*/10 8-11 * * * {COMMAND} >/dev/null 2>&1\n", "crontab-silenced"),
        (f"*/10 8-11 * * * {COMMAND} 2> /dev/null\n", "crontab-silenced"),
        (f"*/10 8-11 * * * {COMMAND} --date $(date +\\%F) >/dev/null 2>&1\n", "crontab-silenced"),
        (f"*/10 8-11 * * * {COMMAND} || {COMMAND}\n", "crontab-retry"),
        (f"30 9 * * * {COMMAND}\n", "crontab-one-try"),
        (f"@reboot {COMMAND}\n", "crontab-one-try"),
        (f"*/10 2 * * * {COMMAND}\n", "crontab-clock-change"),
        (f"*/10 2-4 * * * {COMMAND}\n", "crontab-clock-change"),
        (f"CRON_TZ=America/New_York\n*/10 8-11 * * * {COMMAND}\n", "crontab-zone"),
        (f"*/10 8-11 * * * '{COMMAND}\n", "crontab-quote"),
        (f'*/10 8-11 * * * {COMMAND} --date "today\n', "crontab-quote"),
        (f"*/10 8-11 * * * sh -c '{COMMAND}\n", "crontab-quote"),
        (f"*/10 8-11 * * * /opt/sendonce/bin/sendonce --env-file '{ENV} send-batch\n", "crontab-quote"),
        (
            "*/10 8-11 * * * /opt/sendonce/bin/sendonce --env-file digest.env -q send-batch\n",
            "crontab-relative",
        ),
        (f"SHELL=/bin/fish\n{GOOD}", "crontab-shell"),
        (f"SHELL=python3\n{GOOD}", "crontab-shell"),
        (f"SENDONCE_TIMEZONE=UTC\n{GOOD}", "crontab-settings"),
        (f"{GOOD}{GOOD}", "crontab-duplicate"),
        (f"*/10 8-11 * * * {COMMAND}\nnonsense in here\n", "crontab-syntax"),
        (f"61 8-11 * * * {COMMAND}\n{GOOD}", "crontab-syntax"),
        ("", "crontab-none"),
        (f"# {GOOD}", "crontab-none"),
        (
            "*/10 8-11 * * * /opt/sendonce/bin/sendonce --env-file /etc/sendonce/other.env send-batch\n",
            "crontab-none",
        ),
        (f"*/10 8-11 * * * {COMMAND} --job other\n", "crontab-none"),
        (f"*/10 8-11 * * * /opt/sendonce/bin/sendonce --env-file {ENV} check --by 09:30\n", "crontab-none"),
    ],
)
def test_a_line_with_one_flaw_has_that_one_named(text: str, expected: str) -> None:
    report = look(of_ann(text))
    assert ids(report) == {expected}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"*/10 8-11 * * * sendonce {COMMAND}\n", set()),
        (f"*/10 8-11 * * * {COMMAND}\n", {"crontab-no-user"}),
        (f"*/10 8-11 * * * nobody-here {COMMAND}\n", {"crontab-no-user"}),
        (f"*/10 8-11 * * * sendonce --env-file {ENV} send-batch\n", {"crontab-none"}),
    ],
)
def test_a_system_crontab_names_the_user_before_the_command(text: str, expected: set[str]) -> None:
    # the last one runs `--env-file …` as the user sendonce, so nothing starts the job
    assert ids(look(of_system(text))) == expected


def test_lines_in_two_files_are_told_apart_from_two_users() -> None:
    one = of_system(f"*/10 8-11 * * * ann {COMMAND}\n")
    assert ids(look(of_ann(GOOD), one)) == {"crontab-duplicate"}
    report = look(of_ann(GOOD), of_system(f"0 9 * * * root {COMMAND}\n", "/etc/crontab"))
    assert ids(report) == {"crontab-two-users", "crontab-one-try"}
    (flaw,) = [flaw for flaw in report.flaws if flaw.id == "crontab-two-users"]
    assert "crontabs/ann line 1 (as ann)" in flaw.fact
    assert "/etc/crontab line 1 (as root)" in flaw.fact


def test_of_a_relative_env_file_the_whole_path_is_named() -> None:
    (flaw,) = look(
        of_ann("*/10 8-11 * * * /opt/sendonce/bin/sendonce --env-file digest.env send-batch\n")
    ).flaws
    assert "--env-file digest.env is a relative path, and cron starts in /home/ann" in flaw.fact
    assert flaw.remedy.startswith(f"Write --env-file {ENV}")


def test_flaws_carry_the_number_of_their_line() -> None:
    report = look(of_ann(f"# one\n\nMAILTO=x@example.com\n*/10 8-11 * * * {COMMAND} %\n"))
    (flaw,) = report.flaws
    assert flaw.fact.startswith("/var/spool/cron/crontabs/ann line 4: ")


def test_the_hours_are_those_of_the_zone_that_cron_uses() -> None:
    two = of_ann(f"*/10 2 * * * {COMMAND}\n")
    (flaw,) = look(two).flaws
    # by the law of the EU: the last Sunday of March and of October, at 01:00 UTC
    assert "02:00 does not exist on 2027-03-28, 02:00 comes twice on 2027-10-31" in flaw.fact
    assert ids(look(two, zone="UTC")) == set()
    new_york = of_ann(f"CRON_TZ=America/New_York\n*/10 1 * * * {COMMAND}\n")
    (flaw,) = look(new_york, zone="UTC", is_cron_tz_heeded=True).flaws
    # the first Sunday of November, at 02:00 by the clock
    assert "(America/New_York): 01:00 comes twice on 2027-11-07" in flaw.fact
    nowhere = of_ann(f"CRON_TZ=Mars/Base\n*/10 8-11 * * * {COMMAND}\n")
    assert ids(look(nowhere, is_cron_tz_heeded=True)) == {"crontab-zone"}


@pytest.mark.parametrize("name", ["other", "look", "variable", "gone"])
def test_a_script_that_does_not_say_that_it_starts_this_job_is_left_alone(name: str) -> None:
    assert ids(look(of_ann(f"*/10 8-11 * * * /usr/local/bin/{name}.sh\n"))) == {"crontab-none"}


def test_a_script_has_the_flaws_of_its_line_and_its_own() -> None:
    twice = look(of_ann(GOOD + "0 9 * * * /usr/local/bin/mail.sh >/dev/null 2>&1\n"))
    assert ids(twice) == {"crontab-duplicate", "crontab-one-try", "crontab-silenced"}
    here = Wanted("/home/ann/daily/.env", "daily")
    assert ids(look(of_ann("*/10 8-11 * * * bin/cd.sh\n"), wanted=here)) == set()


def test_a_job_named_by_flag_is_not_started_by_a_line_without_it() -> None:
    wanted = Wanted(ENV, "digest", is_named_by_flag=True)
    assert ids(look(of_ann(GOOD), wanted=wanted)) == {"crontab-none"}
    with_flag = of_ann(f"*/10 8-11 * * * {COMMAND} --job digest\n")
    assert ids(look(with_flag, wanted=wanted)) == set()


def test_a_line_without_env_file_in_a_folder_that_has_one_is_another_jobs() -> None:
    other = of_ann("*/10 8-11 * * * cd /home/ann/daily && /opt/sendonce/bin/sendonce send-batch\n")
    assert ids(look(other)) == {"crontab-none"}
    mine = Wanted("/home/ann/daily/.env", "daily")
    assert ids(look(other, wanted=mine)) == set()


def test_where_nothing_could_start_a_job_that_is_only_a_note() -> None:
    (flaw,) = examine([], [], WANTED, machine(), is_cron_here=False).flaws
    assert (flaw.id, flaw.is_note) == ("crontab-none", True)


# --- systemd

SERVICE = f"[Service]\nUser=ann\nExecStart=-{COMMAND}\n"
TIMER = "[Timer]\nOnCalendar=*-*-* 08..11:00/10\n[Install]\nWantedBy=timers.target\n"
AT = "/etc/systemd/system/"


def units(
    *, instances: frozenset[str], service: str = SERVICE, at: str = "", timer: str = TIMER
) -> tuple[Unit, ...]:
    return (
        Unit(f"{AT}sendonce{at}.service", service),
        Unit(f"{AT}sendonce{at}.timer", timer, instances=instances),
    )


def test_an_enabled_timer_starts_a_job() -> None:
    report = look(units=units(instances=frozenset({""})))
    assert ids(report) == set()
    assert [(line.place, line.user) for line in report.lines] == [(f"{AT}sendonce.timer", "ann")]


def test_a_timer_that_is_not_enabled_is_named() -> None:
    (flaw,) = look(units=units(instances=frozenset())).flaws
    assert (flaw.id, flaw.remedy) == ("timer-disabled", "systemctl enable --now sendonce.timer")


def test_a_timer_beside_a_crontab_line_is_a_duplicate() -> None:
    both = look(of_ann(GOOD), units=units(instances=frozenset({""})))
    assert ids(both) == {"crontab-duplicate"}
    as_root = look(
        of_ann(GOOD), units=units(instances=frozenset({""}), service=SERVICE.replace("User=ann\n", ""))
    )
    assert ids(as_root) == {"crontab-two-users"}


def test_an_instance_of_a_template_starts_the_job_of_its_name() -> None:
    service = (
        "[Service]\nExecStart=/opt/sendonce/bin/sendonce \\\n  --env-file /etc/sendonce/%i.env send-batch\n"
    )
    report = look(units=units(instances=frozenset({"digest", "weekly"}), service=service, at="@"))
    assert ids(report) == set()
    assert [line.place for line in report.lines] == [f"{AT}sendonce@digest.timer"]
    assert ids(look(units=units(instances=frozenset({"weekly"}), service=service, at="@"))) == {
        "crontab-none"
    }


def test_a_service_may_name_its_env_file_in_the_environment() -> None:
    service = (
        f'[Service]\nEnvironment="SENDONCE_ENV_FILE={ENV}"\nExecStart=/opt/sendonce/bin/sendonce send-batch\n'
    )
    other = units(
        instances=frozenset({""}), service=service, timer=f"{TIMER}[Timer]\nUnit=sendonce.service\n"
    )
    assert ids(look(units=other)) == set()


# --- whatever is in there


@given(st.text(alphabet=st.sampled_from("*/0159 @:%\n\r\t'\"\\|&;<>()=#~-amMILTO\0é"), max_size=80))
def test_no_text_is_too_odd_to_be_read(text: str) -> None:
    tables = (
        of_ann(text),
        of_system(text),
        of_ann(f"{text} {COMMAND}"),
        of_ann(f"*/5 8 * * * {text} {COMMAND} {text}"),
    )
    assert all(
        flaw.fact for flaw in look(*tables, units=(Unit("a.timer", text), Unit("a.service", text))).flaws
    )
