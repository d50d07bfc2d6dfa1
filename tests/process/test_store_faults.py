"""The real command on real servers that are down, full, read-only, of another version or closed to us.

Each fault has its exit code and a message that names the server and never its password; nothing is sent twice.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from sendonce.core.errors import StateUnusable
from support import servers
from support.places import Place, new_place
from support.runs import DAY, Desk, Ended, wait_until
from support.servers import SECRET

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.sandbox import Sandbox

SERVERS = ("redis", "postgresql", "mariadb")
DRIVER = {"redis": "redis", "postgresql": "psycopg", "mariadb": "pymysql", "sqlite": "sqlalchemy"}
EXTRA = {"redis": "redis", "postgresql": "postgres", "mariadb": "mysql", "sqlite": "sql"}


def job() -> str:
    """A name that no other test knows."""
    return f"job-{secrets.token_hex(6)}"


def place_of(desk: Desk, kind: str) -> Place:
    """Where the desk's job keeps its ledger."""
    return Place(kind, desk.values["SENDONCE_STATE"], desk.values["SENDONCE_JOB"])


def state_of(desk: Desk, kind: str) -> str:
    """The state of the day's batch, by a connection of our own."""
    return next((b.state.value for b in place_of(desk, kind).ledger().batches(DAY, DAY)), "-")


def assert_refused(ended: Ended, code: int, *said: str) -> None:
    """It ended so, and said so on standard error in one message, without a password or a traceback."""
    assert ended.code == code, ended
    assert ended.out == ""
    for text in said:
        assert text in ended.err
    assert SECRET not in ended.err
    assert "Traceback" not in ended.err


def changed(url: str, **parts: str) -> str:
    """The URL with other parts: password, or database."""
    if "password" in parts:
        url = url.replace(quote(servers.PASSWORD, safe=""), parts["password"])
    if "database" in parts:
        url = f"{url.rpartition('/')[0]}/{parts['database']}"
    return url


# ---- a server that cannot be reached, or says no ----


@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_that_does_not_run_is_named_and_the_run_is_to_be_repeated(
    make_desk: Callable[..., Desk], sandbox: Sandbox, kind: str
) -> None:
    with servers.not_started(kind) as server:
        desk = make_desk(SENDONCE_STATE=server.url(), SENDONCE_JOB=job())
        desk.prepare()

        assert_refused(desk.send(), 75, f"127.0.0.1:{server.port}", "could not be reached", "Run again")
        command = {"redis": ("init",), "postgresql": ("ledger", "list"), "mariadb": ("lock", "status")}[kind]
        assert_refused(desk.run(*command), 75, f"127.0.0.1:{server.port}", "could not be reached")
    assert sandbox.calls() == []


@pytest.mark.parametrize("kind", SERVERS)
def test_a_wrong_password_is_a_fault_of_the_settings(
    make_desk: Callable[..., Desk], sandbox: Sandbox, kind: str
) -> None:
    url = changed(servers.shared(kind).url(), password=f"{SECRET}wrong")
    desk = make_desk(SENDONCE_STATE=url, SENDONCE_JOB=job())
    desk.prepare()

    assert_refused(desk.send(), 78, "says no: it does not accept", "Nothing further is sent")
    assert sandbox.calls() == []


@pytest.mark.parametrize(
    ("kind", "said"),
    [("redis", "it wants a password, and the URL has none"), ("postgresql", "it does not accept")],
)
def test_a_url_without_the_password_that_is_wanted_is_a_fault_of_the_settings(
    make_desk: Callable[..., Desk], kind: str, said: str
) -> None:
    url = servers.shared(kind).url().replace(f":{quote(servers.PASSWORD, safe='')}@", "@")
    desk = make_desk(SENDONCE_STATE=url, SENDONCE_JOB=job())
    desk.prepare()

    assert_refused(desk.send(), 78, said)


@pytest.mark.parametrize(
    ("kind", "database", "said"),
    [
        ("redis", "99", "it has no database of that number"),
        ("postgresql", "sendonce_nowhere", "it has no such database"),
        ("mariadb", "sendonce_nowhere", "it has no such database"),
        ("mariadb", "mysql", "the user in the URL may not do what is needed there"),
    ],
)
def test_a_database_that_is_not_there_or_not_ours_is_a_fault_of_the_settings(
    make_desk: Callable[..., Desk], sandbox: Sandbox, kind: str, database: str, said: str
) -> None:
    desk = make_desk(
        SENDONCE_STATE=changed(servers.shared(kind).url(), database=database), SENDONCE_JOB=job()
    )
    desk.prepare()

    assert_refused(desk.send(), 78, said)
    assert sandbox.calls() == []


