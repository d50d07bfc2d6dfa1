"""Several runners with one lease and ledger on a server, or with nothing in common: one delivery, whatever fails."""

from __future__ import annotations

import random
import signal
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from sendonce.adapters.shared.backend import Owner
from support import servers
from support.aftermath import finish
from support.interrupts import (
    check_sent_once,
    has_stopped,
    let_pass,
    never_left_behind,
    signal_itself,
)
from support.places import new_place
from support.proxy import COMMIT, WRITES, Fault, Proxy, Side, Then
from support.runs import DAY, Desk, Ended, wait_until
from support.sandbox import LIST_ID
from support.shared_desk import SharedDesk, clock_off_by, place_on

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from support.places import Place
    from support.sandbox import Sandbox

STORES = ("redis", "postgresql")
SOURCES = ("draft", "replicate", "html")
OFFSETS_S = (-600, -410, -200, -60, 0, 130, 350, 600)
"""How wrong the clocks of eight runners are."""
SENDS_OF_HTTP = {"draft": 5, "html": 12}
"""How often a run sends something to Mailchimp: a POST or PUT is sent in two pieces, head and body."""
NO_RENEWALS = {"SENDONCE_LEASE_SECONDS": "60"}
"""With a lease so long none is renewed within a run: what it asks its server is the same each time."""


class Stage:
    """Days and runners for case after case, each of a job that no other knows, at one place and on one sandbox."""

    def __init__(self, folder: Path, sandbox: Sandbox, place: Place, port: int) -> None:
        self._folder, self._sandbox, self._place, self._port = folder, sandbox, place, port
        self._days = (date(2016, 1, 1) + timedelta(days=n) for n in count())

    def next(self, source: str, **settings: str) -> tuple[SharedDesk, str]:
        """The next case's runner and day, ready to send."""
        day = next(self._days).isoformat()
        place = replace(self._place, job=f"{self._place.job}-{day}")
        timing = {"SENDONCE_LISTING_SECONDS": "0"}
        desk = SharedDesk(
            self._folder / day, self._sandbox, source, place=place, port=self._port, **timing, **settings
        )
        desk.prepare(day)
        return desk, day


@pytest.fixture
def stage(tmp_path: Path, sandbox: Sandbox) -> Callable[[Place, Proxy], Stage]:
    return lambda place, proxy: Stage(tmp_path, sandbox, place, proxy.port)


def all_at_once(
    desks: Sequence[Desk], day: str = DAY, environs: Iterable[Mapping[str, str]] = ()
) -> list[Ended]:
    """Have every runner send, all at the same time."""
    told = [*environs] or [{} for _ in desks]
    runs = [
        desk.start("send-batch", "--date", day, environ=environ)
        for desk, environ in zip(desks, told, strict=True)
    ]
    with never_left_behind(*runs):
        said = [run.communicate(timeout=100) for run in runs]
    return [Ended(run.returncode, *texts) for run, texts in zip(runs, said, strict=True)]


def ended_well(ended: Ended, desk: Desk, day: str, *, has_asked: bool) -> None:
    """A run that lost its server is no bug and no refusal, and does not say that nothing was sent if it may have been."""
    assert ended.code in {0, 75}, ended
    assert "Traceback" not in ended.err, ended
    assert servers.SECRET not in ended.all
    if ended.code == 0:
        assert has_asked
        assert desk.record(day)["state"] == "sent", ended
    elif has_asked:
        assert "was requested" in ended.err, ended
    else:
        assert "was requested" not in ended.err, ended


# ------------------------------------------------------------------------------------ eight runners, one server


