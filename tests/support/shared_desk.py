"""A desk whose lease and ledger are on a server, and what makes one runner's machine unlike another's."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any

from support.places import Place
from support.runs import DAY, Desk, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from support import servers
    from support.sandbox import Sandbox

# without slots of its own it is larger than the C code of some packages expects
_SHIFTED = """\
import datetime, time
by_s, time_s = {by_s}, time.time
class Shifted(datetime.datetime):
    __slots__ = ()
    @classmethod
    def now(cls, tz=None):
        return super().now(tz) + datetime.timedelta(seconds=by_s)
datetime.datetime = Shifted
time.time = lambda: time_s() + by_s
"""


class SharedDesk(Desk):
    """One runner of a job whose lease and ledger are at `place`; it gets there by `port`, if one is given."""

    def __init__(
        self,
        folder: Path,
        sandbox: Sandbox,
        source: str = "draft",
        *,
        place: Place,
        port: int = 0,
        **settings: str,
    ) -> None:
        self.place = place
        url = place.where
        if port:
            before, _, database = url.rpartition("/")
            url = f"{before.rpartition(':')[0]}:{port}/{database}"
        super().__init__(folder, sandbox, source, SENDONCE_STATE=url, SENDONCE_JOB=place.job, **settings)

    def record(self, day: str = DAY) -> dict[str, Any]:
        rows = self.place.backend().read_one(day).batches
        return dict(json.loads(rows[day])) if day in rows else {}

    def leftovers(self) -> list[str]:
        """Nothing: a lease that a run could not give back is free when its time is up. What is in the folder is named."""
        wait_until(lambda: not self.is_held(), what="the end of a lease that nobody renews")
        return sorted(path.name for path in self.state.iterdir())

    def is_held(self) -> bool:
        """Whether somebody has the lease."""
        grip = self.place.backend().grip()
        return grip is not None and grip.left_s > 0


def place_on(server: servers.Server) -> Place:
    """A place for a job on a server of the test's own, with its tables made."""
    place = Place(server.kind, server.url(), f"job-{secrets.token_hex(6)}")
    place.backend().prepare()
    return place


def clock_off_by(folder: Path, seconds: float) -> dict[str, str]:
    """Environment in which a run's machine has a clock that is wrong by so much."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_SHIFTED.format(by_s=seconds))
    return {"PYTHONPATH": str(folder)}
