"""The state folder fills up, goes away, changes hands or goes back in time, before a run and in the middle of one.

What a rerun cannot cure is known before anything is sent (78); after a send that cannot be recorded a rerun is wanted
(75); and once all is well again there is one delivery. Ledgers and folders that are not ours from the start are in
process/test_cases_ledger.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pytest

from sendonce.adapters.clock import SystemClock
from sendonce.adapters.stores import FileLedger
from sendonce.core.model import Batch, State
from support.aftermath import finish
from support.interrupts import GOOD_RUN, has_stopped, let_pass, never_left_behind, signal_itself
from support.ordinary_desk import IS_ROOT, NOBODY
from support.runs import DAY, Ended, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.runs import Desk

WRITES = {"draft": 4, "html": 6, "replicate": 6}
"""How often a run writes the ledger; the last but two before the send, the last but one with its answer."""
PAGE_B = 4096
needs_root = pytest.mark.skipif(not IS_ROOT, reason="only root can mount, or give files away")


class Ours:
    def is_ours(self) -> bool:
        return True


@pytest.fixture
def veteran(make_desk: Callable[..., Desk]) -> Callable[[str], Desk]:
    """Make a job with two dates on record, so that there are a ledger and a backup, and ready to send `DAY`."""

    def make(source: str = "draft") -> Desk:
        desk = make_desk(source, SENDONCE_LISTING_SECONDS="0")
        api = f"127.0.0.1:{desk.sandbox.port}"
        store = FileLedger(desk.ledger_file, job="daily", api=api, claim=Ours(), clock=SystemClock())
        store.save(store.load("2026-01-03"), Batch("2026-01-03", State.SKIPPED, reason="holiday"))
        old_copy(desk).write_bytes(desk.ledger_file.read_bytes())
        store.save(store.load("2026-01-04"), Batch("2026-01-04", State.SKIPPED, reason="holiday"))
        desk.prepare()
        return desk

    return make


def old_copy(desk: Desk) -> Path:
    """A copy of the ledger as it was before its last date came to it."""
    return desk.folder / "old-copy.json"


# ------------------------------------------------------------------------------------------- where it happens


class Moment(NamedTuple):
    """Right before the nth write of the ledger, or the nth request."""

    what: str
    nth: int

    def __str__(self) -> str:
        """Short enough for a test's name."""
        return f"{self.what}{self.nth}"

    def signalled(self, folder: Path, number: signal.Signals) -> dict[str, str]:
        """Environment in which a run gets a signal at that moment."""
        if self.what == "write":
            return signal_itself(folder, number, events={"open"}, part="daily.json.guard", nth=self.nth)
        return signal_itself(folder, number, events={"http.client.send"}, part="HTTP/1.1", nth=self.nth)

    def stage(self, source: str) -> str:
        """Whether a fault from here on is known before the send, only after it, or when all is on record."""
        last_before = WRITES[source] - 2 if self.what == "write" else GOOD_RUN[source].index("send")
        if self.nth <= last_before:
            return "before the send"
        return "after the send" if self.nth == last_before + 1 else "at the end"


def moments(source: str) -> list[Moment]:
    """Every moment of a good run."""
    writes = [Moment("write", nth + 1) for nth in range(WRITES[source])]
    return writes + [Moment("request", nth + 1) for nth in range(len(GOOD_RUN[source]))]


SOME_MOMENTS = [("draft", Moment("write", nth)) for nth in range(1, 5)] + [("draft", Moment("request", 3))]
"""Before each write; and between the last check and the send, where nothing can be noticed any more."""
SOME_REQUESTS = [("draft", Moment("request", nth)) for nth in (2, 3)]
ALL_MOMENTS = [(source, moment) for source in WRITES for moment in moments(source)]
ALL_REQUESTS = [(source, moment) for source, moment in ALL_MOMENTS if moment.what == "request"]


# --------------------------------------------------------------------------------------------- what happens


@dataclass(frozen=True)
class Mishap:
    """What happens, how it is put right, and the codes of a run that notices it in time, and of one that comes later."""

    happen: Callable[[Desk], object]
    mend: Callable[[Desk], object]
    noticed: frozenset[int]
    later: frozenset[int]


def _move_away(desk: Desk) -> None:
    desk.state.rename(desk.state.with_name("away"))


