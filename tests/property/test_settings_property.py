"""Whatever the values: a `.env` reads back as written, a key stays hidden, and no two dates share a title."""

from __future__ import annotations

import io
import string
import tempfile
from datetime import date, timedelta
from pathlib import Path

import pytest
from dotenv import dotenv_values
from hypothesis import example, given
from hypothesis import strategies as st

from sendonce import settings
from sendonce.core import dates
from sendonce.core.errors import SendonceError, SettingsWrong

LETTERS = string.ascii_letters + "_"
NAMES = st.builds(str.__add__, st.sampled_from(LETTERS), st.text(LETTERS + string.digits, max_size=20))
# Signs that mean something to some parser of .env files, mixed with everything else that a line can hold.
TEXTS = st.one_of(
    st.text(st.sampled_from("ab '\"\\#$={}%\t`!é✓\x85\u2028\ufeff"), max_size=30),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=60),
)


@given(st.dictionaries(NAMES, TEXTS, max_size=6))
def test_a_rendered_env_reads_back_as_exactly_its_values(values: dict[str, str]) -> None:
    text = settings.render_env(values)
    # Through bytes, as a file: that is where a stray byte order mark or a lone surrogate would show.
    again = dotenv_values(stream=io.StringIO(text.encode().decode("utf-8-sig")), interpolate=False)
    assert list(again.items()) == list(values.items())


@given(TEXTS, st.sampled_from(["\n", "\r", "\r\n"]), TEXTS)
def test_a_value_with_a_newline_is_never_rendered(before: str, newline: str, after: str) -> None:
    with pytest.raises(SettingsWrong, match="SENDONCE_TITLE has a newline"):
        settings.render_env({"SENDONCE_TITLE": before + newline + after})


@given(st.text(st.characters(exclude_categories=["L", "N"]), min_size=1))
def test_a_name_that_is_none_is_never_rendered(name: str) -> None:
    if set(name) != {"_"}:
        with pytest.raises(SettingsWrong, match="not a name"):
            settings.render_env({name: "x"})


KEY = "5ec4e75ec4e75ec4e75ec4e75ec4e75e-us1"
SETTING_NAMES = st.sampled_from([doc.name for doc in settings.SETTINGS])


@example(where="SENDONCE_JOB", before="", after="=", separator="", key=KEY[:32])
@example(
    where="SENDONCE_JOB",
    before="",
    after="=x\nSENDONCE_JOB5ec4e75ec4e75ec4e75ec4e75ec4e75e=y",
    separator="",
    key=KEY[:32],
)
@given(
    where=SETTING_NAMES,
    before=st.text(st.sampled_from("'\" :={}$%#\u200b\n-/"), max_size=3),
    after=st.text(st.sampled_from("'\" :={}$%#\u200b\n-/\x00"), max_size=3),
    separator=st.sampled_from(["=", ": ", " ", "='", '="', ""]),
    key=st.sampled_from([KEY, KEY[:32], KEY.upper(), f"user:{KEY}"]),
)
def test_a_key_in_any_line_of_any_form_stays_out_of_the_message(
    where: str, before: str, after: str, separator: str, key: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, ".env")
        path.write_text(f"{where}{separator}{before}{key}{after}\n", encoding="utf-8")
        path.chmod(0o600)
        with pytest.raises(SettingsWrong) as caught:  # the time zone is missing in any case
            settings.load(path, None, {}, Path(folder))
    assert "5ec4e75" not in caught.value.message.lower()


@given(where=SETTING_NAMES, text=st.text(min_size=1, max_size=40).filter(lambda text: "\0" not in text))
def test_no_value_of_any_setting_ends_in_anything_but_settings_or_their_faults(where: str, text: str) -> None:
    environ = {"MAILCHIMP_API_KEY": KEY, "SENDONCE_STATE": "/s", "SENDONCE_TIMEZONE": "Etc/UTC", where: text}
    with tempfile.TemporaryDirectory() as folder:
        try:
            settings.load(None, None, environ, Path(folder))
        except SendonceError as error:
            assert where in error.message  # noqa: PT017 either end is right, but no other


DIRECTIVES = st.sampled_from(
    ["%Y", "%y", "%m", "%-m", "%B", "%b", "%d", "%-d", "%j", "%A", "%a", "%u", "%G", "%V"]
)
PIECES = st.one_of(
    st.builds("{{date:{}}}".format, DIRECTIVES),
    st.sampled_from(["{date}", "{job}", " ", "-", "x", "1", "[", "]"]),
)
EVERY_DAY = [date(2023, 12, 1) + timedelta(days=days) for days in range(365 * 7)]


@given(st.lists(PIECES, min_size=1, max_size=6).map("".join))
def test_a_pattern_that_passes_gives_every_date_a_title_of_its_own_that_leads_back(pattern: str) -> None:
    if dates.pattern_fault(pattern, must_identify_date=True) is None:
        titles = [dates.render(pattern, "daily", day) for day in EVERY_DAY]
        assert len(set(titles)) == len(EVERY_DAY)
        assert [dates.day_of_title(title, pattern, "daily") for title in titles[::97]] == EVERY_DAY[::97]


@given(st.text(st.sampled_from("{}:%dateYjob!.0 -{{}}"), max_size=20))
def test_a_pattern_either_has_a_fault_or_renders(pattern: str) -> None:
    if dates.pattern_fault(pattern, must_identify_date=False) is None:
        text = dates.render(pattern, "daily", date(2026, 1, 5))
        assert text.strip() == text != ""