@pytest.mark.parametrize("off_s", [-600, 600])
def test_the_clock_of_a_runner_that_is_wrong_decides_nothing_but_when_its_attempt_was(
    off_s: int, sandbox: Sandbox, tmp_path: Path
) -> None:
    desk = SharedDesk(tmp_path / "desk", sandbox, place=new_place("redis", tmp_path))
    desk.prepare()
    assert desk.send(environ=clock_off_by(tmp_path / "clock", off_s)).code == 0
    record = desk.record()
    [campaign], [attempt] = record["campaigns"], record["attempts"]
    asked, ended = (datetime.fromisoformat(t) for t in (campaign["requested_at"], attempt["ended_at"]))
    # the former by Mailchimp's clock, the latter by the runner's
    assert abs((ended - asked).total_seconds() - off_s) < 120
    check_sent_once(desk, is_fault_run=False)


def many_rounds(small: int) -> list[Any]:
    """How often eight runners meet: a few times, or fifty with -m full."""
    return [small, pytest.param(50, marks=[pytest.mark.full, pytest.mark.timeout(3600)])]


@pytest.mark.parametrize("rounds", many_rounds(1))
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("kind", [*STORES, pytest.param("mariadb", marks=pytest.mark.full)])
def test_eight_runners_at_once_whose_clocks_disagree_send_once(
    kind: str, source: str, rounds: int, sandbox: Sandbox, tmp_path: Path
) -> None:
    place = new_place(kind, tmp_path)
    runners = [SharedDesk(tmp_path / f"{n}", sandbox, source, place=place) for n in range(8)]
    clocks = [clock_off_by(tmp_path / f"clock{n}", off_s) for n, off_s in enumerate(OFFSETS_S)]
    for nth in range(rounds):
        day = (date(2016, 1, 1) + timedelta(days=nth)).isoformat()
        runners[0].prepare(day)
        sends = sandbox.sends()
        random.Random(nth).shuffle(clocks)
        ends = all_at_once(runners, day, clocks)
        assert {ended.code for ended in ends} <= {0, 75}, ends
        assert 0 in {ended.code for ended in ends}
        assert sandbox.sends() - sends == 1
        check_sent_once(runners[0], day)


# ---------------------------------------------------------------------------------- the network to the server


class Case(NamedTuple):
    """A run with that source that meets that fault on its way to a server of that kind."""

    kind: str
    source: str
    fault: Fault

    def __str__(self) -> str:
        """Short enough for a test's name."""
        return f"{self.kind}-{self.source}-{self.fault}"


REQUESTS = {
    # some reads, the lease, and a request for each write of the ledger or check of it
    ("redis", "draft"): (12, 8),
    ("redis", "html"): (16, 12),
    # each of these is a transaction of six statements and more; its COMMIT decides
    ("postgresql", "draft"): (126, 14),
    ("postgresql", "html"): (156, 18),
}
"""How many requests a good run makes at least, and how many of them may change something (or are a COMMIT)."""


def some_cuts(kind: str, source: str, how_many: int) -> list[Case]:
    """A sample, the same each time: in every second one the fault is at a write."""
    chosen = random.Random(f"{kind} {source}")
    of_all, of_writes = REQUESTS[kind, source]
    faults = []
    for n in range(how_many):
        part, among = (WRITES[kind], of_writes) if n % 2 == 0 else (b"", of_all)
        # the lost answer is the worse fault, the lost server the more frequent
        side = Side.AFTER if part or chosen.getrandbits(1) else Side.BEFORE
        then = (Then.CUT, Then.DOWN)[chosen.getrandbits(1)]
        faults.append(Fault(chosen.randint(1, among), side, then, part))
    return [Case(kind, source, fault) for fault in faults]


def meet(case: Case, proxy: Proxy, stage: Stage) -> bool:
    """Have a run meet the fault, and later ones finish the day; whether it was met."""
    desk, day = stage.next(case.source, **NO_RENEWALS)
    asked = desk.sandbox.sends()
    proxy.meet(case.fault)
    ended = desk.send(day=day)
    is_met = proxy.has_met.is_set()
    proxy.meet(None)
    ended_well(ended, desk, day, has_asked=desk.sandbox.sends() > asked)
    if not is_met:
        assert (ended.code, ended.err) == (0, ""), (str(case), ended)
        check_sent_once(desk, day, is_fault_run=False)
        return False
    if case.kind == "redis" and case.fault.then is Then.CUT:
        # the client asks once more, and must not take its own change for somebody else's
        assert ended.code == 0, (str(case), ended)
    if desk.is_held():  # nobody is told; an hour of cron's is not to be waited for here
        assert desk.run("lock", "break", "--yes").code == 0
    finish(desk, day, what=f"{case}: {ended}")
    return True