def _move_back(desk: Desk) -> None:
    desk.state.with_name("away").rename(desk.state)


def _put_backup_back(desk: Desk) -> None:
    (desk.state / "daily.json.bak").replace(desk.ledger_file)


def _nothing(_desk: Desk) -> None:
    pass


def fill(desk: Desk, *, but_bytes: int = 0) -> None:
    """Use up all space of the file system that the state folder is on."""
    with suppress(OSError), (desk.state / "filler").open("wb", buffering=0) as filler:
        while filler.write(bytes(PAGE_B)):
            pass
    size = (desk.state / "filler").stat().st_size
    os.truncate(desk.state / "filler", max(0, size - but_bytes))


def make_room(desk: Desk) -> None:
    """Undo `fill`."""
    (desk.state / "filler").unlink()


def volume(desk: Desk) -> Path:
    """What the state folder is, where that is a mount."""
    return desk.folder / "volume"


def mount_volume(desk: Desk) -> None:
    """Have the volume where the state folder is."""
    subprocess.run(["mount", "--bind", volume(desk), desk.state], check=True)


def tear_off(desk: Desk) -> None:
    """Unmount it, whoever uses it."""
    subprocess.run(["umount", "--lazy", desk.state], check=True)


REFUSED, AGAIN = frozenset({78}), frozenset({75})
DONE_OR_REFUSED = frozenset({0, 78})
"""A date that is on record as sent needs no write."""
MISHAPS = {
    "deleted": Mishap(lambda desk: desk.ledger_file.unlink(), _nothing, AGAIN, frozenset({0, 75})),
    "restored": Mishap(
        lambda desk: desk.ledger_file.write_bytes(old_copy(desk).read_bytes()),
        _nothing,
        AGAIN,
        frozenset({0, 75}),
    ),
    "emptied": Mishap(lambda desk: desk.ledger_file.write_bytes(b""), _put_backup_back, AGAIN, REFUSED),
    "moved away": Mishap(_move_away, _move_back, REFUSED | AGAIN, REFUSED),
}
CHANGES_OF_HANDS = {
    "ledger read-only": Mishap(
        lambda desk: desk.ledger_file.chmod(0o400),
        lambda desk: desk.ledger_file.chmod(0o600),
        REFUSED,
        DONE_OR_REFUSED,
    ),
    "folder open to all": Mishap(
        lambda desk: desk.state.chmod(0o777), lambda desk: desk.state.chmod(0o700), REFUSED, DONE_OR_REFUSED
    ),
    "ledger of another user": Mishap(
        lambda desk: os.chown(desk.ledger_file, NOBODY, NOBODY),
        lambda desk: os.chown(desk.ledger_file, 0, 0),
        REFUSED,
        DONE_OR_REFUSED,
    ),
    "folder of another user": Mishap(
        lambda desk: os.chown(desk.state, NOBODY, NOBODY),
        lambda desk: os.chown(desk.state, 0, 0),
        REFUSED,
        DONE_OR_REFUSED,
    ),
}
"""What is looked at before each write, by the run itself: root could write all the same."""
HANDS = [
    pytest.param(kind, marks=needs_root) if "another user" in kind else kind for kind in CHANGES_OF_HANDS
]
FULL = Mishap(fill, make_room, REFUSED, DONE_OR_REFUSED)
# what is under a mount point is an empty folder, a first start: Mailchimp knows better
TORN_OFF = Mishap(tear_off, mount_volume, AGAIN, frozenset({0, 75}))


def befall(desk: Desk, mishap: Mishap, moment: Moment) -> None:
    """Have it happen at that moment of a run, and a later run meet it; mended, the day is done, once."""
    sandbox, asked = desk.sandbox, desk.sandbox.sends()
    stage = moment.stage(desk.source)
    process = desk.start(
        "send-batch", "--date", DAY, environ=moment.signalled(desk.folder / "hook", signal.SIGSTOP)
    )
    with never_left_behind(process):
        wait_until(lambda: process.poll() is not None or has_stopped(process), what=str(moment))
        assert process.poll() is None, process.communicate()
        mishap.happen(desk)
        process.send_signal(signal.SIGCONT)
        ended = Ended(process.wait(60), *process.communicate())
    wanted = {"before the send": mishap.noticed, "after the send": AGAIN, "at the end": {0}}[stage]
    assert ended.code in wanted, (stage, ended)
    assert "Traceback" not in ended.err
    assert sandbox.sends() - asked == (stage != "before the send"), ended
    again = desk.send()
    assert again.code in mishap.later, (stage, again)
    assert again.code != 78 or sandbox.sends() - asked == (stage != "before the send"), again
    mishap.mend(desk)
    let_pass(sandbox, 60)
    finish(desk, what=f"{moment}: {ended} {again}")


