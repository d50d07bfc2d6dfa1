"""A sent day where the ledger is on a server, beside the driver's bare import and one round trip."""

from __future__ import annotations

import shutil
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_START_WITHIN_S: Final = 20

BARE_REDIS: Final = "import sys, redis; redis.Redis.from_url(sys.argv[1]).get('x')"
BARE_SQL: Final = """
import sys, sqlalchemy
with sqlalchemy.create_engine(sys.argv[1], poolclass=sqlalchemy.NullPool).begin() as db:
    db.execute(sqlalchemy.text('SELECT 1'))
"""


@contextmanager
def redis_url(folder: Path) -> Iterator[str | None]:
    """The URL of a Redis of our own on a socket in `folder`; None where there is no redis-server."""
    if (program := shutil.which("redis-server")) is None:
        yield None
        return
    socket = folder / "redis.sock"
    options = ["--port", "0", "--unixsocket", str(socket), "--dir", str(folder), "--save", ""]
    with subprocess.Popen([program, *options], stdout=subprocess.DEVNULL) as server:
        give_up_at_s = time.monotonic() + _START_WITHIN_S
        while not socket.exists() and time.monotonic() < give_up_at_s:
            time.sleep(0.02)
        try:
            yield f"unix://{socket}"
        finally:
            server.terminate()