@pytest.mark.parametrize(
    ("kind", "option"),
    [
        ("redis", "nonsense=1"),
        ("postgresql", "nonsense=1"),
        ("postgresql", "sslmode=nonsense"),
        ("mariadb", "nonsense=1"),
    ],
)
def test_an_option_of_the_url_that_the_driver_does_not_know_is_a_fault_of_the_settings(
    kind: str, option: str
) -> None:
    place = Place(kind, f"{servers.shared(kind).url()}?{option}", job())

    with pytest.raises(StateUnusable) as fault:
        place.ledger().load(DAY)
    assert f"127.0.0.1:{servers.shared(kind).port}" in fault.value.message
    assert SECRET not in fault.value.message


def test_an_option_of_the_url_that_would_change_what_answers_look_like_does_not(
    make_desk: Callable[..., Desk], sandbox: Sandbox
) -> None:
    url = f"{servers.shared('redis').url()}?decode_responses=true"
    desk = make_desk(SENDONCE_STATE=url, SENDONCE_JOB=job())
    desk.prepare()

    assert [desk.send().code, desk.send().code] == [0, 0]
    assert sandbox.accepted() == 1


# ---- a server that cannot be written to ----


@pytest.mark.parametrize("does_serve_stale_data", [True, False])
def test_a_replica_of_redis_is_not_written_to(
    make_desk: Callable[..., Desk], sandbox: Sandbox, does_serve_stale_data: bool
) -> None:
    with servers.private("redis") as server:
        desk = make_desk(SENDONCE_STATE=server.url(), SENDONCE_JOB=job())
        desk.prepare()
        if not does_serve_stale_data:
            server.client().config_set("replica-serve-stale-data", "no")
        server.client().execute_command("REPLICAOF", "127.0.0.1", "1")

        if does_serve_stale_data:
            assert_refused(desk.send(), 78, "it is a read-only replica: name the primary in SENDONCE_STATE")
        else:  # it may have its primary back in a moment
            assert_refused(desk.send(), 75, "could not be reached")
        assert sandbox.sends() == 0

        server.client().execute_command("REPLICAOF", "NO", "ONE")
        assert desk.send().code == 0


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_read_only_database_is_not_written_to(
    make_desk: Callable[..., Desk], sandbox: Sandbox, kind: str
) -> None:
    with servers.private(kind) as server:
        desk = make_desk(SENDONCE_STATE=server.url(), SENDONCE_JOB=job())
        desk.prepare()
        assert desk.run("init").code == 0
        read_only = {
            "postgresql": ("ALTER DATABASE sendonce SET default_transaction_read_only = {}", "on", "off"),
            "mariadb": ("SET GLOBAL read_only = {}", "1", "0"),
        }[kind]
        server.asked(read_only[0].format(read_only[1]))

        assert_refused(desk.send(), 78, "it is read-only, as a replica is: name the primary")
        assert desk.run("ledger", "list").code == 0
        assert sandbox.sends() == 0

        # with the right that the setting itself takes away
        server.asked(
            "SET default_transaction_read_only = off" if kind == "postgresql" else "SELECT 1",
            read_only[0].format(read_only[2]),
        )
        assert desk.send().code == 0


def test_a_redis_without_memory_at_the_start_refuses_and_sends_nothing(
    make_desk: Callable[..., Desk], sandbox: Sandbox
) -> None:
    with servers.private("redis") as server:
        desk = make_desk(SENDONCE_STATE=server.url(), SENDONCE_JOB=job())
        desk.prepare()
        server.client().config_set("maxmemory", "1")

        assert_refused(desk.send(), 78, "it is out of memory: raise maxmemory there, or make room")
        assert sandbox.sends() == 0

        server.client().config_set("maxmemory", "0")
        assert desk.send().code == 0
    assert desk.deliveries() == 1