def _id(value: object) -> str:
    return str(value)


# -------------------------------------------------------------------------------------- in the middle of a run


@pytest.mark.parametrize(("source", "moment"), SOME_MOMENTS, ids=_id)
@pytest.mark.parametrize("kind", MISHAPS)
def test_a_ledger_that_something_befalls_in_mid_run_is_noticed_before_the_send_or_leads_to_a_rerun(
    kind: str, source: str, moment: Moment, veteran: Callable[[str], Desk]
) -> None:
    befall(veteran(source), MISHAPS[kind], moment)


@pytest.mark.full
@pytest.mark.parametrize(("source", "moment"), ALL_MOMENTS, ids=_id)
@pytest.mark.parametrize("kind", MISHAPS)
def test_a_ledger_that_something_befalls_at_any_moment_is_noticed_before_the_send_or_leads_to_a_rerun(
    kind: str, source: str, moment: Moment, veteran: Callable[[str], Desk]
) -> None:
    befall(veteran(source), MISHAPS[kind], moment)


@pytest.mark.parametrize(("source", "moment"), SOME_REQUESTS, ids=_id)
@pytest.mark.parametrize("kind", HANDS)
def test_a_ledger_that_changes_hands_in_mid_run_is_noticed_before_the_send_or_leads_to_a_rerun(
    kind: str, source: str, moment: Moment, veteran: Callable[[str], Desk]
) -> None:
    befall(veteran(source), CHANGES_OF_HANDS[kind], moment)


@pytest.mark.full
@pytest.mark.parametrize(("source", "moment"), ALL_REQUESTS, ids=_id)
@pytest.mark.parametrize("kind", HANDS)
def test_a_ledger_that_changes_hands_at_any_request_is_noticed_before_the_send_or_leads_to_a_rerun(
    kind: str, source: str, moment: Moment, veteran: Callable[[str], Desk]
) -> None:
    befall(veteran(source), CHANGES_OF_HANDS[kind], moment)


# --------------------------------------------------------------------------------------------- between two runs


def _wipe(desk: Desk) -> None:
    for file in desk.state.iterdir():
        file.unlink()


BETWEEN = {
    "deleted": MISHAPS["deleted"].happen,
    "restored": MISHAPS["restored"].happen,
    "with its whole folder wiped": _wipe,
}


def die_and_lose(desk: Desk, kind: str, moment: Moment) -> None:
    """Have a run die at that moment, and the ledger be lost or set back; the day is done, once."""
    killed = desk.send(environ=moment.signalled(desk.folder / "hook", signal.SIGKILL))
    assert killed.code == -signal.SIGKILL
    BETWEEN[kind](desk)
    finish(desk, what=f"{kind} after a death at {moment}")


@pytest.mark.parametrize("moment", [Moment("write", nth) for nth in (2, 3, 4)], ids=_id)
@pytest.mark.parametrize("kind", BETWEEN)
def test_a_ledger_that_is_lost_or_set_back_between_two_runs_costs_nothing(
    kind: str, moment: Moment, veteran: Callable[[str], Desk]
) -> None:
    die_and_lose(veteran("draft"), kind, moment)


@pytest.mark.full
@pytest.mark.parametrize(("source", "moment"), ALL_MOMENTS, ids=_id)
@pytest.mark.parametrize("kind", BETWEEN)
def test_a_ledger_that_is_lost_or_set_back_after_any_death_costs_nothing(
    kind: str, source: str, moment: Moment, veteran: Callable[[str], Desk]
) -> None:
    die_and_lose(veteran(source), kind, moment)


@pytest.mark.parametrize("kind", BETWEEN)
def test_a_ledger_that_is_lost_or_set_back_after_the_send_does_not_send_again(
    kind: str, veteran: Callable[[str], Desk]
) -> None:
    desk = veteran("draft")
    assert desk.send().code == 0
    asked = desk.sandbox.sends()
    BETWEEN[kind](desk)
    finish(desk)
    assert desk.sandbox.sends() == asked


