"""SENDONCE_STATE as a URL: what is taken, what is not, and that nothing of it shows that may be a password."""

from __future__ import annotations

import pytest

from sendonce.settings.state_url import SCHEMES, StateUrl, read_url

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("text", "place", "extra"),
    [
        ("redis://h", "redis://h", "redis"),
        ("redis://:hunter2@h:6379/0", "redis://h:6379/0", "redis"),
        ("redis://u:hunter2@h:6379/15?ssl_ca_certs=/x", "redis://h:6379/15", "redis"),
        ("rediss://u:hunter2@h.example.com/", "rediss://h.example.com/", "redis"),
        ("redis://:hunter2@[2001:db8::1]:6379/0", "redis://[2001:db8::1]:6379/0", "redis"),
        ("unix:///run/redis.sock?db=2&password=hunter2", "unix:///run/redis.sock", "redis"),
        ("unix://u:hunter2@/run/redis.sock", "unix:///run/redis.sock", "redis"),
        ("postgresql+psycopg://u:hunter2@h/d", "postgresql+psycopg://h/d", "postgres"),
        ("postgresql+psycopg://u@h:5432/d?sslmode=require", "postgresql+psycopg://h:5432/d", "postgres"),
        ("postgresql+psycopg://u:hunter2@/d?host=/run/postgresql", "postgresql+psycopg:///d", "postgres"),
        ("mysql+pymysql://u:hunter2@h:3306/d?charset=utf8mb4", "mysql+pymysql://h:3306/d", "mysql"),
        ("mysql+pymysql://u:hunter2@/d?unix_socket=/run/m.sock", "mysql+pymysql:///d", "mysql"),
        ("sqlite:////var/lib/sendonce/x.db", "sqlite:////var/lib/sendonce/x.db", "sql"),
        ("redis://u:hunter2%40%2F@h/0", "redis://h/0", "redis"),
        ("redis://u:p@hunter2@h/0", "redis://h/0", "redis"),
    ],
)
def test_a_url_is_taken_and_shown_without_user_password_and_options(
    text: str, place: str, extra: str
) -> None:
    url = read_url(text)

    assert isinstance(url, StateUrl)
    assert (url.scheme, url.place, url.extra) == (text.partition("://")[0], place, extra)
    assert url.url.reveal() == text
    assert SECRET not in f"{url!r} {url}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hunter2://", "begins with hunter2://, which is not known; known are redis://, rediss://, unix://"),
        ("mongodb://u:hunter2@h/d", "begins with mongodb://, which is not known"),
        ("://hunter2@h", "is no URL"),
        ("hunter2 ://h", "is no URL"),
        ("REDIS://:hunter2@h", "is no URL"),
        ("postgres://u:hunter2@h/d", "write postgresql+psycopg://, which names the driver"),
        ("postgresql://u:hunter2@h/d", "write postgresql+psycopg://, which names the driver"),
        ("mysql://u:hunter2@h/d", "write mysql+pymysql://, which names the driver"),
        ("mariadb://u:hunter2@h/d", "write mysql+pymysql://, which names the driver"),
        ("sqlite3:////x", "write sqlite://, which names the driver"),
        ("redis://:hunter2 x@h", "has a space, or a character that nobody can see"),
        ("redis://:hunter2\u200b@h", "has a space, or a character that nobody can see"),
        ("redis://", "names no host"),
        ("redis://:hunter2@", "names no host"),
        ("redis://:6379/0", "names no host"),
        ("postgresql+psycopg://u:hunter2@/d", "names no host"),
        ("postgresql+psycopg://u:hunter2@h", "names no database"),
        ("postgresql+psycopg://u:hunter2@h/?x=1", "names no database"),
        ("mysql+pymysql://u:hunter2@h/", "names no database"),
        ("redis://h/hunter2", "names a database that is no number"),
        ("redis://h/0/1", "names a database that is no number"),
        ("sqlite:///relative/x.db", "must name an absolute path; wanted: sqlite:////PATH"),
        ("sqlite://", "must name an absolute path"),
        ("sqlite:////", "must name an absolute path"),
        ("sqlite:///:memory:", "must name an absolute path"),
        ("unix://hunter2", "must name an absolute path; wanted: unix:///PATH"),
        ("unix://:hun?ter2@/run/x", "must name an absolute path"),
    ],
)
def test_a_url_that_cannot_be_used_says_why(text: str, said: str) -> None:
    fault = read_url(text)

    assert isinstance(fault, str)
    assert said in fault
    assert SECRET not in fault.removeprefix("begins with hunter2://")


@pytest.mark.parametrize("scheme", [scheme for scheme in SCHEMES if scheme not in {"sqlite", "unix"}])
@pytest.mark.parametrize(
    "rest",
    [
        "u:hunter2",
        ":hunter2",
        "u:hunter2/d",
        "u:hun/ter2@h/d",
        "u:hun?ter2@h/d",
        "u:hun#ter2@h/d",
        "u@h:hunter2/d",
        "u:p@h:0/d",
        "u:p@h:65536/d",
        "u:p@[hunter2/d",
        "u:p@h/d#hunter2",
        "u:p@h:1:hunter2/d",
    ],
)
def test_a_password_that_is_not_quoted_makes_the_url_unusable_and_is_not_shown(
    scheme: str, rest: str
) -> None:
    fault = read_url(f"{scheme}://{rest}")

    assert isinstance(fault, str)
    assert "does not have the form" in fault
    assert "ter2" not in fault
    assert "hun" not in fault