def test_a_redis_that_runs_out_of_memory_in_mid_run_ends_it_before_the_send(
    make_desk: Callable[..., Desk], sandbox: Sandbox
) -> None:
    with servers.private("redis") as server:
        desk = make_desk(
            "html",
            SENDONCE_STATE=server.url(),
            SENDONCE_JOB=job(),
            SENDONCE_LISTING_SECONDS="3",
            SENDONCE_LEASE_SECONDS="60",
        )
        with desk.start("send-batch", "--date", DAY) as run:
            wait_until(lambda: bool(sandbox.calls("content")))
            server.client().config_set("maxmemory", "1")
            out, err = run.communicate(timeout=60)

        assert_refused(Ended(run.returncode, out, err), 78, "it is out of memory")
        assert sandbox.sends() == 0
        server.client().config_set("maxmemory", "0")
        assert desk.send_until_done()[-1] == 0
    assert desk.deliveries() == 1


# ---- tables ----


@pytest.mark.parametrize("kind", ["postgresql", "mariadb", "sqlite"])
def test_without_tables_nothing_is_sent_and_init_makes_them(
    make_desk: Callable[..., Desk], sandbox: Sandbox, tmp_path: Path, kind: str
) -> None:
    if kind == "sqlite":
        (tmp_path / "x.db").touch()
        url = f"sqlite:///{tmp_path}/x.db"
    else:
        server = servers.shared(kind)
        url = server.url(server.new_database())
    desk = make_desk(SENDONCE_STATE=url, SENDONCE_JOB=job())
    desk.prepare()

    assert_refused(desk.send(), 78, "has no tables of sendonce yet", "run `sendonce init`")
    assert sandbox.sends() == 0
    assert [desk.run("init").code, desk.send().code, desk.run("init").code] == [0, 0, 0]
    assert "was already sent" in desk.send().out
    assert sandbox.accepted() == 1


@pytest.mark.parametrize("kind", ["postgresql", "mariadb", "sqlite"])
def test_tables_of_a_newer_sendonce_are_left_alone(
    make_desk: Callable[..., Desk], sandbox: Sandbox, tmp_path: Path, kind: str
) -> None:
    if kind == "sqlite":
        place = new_place(kind, tmp_path)
    else:
        server = servers.shared(kind)
        place = Place(kind, server.url(server.new_database()), job())
        place.backend().prepare()
    place._sql("UPDATE sendonce_schema SET version = 99")
    desk = make_desk(SENDONCE_STATE=place.where, SENDONCE_JOB=place.job)
    desk.prepare()

    for command in (("send-batch", "--date", DAY), ("init",)):
        assert_refused(desk.run(*command), 78, "has tables of version 99, and this sendonce knows 3")
    assert place._sql("SELECT id, version FROM sendonce_schema") == [(1, 99)]
    assert sandbox.sends() == 0


@pytest.mark.parametrize("kind", ["postgresql", "mariadb", "sqlite"])
def test_one_table_that_is_missing_is_a_fault_that_says_so(tmp_path: Path, kind: str) -> None:
    if kind == "sqlite":
        place = new_place(kind, tmp_path)
    else:
        server = servers.shared(kind)
        place = Place(kind, server.url(server.new_database()), job())
        place.backend().prepare()
    place._sql("DROP TABLE sendonce_resets")

    with pytest.raises(StateUnusable, match="a table of sendonce is missing: run `sendonce init`"):
        place.ledger().load(DAY)


def test_a_database_file_is_ours_alone_and_not_made_by_a_send(
    make_desk: Callable[..., Desk], tmp_path: Path
) -> None:
    path = tmp_path / "x.db"
    desk = make_desk(SENDONCE_STATE=f"sqlite:///{path}", SENDONCE_JOB=job())
    desk.prepare()

    assert_refused(desk.send(), 78, f"sqlite:///{path}", "does not exist", "unmounted volume")
    assert not path.exists()
    before = os.umask(0)
    try:
        assert desk.run("init").code == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("what", ["a folder", "no database", "a cut one", "no folder", "a file as folder"])