@pytest.mark.parametrize("source", ["draft", "html"])
@pytest.mark.parametrize("kind", STORES)
def test_a_run_that_is_cut_off_from_its_server_at_some_request_is_finished_by_the_next(
    kind: str, source: str, tmp_path: Path, stage: Callable[[Place, Proxy], Stage]
) -> None:
    with Proxy(kind, servers.shared(kind).port) as proxy:
        on = stage(new_place(kind, tmp_path), proxy)
        for case in some_cuts(kind, source, 4):
            assert meet(case, proxy, on), str(case)


@pytest.mark.full
@pytest.mark.timeout(2 * 3600)
@pytest.mark.parametrize("side", Side, ids=lambda side: side.value)
@pytest.mark.parametrize("then", [Then.CUT, Then.DOWN], ids=lambda then: then.value)
@pytest.mark.parametrize("source", ["draft", "html"])
@pytest.mark.parametrize("kind", STORES)
def test_a_run_that_is_cut_off_from_its_server_at_any_request_is_finished_by_the_next(
    kind: str, source: str, then: Then, side: Side, tmp_path: Path, stage: Callable[[Place, Proxy], Stage]
) -> None:
    with Proxy(kind, servers.shared(kind).port) as proxy:
        on = stage(new_place(kind, tmp_path), proxy)
        nth = 1
        while meet(Case(kind, source, Fault(nth, side, then)), proxy, on):
            nth += 1
    print(f"{kind}, {source}: {nth - 1} requests, {then.value} {side.value} each")
    assert nth - 1 >= REQUESTS[kind, source][0]