# ------------------------------------------------------------------------------------------------- a full disk


@contextmanager
def small_disk(desk: Desk, *options: str) -> Iterator[None]:
    """Have the state folder on a small file system of its own, with the files that it has."""
    files = {path.name: path.read_bytes() for path in desk.state.iterdir()}
    told = ",".join(["size=256k", "mode=700", *options])
    subprocess.run(["mount", "-t", "tmpfs", "-o", told, "tmpfs", desk.state], check=True)
    try:
        for name, data in files.items():
            (desk.state / name).write_bytes(data)
            (desk.state / name).chmod(0o600)
        yield
    finally:
        subprocess.run(["umount", desk.state], check=True)


def _until_it_fits(desk: Desk, squeeze: Callable[[int], None]) -> int:
    """Leave room for more and more; how often a run was refused before there was enough. It has sent nothing then."""
    for room in range(12):
        squeeze(room)
        ended = desk.send()
        if ended.code == 0:
            return room
        assert ended.code == 78, (room, ended)
        assert str(desk.state) in ended.err
        assert "No space left on device" in ended.err, ended
        assert desk.sandbox.sends() == 0
    raise AssertionError


@pytest.mark.system
@needs_root
def test_a_first_start_sends_only_where_there_is_room_for_the_whole_record(
    make_desk: Callable[..., Desk],
) -> None:
    desk = make_desk()
    desk.prepare()
    with small_disk(desk):

        def leave_pages(room: int) -> None:
            if room:
                make_room(desk)
            fill(desk, but_bytes=room * PAGE_B)

        # none: no marker. One: no ledger. Two: no copy of it when it is written again, before the send. Three: the
        # marker, the copy and the new ledger, for by now there is one
        assert _until_it_fits(desk, leave_pages) == 3
        make_room(desk)
        finish(desk)


@pytest.mark.system
@needs_root
def test_a_first_start_sends_only_where_there_are_names_left_for_the_whole_record(
    make_desk: Callable[..., Desk],
) -> None:
    desk = make_desk()
    desk.prepare()
    with small_disk(desk, "nr_inodes=3"):  # the folder itself, and the kernel's count begins before that

        def leave_names(room: int) -> None:
            options = f"remount,nr_inodes={3 + room}"
            subprocess.run(["mount", "-o", options, desk.state], check=True)

        assert _until_it_fits(desk, leave_names) >= 2
        finish(desk)


@pytest.mark.system
@needs_root
@pytest.mark.parametrize("moment", [moment for _, moment in SOME_MOMENTS], ids=_id)
def test_a_disk_that_fills_up_in_mid_run_is_noticed_before_the_send_or_leads_to_a_rerun(
    moment: Moment, veteran: Callable[[str], Desk]
) -> None:
    desk = veteran("draft")
    with small_disk(desk):
        befall(desk, FULL, moment)


@pytest.mark.system
@needs_root
@pytest.mark.full
@pytest.mark.parametrize(("source", "moment"), ALL_MOMENTS, ids=_id)
def test_a_disk_that_fills_up_at_any_moment_is_noticed_before_the_send_or_leads_to_a_rerun(
    source: str, moment: Moment, veteran: Callable[[str], Desk]
) -> None:
    desk = veteran(source)
    with small_disk(desk):
        befall(desk, FULL, moment)


# -------------------------------------------------------------------------------- mounts that come, go, or are odd


@contextmanager
def mounted_volume(desk: Desk) -> Iterator[None]:
    """Have the state folder on a volume, with the files that it has."""
    desk.state.rename(volume(desk))
    desk.state.mkdir(mode=0o700)
    mount_volume(desk)
    try:
        yield
    finally:
        subprocess.run(["umount", desk.state], check=True)


@pytest.mark.system
@needs_root
@pytest.mark.parametrize("moment", [moment for _, moment in SOME_MOMENTS], ids=_id)
def test_a_volume_that_is_torn_off_in_mid_run_leads_to_one_delivery(
    moment: Moment, veteran: Callable[[str], Desk]
) -> None:
    desk = veteran("draft")
    with mounted_volume(desk):
        befall(desk, TORN_OFF, moment)


