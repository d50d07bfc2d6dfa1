"""The report in a browser: nothing sticks out at 360 or 1280 pixels, dark and light follow the reader's wish."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pytest

from sendonce import page, views
from sendonce.core.model import Batch, Reset, State
from support.past import NASTY, at, daily, sent

if TYPE_CHECKING:
    from pathlib import Path

CHROMIUM = shutil.which("chromium")
LIMIT_S = 90

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine")

POLICY = "default-src 'none'; "
# what a reader would see wrong, asked of the page itself; its own policy would not let the question run
QUESTION = """<script>
const wide = [...document.querySelectorAll("body *")].filter(e => !e.closest(".off"))
  .filter(e => e.getBoundingClientRect().right > innerWidth + 0.5).map(e => e.outerHTML.slice(0, 80));
const cell = document.querySelector("td a").getBoundingClientRect();
const style = getComputedStyle(document.body);
const told = JSON.stringify({ asked: innerWidth, page: document.documentElement.scrollWidth, wide,
  cell: [cell.width, cell.height], paper: style.backgroundColor, ink: style.color,
  beside: getComputedStyle(document.querySelector(".year")).gridTemplateColumns.split(" ").length,
  policy: document.querySelectorAll("script").length });
document.title = told;
parent.postMessage(told, "*");
</script></body>"""

# a window of Chromium's is at least 500 pixels wide; a frame may be as narrow as a telephone
FRAME = """<!DOCTYPE html><title>nothing</title>
<script>addEventListener("message", e => { document.title = e.data; });</script>
<iframe src="report.html" style="border: 0; width: %dpx; height: 900px"></iframe>"""


def written(folder: Path) -> Path:
    """A page with what is hard to lay out: words without an end, several campaigns, all marks."""
    long = "x" * 400
    batches = [
        *daily("2024-03-01", 300),
        sent("2026-01-02", title=long),
        Batch("2026-01-03", State.REFUSED, reason=long),
        sent("2026-01-04", emails=0, title=NASTY),
        Batch("2026-01-05", State.SKIPPED, reason="holiday"),
    ]
    resets = [Reset("2026-01-03", at("2026-01-03"), by=long, reason=long, was={"state": "refused"})]
    about = page.About("a" * 40, "Europe/Berlin", datetime(2026, 1, 20, tzinfo=UTC))
    text = page.render(views.history(batches, date(2026, 1, 20)), resets, about, frozenset())
    assert text.count(POLICY) == 1
    asked = text.replace(POLICY, f"{POLICY}script-src 'unsafe-inline'; ").replace("</body>", QUESTION)
    file = folder / "report.html"
    file.write_text(asked.replace("<details>", "<details open>"))
    return file


def chromium(folder: Path, *words: str) -> str:
    """Run it headless, with nothing that looks for the network; what it prints."""
    quiet = (
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    )  # fmt: skip
    done = subprocess.run(
        [str(CHROMIUM), *quiet, f"--user-data-dir={folder / 'profile'}", *words],
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def asked_of(file: Path, *, is_dark: bool = False) -> dict[str, Any]:
    """What the page says of itself."""
    scheme = f"--blink-settings=preferredColorScheme={0 if is_dark else 1}"
    words = ("--window-size=1400,1000", "--virtual-time-budget=10000", scheme, "--dump-dom")
    shown = chromium(file.parent, *words, file.as_uri())
    title = re.search("<title>(.*?)</title>", shown, re.DOTALL)
    assert title is not None
    told: dict[str, Any] = json.loads(html.unescape(title[1]))
    return told


@pytest.mark.parametrize(("width", "beside"), [(360, 2), (1280, 6)])
def test_nothing_sticks_out(tmp_path: Path, width: int, beside: int) -> None:
    written(tmp_path)
    frame = tmp_path / "frame.html"
    frame.write_text(FRAME % width)
    told = asked_of(frame)
    assert (told["asked"], told["page"], told["wide"]) == (width, width, [])
    assert told["beside"] == beside
    assert min(told["cell"]) >= 18


def test_the_page_is_dark_for_who_wants_it_dark(tmp_path: Path) -> None:
    file = written(tmp_path)
    light, dark = (asked_of(file, is_dark=wish) for wish in (False, True))
    assert (light["paper"], light["ink"]) == ("rgb(255, 255, 255)", "rgb(31, 35, 40)")
    assert (dark["paper"], dark["ink"]) == ("rgb(13, 17, 23)", "rgb(230, 237, 243)")
    # the only script is ours
    assert light["policy"] == 1


@pytest.mark.parametrize("width", [360, 1280])
def test_a_picture_of_it_can_be_taken(tmp_path: Path, width: int) -> None:
    """For people: the picture stays in pytest's folder. A page that was not drawn would be all of one colour."""
    picture = tmp_path / f"report-{width}.png"
    chromium(tmp_path, f"--window-size={width},900", f"--screenshot={picture}", written(tmp_path).as_uri())
    data = picture.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(data[16:20], "big") == width
    assert len(data) > 20_000
