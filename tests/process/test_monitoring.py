"""What a run tells others, through the real command: pings, metrics, commands, the log, the journal."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from support.runs import DAY, Desk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SEND = ("send-batch", "--date", DAY)


class Service(ThreadingHTTPServer):
    """A monitoring service: keeps what it is told. `codes` are its next answers, then 200."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.told: list[tuple[str, str]] = []
        self.codes: list[int] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/ping/5ec4e7"

    @property
    def paths(self) -> list[str]:
        """What was pinged, below the URL, without the run's id."""
        return [path.partition("?")[0].removeprefix("/ping/5ec4e7") for path, _ in self.told]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Service)
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.told.append((self.path, body))
        self.send_response(self.server.codes.pop(0) if self.server.codes else 200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


def script(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


# ---- pings ----


def test_a_send_pings_start_and_success_under_one_id(
    make_desk: Callable[..., Desk], service: Service
) -> None:
    desk = make_desk(SENDONCE_PING_URL=service.url)
    desk.prepare()
    assert desk.send().code == 0
    assert service.paths == ["/start", ""]
    (first, _), (second, body) = service.told
    ids = {re.search("rid=([0-9a-f]{32})$", path).group(1) for path in (first, second)}  # type: ignore[union-attr]
    assert len(ids) == 1
    campaign = desk.record()["campaigns"][0]["id"]
    assert body == f"sendonce daily {DAY}: sent, exit 0, campaign {campaign}"
    assert desk.send().code == 0
    assert service.paths == ["/start", "", ""]
    assert "already sent" in service.told[2][1]


def test_a_run_that_ends_otherwise_pings_its_exit_code(
    make_desk: Callable[..., Desk], service: Service
) -> None:
    desk = make_desk(SENDONCE_PING_URL=service.url)
    assert desk.send().code == 1
    assert (service.paths, service.told[1][1]) == (["/start", "/1"], f"sendonce daily {DAY}: refused, exit 1")
    desk.write_env(SENDONCE_PING_URL=service.url, MAILCHIMP_API_URL="http://127.0.0.1:9/3.0")
    assert desk.send().code == 78  # another API host than the ledger's: a fault, not an outcome
    assert service.paths[2:] == ["/78"]


def test_a_skipped_date_pings_success_and_says_so(make_desk: Callable[..., Desk], service: Service) -> None:
    desk = make_desk(SENDONCE_PING_URL=service.url)
    desk.run("ledger", "skip", "--date", DAY, "--reason", "Holiday of ann@example.com")
    assert desk.send().code == 0
    assert service.told[-1][1] == f"sendonce daily {DAY}: skipped, exit 0"


def test_a_dry_run_pings_nobody(make_desk: Callable[..., Desk], service: Service) -> None:
    desk = make_desk(SENDONCE_PING_URL=service.url)
    desk.prepare()
    assert desk.send("--dry-run").code == 0
    assert service.told == []


def test_a_service_that_fails_is_tried_twice_and_is_a_warning_without_the_url(
    make_desk: Callable[..., Desk], service: Service
) -> None:
    desk = make_desk(SENDONCE_PING_URL=service.url)
    desk.prepare()
    service.codes = [500, 200, 503, 503]
    told = desk.send()
    assert (told.code, desk.deliveries()) == (0, 1)
    assert service.paths == ["/start", "/start", "", ""]
    assert "Warning: The ping of SENDONCE_PING_URL did not arrive: HTTP 503." in told.err
    assert "5ec4e7" not in told.all


def test_a_service_that_is_away_changes_nothing(make_desk: Callable[..., Desk]) -> None:
    desk = make_desk(SENDONCE_PING_URL="http://127.0.0.1:9/5ec4e7")
    desk.prepare()
    told = desk.send()
    assert (told.code, desk.deliveries()) == (0, 1)
    assert "did not arrive: ConnectionRefusedError" in told.err


def test_what_is_no_web_server_at_all_stops_no_mail(make_desk: Callable[..., Desk]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_says_nonsense, args=(server,), daemon=True).start()
        desk = make_desk(
            SENDONCE_PING_URL=f"http://127.0.0.1:{server.getsockname()[1]}/x", SENDONCE_METRICS_FILE="/"
        )
        desk.prepare()
        told = desk.send()
    assert (told.code, desk.deliveries()) == (0, 1)
    assert "did not arrive: BadStatusLine" in told.err
    assert "The metrics went wrong: ValueError." in told.err


def _says_nonsense(server: socket.socket) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            connection.recv(1000)
            connection.sendall(b"SSH-2.0-nonsense\r\n")


# ---- metrics ----


def metrics_of(path: Path) -> dict[str, float]:
    found = re.findall(
        r"^sendonce_(\w+)\{job=\"daily\"(?:,outcome=\"([^\"]*)\")?\} (\S+)$", path.read_text(), re.MULTILINE
    )
    return {f"{name} {outcome}".strip(): float(value) for name, outcome, value in found}


def test_metrics_tell_the_last_success_also_after_a_failure(
    make_desk: Callable[..., Desk], tmp_path: Path
) -> None:
    path = tmp_path / "sendonce.prom"
    desk = make_desk(SENDONCE_METRICS_FILE=str(path))
    assert desk.send().code == 1
    failed = metrics_of(path)
    assert (failed["last_exit_code"], failed["last_outcome refused"], failed["tries"]) == (1, 1, 1)
    assert "last_success_timestamp_seconds" not in failed
    desk.prepare()
    assert desk.send().code == 0
    sent = metrics_of(path)
    assert (sent["last_exit_code"], sent["last_outcome sent"], sent["last_outcome refused"]) == (0, 1, 0)
    assert (sent["recipients"], sent["tries"]) == (5, 2)
    assert 0 < sent["duration_seconds"] < 600
    at = sent["last_success_timestamp_seconds"]
    assert desk.run("send-batch", "--date", "2026-01-06").code == 1
    later = metrics_of(path)
    assert (later["last_exit_code"], later["last_success_timestamp_seconds"]) == (1, at)
    assert path.stat().st_mode & 0o777 == 0o644
    assert [p.name for p in tmp_path.iterdir() if ".tmp" in p.name] == []


def test_metrics_that_cannot_be_written_are_a_warning(make_desk: Callable[..., Desk], tmp_path: Path) -> None:
    desk = make_desk(SENDONCE_METRICS_FILE=str(tmp_path / "none" / "sendonce.prom"))
    desk.prepare()
    told = desk.send()
    assert told.code == 0
    assert "sendonce.prom could not be written: No such file or directory." in told.err


# ---- commands ----


def test_a_command_is_told_of_the_send_once_and_knows_no_secret(
    make_desk: Callable[..., Desk], tmp_path: Path
) -> None:
    tells = script(
        tmp_path,
        "tell",
        f'cat >>"{tmp_path}/told"; env >"{tmp_path}/env"; printf "%s\\n" "$@" >"{tmp_path}/args"',
    )
    desk = make_desk(SENDONCE_ON_SENT=f'{tells} "two words" $HOME')
    desk.prepare()
    assert desk.send().code == 0
    campaign = desk.record()["campaigns"][0]["id"]
    told = json.loads((tmp_path / "told").read_text())
    assert (told["version"], told["job"], told["date"], told["ending"]) == (1, "daily", DAY, "sent")
    assert (told["code"], told["campaign_id"], told["recipients"]) == (0, campaign, 5)
    assert (tmp_path / "args").read_text() == "two words\n$HOME\n"
    assert not re.search("MAILCHIMP_|SENDONCE_", (tmp_path / "env").read_text())
    assert desk.send().code == 0
    assert (tmp_path / "told").read_text().count("version") == 1


def test_a_command_is_told_of_a_failure_and_its_own_changes_nothing(
    make_desk: Callable[..., Desk], tmp_path: Path
) -> None:
    fails = script(tmp_path, "tell", f'cat >"{tmp_path}/told"; exit 3')
    desk = make_desk(SENDONCE_ON_FAILURE=str(fails))
    told = desk.send()
    assert told.code == 1
    assert json.loads((tmp_path / "told").read_text())["code"] == 1
    assert f"SENDONCE_ON_FAILURE ({fails}): it ended with 3." in told.err


def test_a_command_that_is_not_there_or_reads_nothing_is_a_warning(
    make_desk: Callable[..., Desk], tmp_path: Path
) -> None:
    desk = make_desk(SENDONCE_ON_SENT=str(tmp_path / "none"), SENDONCE_ON_FAILURE="/bin/true")
    desk.prepare()
    told = desk.send()
    assert (told.code, desk.deliveries()) == (0, 1)
    assert "none): No such file or directory." in told.err
    assert desk.run("send-batch", "--date", "2026-01-06").code == 1


# ---- the log, and the journal ----


def test_the_log_has_an_object_on_each_line_if_so_wished(make_desk: Callable[..., Desk]) -> None:
    desk = make_desk(SENDONCE_LOG_FILE="log", SENDONCE_LOG_FORMAT="json")
    desk.prepare()
    assert desk.send().code == 0
    lines = [json.loads(line) for line in (desk.folder / "log").read_text().splitlines()]
    assert (lines[0]["event"], lines[-1]["event"], lines[-1]["outcome"]) == ("started", "ended", "sent")
    assert len({line["run"] for line in lines}) == 1
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", line["at"]) for line in lines)


def test_complaints_have_a_priority_where_standard_error_is_the_journal(desk: Desk) -> None:
    reading, writing = os.pipe()
    found = os.fstat(writing)
    stream = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
    with (
        os.fdopen(reading, encoding="utf-8") as journal,
        desk.start(*SEND, environ=stream, stderr=writing) as run,
    ):
        os.close(writing)
        said = journal.read()
    assert run.returncode == 1
    assert said.startswith("<3>There is no campaign named")
    assert desk.send().err.startswith("There is no campaign named")


# ---- bad settings ----


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SENDONCE_PING_URL", "ftp://hc-ping.com/5ec4e7"),
        ("SENDONCE_PING_URL", "hc-ping.com/5ec4e7"),
        ("SENDONCE_PING_URL", "https://hc-ping.com/5ec4e7 x"),
        ("SENDONCE_PING_URL", "http://127.0.0.1:99999/5ec4e7"),
        ("SENDONCE_PING_URL", "http://127.0.0.1:none/5ec4e7"),
        ("SENDONCE_PING_URL", "http://127.0.0.1:0/5ec4e7"),
        ("SENDONCE_PING_URL", "http://[::1/5ec4e7"),
        ("SENDONCE_PING_URL", "http://:80/5ec4e7"),
        ("SENDONCE_LOG_FORMAT", "xml"),
        ("SENDONCE_ON_SENT", "tell-them"),
        ("SENDONCE_ON_SENT", '/bin/tell "open'),
    ],
)
def test_a_setting_that_cannot_be_used_is_78_and_names_it(
    name: str, value: str, make_desk: Callable[..., Desk]
) -> None:
    desk = make_desk(**{name: value})
    desk.prepare()
    told = desk.send()
    assert (told.code, desk.deliveries()) == (78, 0)
    assert f"{name} ({desk.env_file} line " in told.err
    assert "5ec4e7" not in told.err