@pytest.mark.system
@needs_root
@pytest.mark.parametrize("died_at", [None, Moment("request", 3), Moment("write", 3)], ids=_id)
def test_a_ledger_that_is_mounted_as_a_single_file_is_found_before_anything_is_sent(
    died_at: Moment | None, veteran: Callable[[str], Desk]
) -> None:
    desk = veteran("draft")
    if died_at is not None:  # with "about to send" on record, before the send or after it
        environ = died_at.signalled(desk.folder / "hook", signal.SIGKILL)
        assert desk.send(environ=environ).code == -signal.SIGKILL
        let_pass(desk.sandbox, 60)
    asked = desk.sandbox.sends()
    single = desk.folder / "volume.json"
    single.write_bytes(desk.ledger_file.read_bytes())
    subprocess.run(["mount", "--bind", single, desk.ledger_file], check=True)
    try:
        for _ in range(2):
            ended = desk.send()
            assert ended.code == 78, ended
            assert "mount the folder instead of the single file" in ended.err
        assert single.read_bytes() == desk.ledger_file.read_bytes()
    finally:
        subprocess.run(["umount", desk.ledger_file], check=True)
    assert desk.sandbox.sends() == asked
    finish(desk)


# -------------------------------------------------------------------------------------------- a ledger by a link


def _put_behind_a_link(desk: Desk) -> Path:
    """Move the ledger to a volume and leave a link to it."""
    place = volume(desk)
    place.mkdir(mode=0o700)
    desk.ledger_file.rename(place / "real.json")
    desk.ledger_file.symlink_to(place / "real.json")
    return place


def _refuses_and_sends_nothing(desk: Desk, *said: str) -> None:
    asked = desk.sandbox.sends()
    for _ in range(2):
        ended = desk.send()
        assert ended.code == 78, ended
        assert str(desk.ledger_file) in ended.err
        assert all(part in ended.err for part in said), ended
    assert desk.sandbox.sends() == asked
    assert desk.ledger_file.is_symlink()


def test_a_ledger_that_is_a_link_is_kept_where_the_link_leads(veteran: Callable[[str], Desk]) -> None:
    desk = veteran("draft")
    place = _put_behind_a_link(desk)
    assert desk.send().code == 0
    assert desk.ledger_file.is_symlink()
    assert desk.record()["state"] == "sent"
    assert {file.name for file in place.iterdir()} == {"real.json", "real.json.guard"}
    finish(desk)


def test_a_ledger_whose_link_leads_nowhere_is_no_first_start(veteran: Callable[[str], Desk]) -> None:
    desk = veteran("draft")
    place = _put_behind_a_link(desk)
    place.rename(place.with_name("away"))
    _refuses_and_sends_nothing(desk, "is a link to", str(place / "real.json"), "mount or restore")
    place.with_name("away").rename(place)
    finish(desk)


@pytest.mark.system
@needs_root
def test_a_ledger_whose_link_leads_to_a_full_disk_is_found_before_anything_is_sent(
    veteran: Callable[[str], Desk],
) -> None:
    desk = veteran("draft")
    place = _put_behind_a_link(desk)
    ledger = (place / "real.json").read_bytes()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k,mode=700", "tmpfs", place], check=True)
    try:
        (place / "real.json").write_bytes(ledger)
        (place / "real.json").chmod(0o600)
        with suppress(OSError), (place / "filler").open("wb", buffering=0) as filler:
            while filler.write(bytes(PAGE_B)):
                pass
        _refuses_and_sends_nothing(desk, "No space left on device", "free some space")
        (place / "filler").unlink()
        finish(desk)
    finally:
        subprocess.run(["umount", place], check=True)


@pytest.mark.system
@needs_root
def test_a_ledger_whose_link_leads_to_a_read_only_volume_is_found_before_anything_is_sent(
    veteran: Callable[[str], Desk],
) -> None:
    desk = veteran("draft")
    place = _put_behind_a_link(desk)
    subprocess.run(["mount", "--bind", "-o", "ro", place, place], check=True)
    try:
        _refuses_and_sends_nothing(desk, "Read-only file system", "mount that file system for writing")
    finally:
        subprocess.run(["umount", place], check=True)
    finish(desk)
