"""A file of metrics for Prometheus' node exporter (its textfile collector), whole or not at all."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class Metric(NamedTuple):
    """One number. `value` None: not known, and then not written."""

    name: str
    help: str
    value: float | None
    labels: str = ""


def write_metrics(path: Path, job: str, metrics: Sequence[Metric]) -> str:
    """Replace the file. Why it could not be, as a phrase; "" if it was. Never raises for what a disk can do.

    A metric that is not known now keeps the value that the file has: the last success outlives a failure.
    """
    try:
        kept = _values(path)
        lines = []
        for metric in metrics:
            series = f'{metric.name}{{job="{job}"{metric.labels}}}'
            value = kept.get(series) if metric.value is None else f"{metric.value:.15g}"
            if value is not None:
                lines += [
                    f"# HELP {metric.name} {metric.help}",
                    f"# TYPE {metric.name} gauge",
                    f"{series} {value}",
                ]
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        try:
            # the exporter runs as another user
            temporary.write_text("\n".join(_once(lines)) + "\n", encoding="utf-8")
            temporary.chmod(0o644)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        return error.strerror or "it cannot be written"
    return ""


def _values(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    return dict(re.findall(r"^(\w+\{[^}\n]*\}) (\S+)$", text, re.MULTILINE))


def _once(lines: list[str]) -> list[str]:
    """HELP and TYPE stand once for a name, before all its series."""
    return list(dict.fromkeys(lines))