def test_a_database_file_that_is_none_is_a_fault_that_names_it(tmp_path: Path, what: str) -> None:
    path = tmp_path / "x.db"
    match what:
        case "a folder":
            path.mkdir()
        case "no database":
            path.write_text("this is no database, it is a text that somebody put here\n" * 100)
        case "a cut one":
            new = new_place("sqlite", tmp_path)
            data = Path(new.where.removeprefix("sqlite:///")).read_bytes()
            path.write_bytes(data[: len(data) // 2] + b"\xff" * 5000)
        case "no folder":
            path = tmp_path / "nowhere" / "x.db"
        case _:
            (tmp_path / "file").touch()
            path = tmp_path / "file" / "x.db"

    with pytest.raises(StateUnusable, match=re.escape(f"sqlite:///{path}")):
        Place("sqlite", f"sqlite:///{path}", job()).ledger().load(DAY)


# ---- what is not installed ----

BLOCKER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {!r}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Blocker())
"""


@pytest.mark.parametrize("kind", [*SERVERS, "sqlite"])
def test_a_driver_that_is_not_installed_is_named_with_what_installs_it(
    make_desk: Callable[..., Desk], tmp_path: Path, kind: str
) -> None:
    if kind == "sqlite":
        url = f"sqlite:///{tmp_path}/x.db"
    else:
        url = f"{ {'redis': 'redis', 'postgresql': 'postgresql+psycopg', 'mariadb': 'mysql+pymysql'}[kind] }"
        url = f"{url}://u:{SECRET}@127.0.0.1:1/0"
    (tmp_path / "sitecustomize.py").write_text(BLOCKER.format(DRIVER[kind]))
    desk = make_desk(SENDONCE_STATE=url, SENDONCE_JOB=job())
    desk.prepare()

    for command in (("send-batch", "--date", DAY), ("init",)) if kind == "redis" else (("ledger", "list"),):
        ended = desk.run(*command, environ={"PYTHONPATH": str(tmp_path)})
        assert_refused(ended, 78, "is not installed", f"pip install 'sendonce[{EXTRA[kind]}]'")


# ---- the URL, and its password ----


@pytest.mark.parametrize(
    "url",
    [
        f"mongodb://u:{SECRET}@h/d",
        f"redis://u:{SECRET}",
        f"postgres://u:{SECRET}@h/d",
        f"redis://:{SECRET}/x@h/0",
    ],
)
def test_a_url_that_cannot_be_used_shows_no_more_of_itself_than_its_scheme(desk: Desk, url: str) -> None:
    desk.write_env(SENDONCE_STATE=url)

    assert_refused(desk.run("-v", "lock", "status"), 78, "SENDONCE_STATE", url.partition("://")[0])
    ended = desk.run("--json", "lock", "status")
    assert ended.code == 78
    assert SECRET not in ended.all


def test_the_url_may_be_in_a_file_of_its_own(make_desk: Callable[..., Desk], sandbox: Sandbox) -> None:
    desk = make_desk(SENDONCE_JOB=job())
    desk.prepare()
    file = desk.folder / "url"
    file.touch(mode=0o600)
    file.write_text(f"{servers.shared('redis').url()}\n")
    desk.write_env(SENDONCE_STATE=None, SENDONCE_STATE_FILE=str(file))

    assert desk.send().code == 0
    assert "was already sent" in desk.send().out
    assert desk.leftovers() == []

    desk.write_env(SENDONCE_STATE=str(desk.state))
    assert_refused(desk.send(), 78, "SENDONCE_STATE", "SENDONCE_STATE_FILE", "are both set; leave one")
    assert sandbox.accepted() == 1


@pytest.mark.parametrize("kind", SERVERS)
def test_the_password_is_nowhere_in_what_is_said_or_logged(make_desk: Callable[..., Desk], kind: str) -> None:
    log = "run.log"
    place = new_place(kind, Path())
    desk = make_desk(SENDONCE_STATE=place.where, SENDONCE_JOB=place.job, SENDONCE_LOG_FILE=log)
    desk.prepare()
    said = ""
    with place_lease(place):
        said += desk.run("--json", "lock", "status").all
        said += desk.run("-v", "lock", "break").all
    for command in (
        ("-v", "send-batch", "--date", DAY),
        ("--json", "ledger", "list"),
        ("--json", "init"),
        ("ledger", "rebuild", "--yes"),
    ):
        ended = desk.run(*command)
        assert ended.code == 0, ended
        said += ended.all
    said += (desk.folder / log).read_text()

    assert "127.0.0.1" in said
    assert place.job in said
    assert SECRET not in said
    assert quote(servers.PASSWORD, safe="") not in said


class place_lease:  # noqa: N801 - reads as a word in a with statement
    """Hold a place's lease."""

    def __init__(self, place: Place) -> None:
        self._lease = place.lease(lease_s=60)

    def __enter__(self) -> None:
        self._lease.acquire(None)

    def __exit__(self, *_: object) -> None:
        self._lease.release()


@pytest.mark.parametrize("kind", SERVERS)
def test_a_bug_shows_no_password_either(make_desk: Callable[..., Desk], tmp_path: Path, kind: str) -> None:
    module, name = {
        "redis": ("redis.connection", "AbstractConnection.connect"),
        "postgresql": ("psycopg", "connect"),
        "mariadb": ("pymysql.connections", "Connection.connect"),
    }[kind]
    (tmp_path / "sitecustomize.py").write_text(
        f"import {module} as at\n"
        "def broken(*args, **more):\n    raise RuntimeError(f'{args} {more} {vars(args[0]) if args else 0}')\n"
        f"at.{name} = broken\n"
    )
    place = new_place(kind, tmp_path)
    desk = make_desk(SENDONCE_STATE=place.where, SENDONCE_JOB=place.job, SENDONCE_LOG_FILE="log")
    desk.prepare()

    ended = desk.send(environ={"PYTHONPATH": str(tmp_path)})

    assert ended.code == 70
    assert SECRET not in ended.all


# ---- what init says of a server's settings ----


def warnings_of(desk: Desk) -> list[str]:
    """What `init` warns about."""
    ended = desk.run("init")
    assert ended.code == 0, ended
    return [line.removeprefix("Warning: ") for line in ended.err.splitlines() if line.startswith("Warning")]


def test_init_warns_of_a_redis_that_forgets_or_evicts(make_desk: Callable[..., Desk]) -> None:
    with servers.private("redis") as server:
        desk = make_desk(SENDONCE_STATE=server.url(), SENDONCE_JOB=job())
        client = server.client()

        client.config_set("maxmemory-policy", "allkeys-lru")
        forgets, evicts = warnings_of(desk)
        assert "appendonly no" in forgets
        assert "maxmemory-policy allkeys-lru" in evicts

        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("appendonly", "yes")
        assert warnings_of(desk) == []

        client.execute_command("ACL", "SETUSER", "default", "-config")
        assert "does not tell its settings" in warnings_of(desk)[0]


def test_a_redis_that_gives_us_what_we_need_and_no_more_is_enough(
    make_desk: Callable[..., Desk], sandbox: Sandbox
) -> None:
    with servers.private("redis") as server:
        rules = ["on", f">{servers.PASSWORD}", "~sendonce:*", "resetchannels", "-@all", "+@read", "+@write"]
        rules += ["+@connection", "+@transaction", "+eval"]
        server.client().execute_command("ACL", "SETUSER", "app", "reset", *rules)
        desk = make_desk(SENDONCE_STATE=server.url().replace("://:", "://app:"), SENDONCE_JOB=job())
        desk.prepare()

        assert [desk.run("init").code, desk.send().code, desk.send().code] == [0, 0, 0]
        server.client().execute_command("ACL", "SETUSER", "app", "-eval")
        assert_refused(desk.send(day="2026-01-06"), 78, "the user in the URL may not do what is needed")
    assert sandbox.accepted() == 1


def test_init_warns_of_a_database_that_forgets(make_desk: Callable[..., Desk]) -> None:
    for kind, option, forgets, keeps in (
        ("postgresql", "fsync", "off", "on"),
        ("mariadb", "innodb-flush-log-at-trx-commit", "2", "1"),
    ):
        place = new_place(kind, Path())
        desk = make_desk(SENDONCE_STATE=place.where, SENDONCE_JOB=place.job)
        [said] = warnings_of(desk)
        assert option.replace("-", "_") in said
        assert f"is {forgets} on the server" in said
        with servers.private(kind, **{option: keeps}) as server:
            desk.write_env(SENDONCE_STATE=server.url())
            assert warnings_of(desk) == []


# ---- a server that dies, and comes back with or without what it knew ----


def test_a_redis_that_lost_its_memory_between_runs_costs_nothing(
    make_desk: Callable[..., Desk], sandbox: Sandbox
) -> None:
    with servers.private("redis") as server:
        desk = make_desk(SENDONCE_STATE=server.url(), SENDONCE_JOB=job())
        desk.prepare()
        assert desk.send().code == 0
        server.kill()
        assert desk.send().code == 75
        server.start()
        assert state_of(desk, "redis") == "-"

        assert desk.send().code == 0
        assert state_of(desk, "redis") == "sent"
    assert sandbox.sends() == 1


def _run_with_an_accident(
    desk: Desk, sandbox: Sandbox, kind: str, when: str, accident: Callable[[], object]
) -> int:
    """Start a run, have the accident happen at a certain moment, and give the run's exit code."""
    if when == "before the answer to the send":
        sandbox.faults("post=accept-hang")
    with desk.start("send-batch", "--date", DAY) as run:
        if when == "before the send":
            wait_until(lambda: bool(sandbox.calls("content")))
        else:
            wait_until(lambda: sandbox.accepted() == 1)
        accident()
        run.communicate(timeout=60)
    sandbox.faults()
    return run.returncode


MOMENTS = ("before the send", "before the answer to the send")


def _desk_for_accidents(make_desk: Callable[..., Desk], server: Any) -> Desk:
    desk = make_desk("html", SENDONCE_STATE=server.url(), SENDONCE_JOB=job(), SENDONCE_LISTING_SECONDS="2")
    assert desk.run("init").code == 0
    return desk


@pytest.mark.parametrize(
    ("kind", "when"), [*((kind, MOMENTS[1]) for kind in SERVERS), ("postgresql", MOMENTS[0])]
)
def test_a_server_that_is_killed_in_mid_run_and_started_again_costs_nothing(
    make_desk: Callable[..., Desk], sandbox: Sandbox, kind: str, when: str
) -> None:
    options = {"appendonly": "yes", "appendfsync": "always"} if kind == "redis" else {}
    with servers.private(kind, **options) as server:
        desk = _desk_for_accidents(make_desk, server)

        def accident() -> None:
            server.kill()
            server.start()

        code = _run_with_an_accident(desk, sandbox, kind, when, accident)

        assert code in {0, 75}
        assert state_of(desk, kind) != "-"
        assert desk.send_until_done()[-1] == 0
        assert state_of(desk, kind) == "sent"
    assert desk.deliveries() == 1


@pytest.mark.parametrize("when", MOMENTS)
def test_a_redis_that_loses_its_memory_in_mid_run_costs_nothing(
    make_desk: Callable[..., Desk], sandbox: Sandbox, when: str
) -> None:
    with servers.private("redis") as server:
        desk = _desk_for_accidents(make_desk, server)

        def accident() -> None:
            server.kill()
            server.start()

        # the lease is gone with the rest, so this run writes and sends nothing further
        assert _run_with_an_accident(desk, sandbox, "redis", when, accident) == 75
        assert sandbox.sends() == (0 if when == "before the send" else 1)
        assert desk.send_until_done()[-1] == 0
        assert state_of(desk, "redis") == "sent"
    assert desk.deliveries() == 1


@pytest.mark.parametrize(
    ("kind", "when"), [("redis", MOMENTS[0]), ("postgresql", MOMENTS[1]), ("mariadb", MOMENTS[1])]
)
def test_a_server_that_is_gone_for_the_rest_of_the_run_costs_nothing(
    make_desk: Callable[..., Desk], sandbox: Sandbox, kind: str, when: str
) -> None:
    options = {"appendonly": "yes", "appendfsync": "always"} if kind == "redis" else {}
    with servers.private(kind, **options) as server:
        desk = _desk_for_accidents(make_desk, server)

        assert _run_with_an_accident(desk, sandbox, kind, when, server.kill) == 75
        assert sandbox.sends() == (0 if when == "before the send" else 1)
        assert desk.send().code == 75
        server.start()
        assert desk.send_until_done()[-1] == 0
        assert state_of(desk, kind) == "sent"
    assert desk.deliveries() == 1


def test_a_server_that_hangs_is_given_up_on(make_desk: Callable[..., Desk], sandbox: Sandbox) -> None:
    with servers.private("redis") as server:
        desk = make_desk(SENDONCE_STATE=server.url(), SENDONCE_JOB=job())
        desk.prepare()
        os.kill(server.pid, signal.SIGSTOP)
        try:
            ended = desk.run("-v", "send-batch", "--date", DAY)
        finally:
            os.kill(server.pid, signal.SIGCONT)

        assert_refused(ended, 75, "did not answer within 10 s")
        assert sandbox.calls() == []
        assert desk.send().code == 0
    assert desk.deliveries() == 1