def test_a_lease_that_is_broken_by_force_has_not_changed_hands_because_an_answer_was_lost(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    place = new_place("redis", tmp_path)
    with Proxy("redis", servers.shared("redis").port) as proxy:
        desk = SharedDesk(tmp_path / "desk", sandbox, place=place, port=proxy.port)
        place.backend().take(Owner("f" * 32, "another", 1), 60)
        proxy.meet(Fault(1, Side.AFTER, Then.CUT, b"'DEL'"))
        ended = desk.run("lock", "break", "--yes")
        assert proxy.has_met.is_set()
    assert ended.code == 0, ended
    assert "The lease was removed." in ended.out
    assert not desk.is_held()


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_runner_that_falls_silent_in_the_middle_of_a_transaction_does_not_hold_up_the_others_for_good(
    kind: str, sandbox: Sandbox, tmp_path: Path
) -> None:
    place = new_place(kind, tmp_path)
    with Proxy(kind, servers.shared(kind).port) as proxy:
        silent = SharedDesk(tmp_path / "silent", sandbox, place=place, port=proxy.port)
        other = SharedDesk(tmp_path / "other", sandbox, place=place)
        silent.prepare()
        proxy.meet(Fault(1, Side.AFTER, Then.SILENT, part=b"UPDATE sendonce_leases"))
        run = silent.start("send-batch", "--date", DAY)
        with never_left_behind(run):
            wait_until(proxy.has_met.is_set, what="the transaction that has locked the lease's row")
            codes = other.send_until_done(at_most=3)
            assert codes[-1] == 0, codes
    check_sent_once(other)


# --------------------------------------------------------------------------------------- the server is killed


SERVERS = {
    "redis": ("redis", {"appendonly": "yes"}),
    "redis without a memory": ("redis", {}),
    "postgresql": ("postgresql", {}),
}
UP_AGAIN = {"at once": True, "when the run has ended": False}


@contextmanager
def server_to_kill(name: str) -> Iterator[tuple[servers.Server, Place]]:
    kind, options = SERVERS[name]
    with servers.private(kind, **options) as server:
        yield server, place_on(server)


def stopped_at(desk: SharedDesk, day: str, folder: Path, nth: int, part: str = "") -> subprocess.Popen[str]:
    """A run that is stopped right before it sends its nth piece of a request with `part` in it to Mailchimp."""
    hook = signal_itself(folder, signal.SIGSTOP, events={"http.client.send"}, part=part, nth=nth)
    run = desk.start("send-batch", "--date", day, environ=hook)
    wait_until(lambda: has_stopped(run), what=f"{part or 'piece'} number {nth}")
    return run


def woken(run: subprocess.Popen[str]) -> Ended:
    run.send_signal(signal.SIGCONT)
    out, err = run.communicate(timeout=100)
    return Ended(run.returncode, out, err)


def kill_at_a_piece(server: servers.Server, stage: Stage, source: str, nth: int, up_again: str) -> None:
    """Kill the server while a run is about to send its nth piece to Mailchimp; judge the run and finish the day."""
    desk, day = stage.next(source)
    asked = desk.sandbox.sends()
    run = stopped_at(desk, day, desk.folder / "hook", nth)
    with never_left_behind(run):
        server.kill()
        if UP_AGAIN[up_again]:
            server.start()
        ended = woken(run)
    if not UP_AGAIN[up_again]:
        server.start()
    ended_well_or_forgotten(ended, desk, day, has_asked=desk.sandbox.sends() > asked)
    finish(desk, day, what=f"killed at piece {nth}: {ended}")


def kill_at_a_write(server: servers.Server, proxy: Proxy, stage: Stage, source: str, fault: Fault) -> bool:
    """Kill the server before or after a write takes effect; judge the run and finish the day. Whether it was met."""
    desk, day = stage.next(source)
    asked = desk.sandbox.sends()
    proxy.meet(fault)
    ended = desk.send(day=day)
    is_met = proxy.has_met.is_set()
    if fault.then is Then.DOWN and is_met:
        server.start()
    proxy.meet(None)
    ended_well_or_forgotten(ended, desk, day, has_asked=desk.sandbox.sends() > asked)
    if is_met:
        finish(desk, day, what=f"killed {fault}: {ended}")
    return is_met


def ended_well_or_forgotten(ended: Ended, desk: SharedDesk, day: str, *, has_asked: bool) -> None:
    """As `ended_well`, on a server that may have lost what it was told: then the record says nothing."""
    if desk.record(day):
        ended_well(ended, desk, day, has_asked=has_asked)
    assert ended.code in {0, 75}, ended
    assert ended.code == 75 or has_asked
    assert "Traceback" not in ended.err


def some(name: str, source: str, among: int, how_many: int) -> list[int]:
    return sorted(random.Random(f"{name} {source}").sample(range(1, among + 1), how_many))


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_that_is_killed_at_some_step_of_a_run_costs_no_mail_and_sends_none_twice(
    name: str, stage: Callable[[Place, Proxy], Stage]
) -> None:
    source = {"redis": "html", "redis without a memory": "html", "postgresql": "draft"}[name]
    with server_to_kill(name) as (server, place), Proxy(place.kind, server.port) as proxy:
        on = stage(place, proxy)
        proxy.meet(None)
        # among the pieces always the send itself
        pieces = SENDS_OF_HTTP[source]
        for nth, up_again in zip([pieces - 1, *some(name, source, pieces, 1)], UP_AGAIN, strict=True):
            kill_at_a_piece(server, on, source, nth, up_again)
        writes = some(name, source, REQUESTS[place.kind, source][1], 2)
        for nth, fault in zip(writes, faults_that_kill(server, place.kind), strict=False):
            kill_at_a_write(server, proxy, on, source, replace(fault, nth=nth))


def faults_that_kill(server: servers.Server, kind: str) -> list[Fault]:
    """Those to come at any write: it took effect or not, and the server is there again at once or later."""

    def killed_and_started() -> None:
        server.kill()
        server.start()

    part = WRITES[kind]
    return [
        Fault(1, Side.AFTER, Then.CUT, part, killed_and_started),
        Fault(1, Side.BEFORE, Then.DOWN, part, server.kill),
        Fault(1, Side.AFTER, Then.DOWN, part, server.kill),
        Fault(1, Side.BEFORE, Then.CUT, part, killed_and_started),
    ]


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("up_again", UP_AGAIN)
@pytest.mark.parametrize("source", ["draft", "html"])
@pytest.mark.parametrize("name", SERVERS)
def test_a_server_that_is_killed_at_any_request_to_mailchimp_costs_no_mail_and_sends_none_twice(
    name: str, source: str, up_again: str, stage: Callable[[Place, Proxy], Stage]
) -> None:
    with server_to_kill(name) as (server, place), Proxy(place.kind, server.port) as proxy:
        on = stage(place, proxy)
        for nth in range(1, SENDS_OF_HTTP[source] + 1):
            kill_at_a_piece(server, on, source, nth, up_again)


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize("source", ["draft", "html"])
@pytest.mark.parametrize("name", SERVERS)
def test_a_server_that_is_killed_at_any_write_costs_no_mail_and_sends_none_twice(
    name: str, source: str, which: int, stage: Callable[[Place, Proxy], Stage]
) -> None:
    with server_to_kill(name) as (server, place), Proxy(place.kind, server.port) as proxy:
        on, fault, nth = stage(place, proxy), faults_that_kill(server, place.kind)[which], 1
        while kill_at_a_write(server, proxy, on, source, replace(fault, nth=nth)):
            nth += 1
        print(
            f"{name}, {source}: killed {fault.side.value} each of {nth - 1} writes, then {fault.then.value}"
        )
        assert nth > REQUESTS[place.kind, source][1]


# ------------------------------------------------------------------------------------ failover in mid-run


def demote(server: Any) -> None:
    """Make the primary a read-only replica, of one that is not there."""
    if server.kind == "redis":
        with server.client() as client:
            client.replicaof("127.0.0.1", 1)
        return
    server.asked("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
    wait_until(lambda: server.asked("SHOW default_transaction_read_only") == [("on",)])


def promote(server: Any) -> None:
    """Have it take writes again."""
    if server.kind == "redis":
        with server.client() as client:
            client.replicaof("NO", "ONE")
        return
    server.asked(
        "SET default_transaction_read_only = off",
        "ALTER SYSTEM RESET default_transaction_read_only",
        "SELECT pg_reload_conf()",
    )
    wait_until(lambda: server.asked("SHOW default_transaction_read_only") == [("off",)])


def recorded(proxy: Proxy, kind: str, what: bytes, act: Callable[[], object]) -> None:
    """Have this done when the next write with `what` in it has taken effect, before its answer is heard."""
    if kind == "redis":
        proxy.meet(Fault(1, Side.AFTER, Then.GOES_ON, what, act))
        return
    then = Fault(1, Side.AFTER, Then.GOES_ON, COMMIT, act)
    proxy.meet(Fault(1, Side.BEFORE, Then.GOES_ON, what, lambda: proxy.meet(then)))


@pytest.mark.parametrize("source", ["draft", "html"])
@pytest.mark.parametrize("kind", STORES)
def test_a_primary_that_becomes_read_only_before_the_post_stops_it(
    kind: str, source: str, stage: Callable[[Place, Proxy], Stage]
) -> None:
    with servers.private(kind) as server, Proxy(kind, server.port) as proxy:
        desk, day = stage(place_on(server), proxy).next(source, **NO_RENEWALS)
        recorded(proxy, kind, b"sending", lambda: demote(server))
        ended = desk.send(day=day)
        assert ended.code == 78, ended
        assert "read-only" in ended.err
        assert "Nothing further is sent" in ended.err
        assert desk.sandbox.sends() == 0
        assert desk.record(day)["state"] == "sending"
        promote(server)
        assert desk.run("lock", "break", "--yes").code == 0
        finish(desk, day)


@pytest.mark.parametrize("source", ["draft", "html"])
@pytest.mark.parametrize("kind", STORES)
def test_a_primary_that_becomes_read_only_after_the_post_leads_to_a_rerun(
    kind: str, source: str, tmp_path: Path, stage: Callable[[Place, Proxy], Stage]
) -> None:
    with servers.private(kind) as server, Proxy(kind, server.port) as proxy:
        desk, day = stage(place_on(server), proxy).next(source, **NO_RENEWALS)
        run = stopped_at(desk, day, tmp_path / "hook", 1, part="/actions/send")
        with never_left_behind(run):
            demote(server)
            ended = woken(run)
        assert ended.code == 75, ended
        assert "was requested, and then: The " in ended.err
        assert "read-only" in ended.err
        assert "newer" not in ended.err, "the sendonce that wrote it is not the matter"
        assert desk.sandbox.sends() == 1
        promote(server)
        assert desk.run("lock", "break", "--yes").code == 0
        assert desk.send(day=day).code == 0
        check_sent_once(desk, day)


@contextmanager
def primary_and_replica() -> Iterator[tuple[Any, Any]]:
    with servers.private("redis") as primary:
        following = {"replicaof": f"127.0.0.1 {primary.port}", "masterauth": servers.PASSWORD}
        with servers.private("redis", **following) as replica:
            wait_until(lambda: info(replica, "master_link_status") == "up", what="a replica that follows")
            yield primary, replica


def info(server: Any, name: str) -> object:
    with server.client() as client:
        return client.info("replication").get(name)


def fail_over(primary: Any, replica: Any, proxy: Proxy) -> None:
    """Have the replica take the primary's place, which is gone. All that the primary has said is on the replica."""
    with primary.client() as client:
        client.wait(1, 5000)
    primary.kill()
    promote(replica)
    proxy.to_port = replica.port


def test_a_run_goes_on_with_the_replica_that_has_taken_the_primarys_place(
    stage: Callable[[Place, Proxy], Stage],
) -> None:
    with primary_and_replica() as (primary, replica), Proxy("redis", primary.port) as proxy:
        desk, day = stage(place_on(primary), proxy).next("html", **NO_RENEWALS)
        proxy.meet(Fault(1, Side.AFTER, Then.CUT, b"sending", lambda: fail_over(primary, replica, proxy)))
        ended = desk.send(day=day)
        desk.place = replace(desk.place, where=replica.url())
        assert ended.code == 0, ended
        check_sent_once(desk, day)


def test_a_replica_that_has_not_heard_of_the_send_keeps_the_run_from_it(
    tmp_path: Path, stage: Callable[[Place, Proxy], Stage]
) -> None:
    with primary_and_replica() as (primary, replica), Proxy("redis", primary.port) as proxy:
        desk, day = stage(place_on(primary), proxy).next("draft", **NO_RENEWALS)
        # by the time of the first request to Mailchimp only the lease is there
        run = stopped_at(desk, day, tmp_path / "hook", 1)
        with never_left_behind(run):
            with primary.client() as client:
                client.wait(1, 5000)
            promote(replica)

            def gone() -> None:
                primary.kill()
                proxy.to_port = replica.port

            proxy.meet(Fault(1, Side.AFTER, Then.CUT, b"sending", gone))
            ended = woken(run)
        assert ended.code == 75, ended
        assert "changed by somebody else" in ended.err
        assert desk.sandbox.sends() == 0
        desk.place = replace(desk.place, where=replica.url())
        assert desk.send(day=day).code == 0
        check_sent_once(desk, day)


# ------------------------------------------------------------------------------------ a holder that was frozen


@pytest.mark.parametrize("source", ["draft", "html"])
@pytest.mark.parametrize("kind", STORES)
def test_a_runner_frozen_right_before_its_post_wakes_after_another_has_sent_and_does_no_harm(
    kind: str, source: str, sandbox: Sandbox, tmp_path: Path
) -> None:
    place = new_place(kind, tmp_path)
    frozen, other = (
        SharedDesk(
            tmp_path / name,
            sandbox,
            source,
            place=place,
            SENDONCE_LISTING_SECONDS="0",
            SENDONCE_SETTLE_SECONDS="30",
        )
        for name in ("frozen", "other")
    )
    frozen.prepare()
    run = stopped_at(frozen, DAY, tmp_path / "hook", 1, part="/actions/send")
    with never_left_behind(run):
        # a send that may be on its way is waited out before the same campaign is sent again
        assert other.send().code == 75
        assert sandbox.sends() == 0
        let_pass(sandbox, 60)
        assert other.send().code == 0
        ledger = other.record()
        ended = woken(run)
    assert ended.code == 75, ended
    assert "was requested, and then: " in ended.err
    assert "is no longer this run's" in ended.err
    assert other.record() == ledger, "the one that lost its lease has written"
    check_sent_once(other)


# ------------------------------------------------------------------------------------ runners that share nothing


@pytest.mark.parametrize("rounds", many_rounds(1))
@pytest.mark.parametrize("source", SOURCES)
def test_eight_runners_that_share_nothing_send_once_where_listings_lag_less_than_they_wait(
    source: str, rounds: int, sandbox: Sandbox, tmp_path: Path
) -> None:
    sandbox.settings(listing_lag_s=0.9)
    runners = [Desk(tmp_path / f"{n}", sandbox, source, SENDONCE_LISTING_SECONDS="1") for n in range(8)]
    twins = 0
    for nth in range(rounds):
        day = (date(2016, 1, 1) + timedelta(days=nth)).isoformat()
        runners[0].prepare(day)
        ends = all_at_once(runners, day)
        assert {ended.code for ended in ends} <= {0, 75}, ends
        # those that could not finish; a date that is sent is settled for the others
        for runner, ended in zip(runners, ends, strict=True):
            assert ended.code == 0 or runner.send_until_done(day=day)[-1] == 0
        ids = {check_sent_once(runner, day, is_fault_run=runner is runners[0]) for runner in runners}
        assert len(ids) == 1
        twins += drafts_left(sandbox, day)
    print(f"{source}: {rounds} rounds of eight, {twins} drafts made in vain")
    assert source != "draft" or twins == 0


@pytest.mark.parametrize("quietly", [(), ("-q",)])
def test_a_run_names_the_twin_that_it_finds_and_leaves_it_alone(
    quietly: tuple[str, ...], make_desk: Callable[..., Desk]
) -> None:
    desk = make_desk("html", SENDONCE_LISTING_SECONDS="0")
    made = [
        desk.sandbox.add_draft(f"Digest {DAY} [{nonce}]", list_id=LIST_ID, create_time=f"{DAY}T00:00:0{at}Z")
        for at, nonce in enumerate(("5e0e96f7", "00000000"))
    ]
    ended = desk.run(*quietly, "send-batch", "--date", DAY)
    assert ended.code == 0, ended
    said = (
        f'Warning: Another draft of {DAY} exists: "Digest {DAY} [00000000]" ({made[1]}); it is left alone.\n'
    )
    assert ended.err == ("" if quietly else said)
    assert check_sent_once(desk, is_fault_run=False) == made[0]
    assert desk.sandbox.campaign(made[1])["status"] == "save"


def drafts_left(sandbox: Sandbox, day: str) -> int:
    return sum(
        c["title"].startswith(f"Digest {day}") and c["status"] == "save" for c in sandbox.state()["campaigns"]
    )
