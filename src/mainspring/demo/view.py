"""Output of the demo: progress bars on a terminal with rich, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from mainspring.jobs.records import JobRow
from mainspring.states import FINAL, State

if TYPE_CHECKING:
    from mainspring.demo.show import DemoSummary

BAR = 24
COLOURS = {State.SUCCEEDED: "green", State.RUNNING: "cyan", State.RETRYING: "yellow", State.DEAD: "red"}


class View:
    """Prints the jobs: plain lines when headless, without a terminal, or without rich."""

    def __init__(self, *, headless: bool) -> None:
        self._live: Any = None
        self._last = 0.0
        self._begun = time.monotonic()
        self._plain = headless or not sys.stdout.isatty()

    def __enter__(self) -> Self:
        if not self._plain:
            try:
                from rich.live import Live
            except ImportError:
                self._plain = True
            else:
                self._live = Live(refresh_per_second=10).__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, tb)

    def say(self, text: str) -> None:
        line = f"{time.monotonic() - self._begun:5.1f} s  {text}"
        if self._live is not None:
            self._live.console.print(line, highlight=False)
        else:
            print(line, flush=True)

    def draw(self, rows: list[JobRow]) -> None:
        """Draw bars of unfinished jobs and a line of counts; as plain text once a second."""
        counts = Counter(row.state for row in rows)
        line = "  ".join(f"{state} {counts[state]}" for state in State if counts[state])
        if self._live is not None:
            self._live.update(_bars(rows, line))
        elif time.monotonic() - self._last >= 1:
            self._last = time.monotonic()
            self.say("jobs    " + line)

    def summary(self, tally: DemoSummary) -> None:
        ended = "every job finished" if tally.lost == 0 else f"{tally.lost} JOBS DID NOT FINISH"
        self.say(
            f"done    {tally.enqueued} enqueued, {tally.succeeded} succeeded ({tally.retried} after a retry), "
            f"{tally.dead} dead, {tally.rescued} rescued from the killed worker, {tally.lost} lost: {ended}"
        )


def _bars(rows: list[JobRow], line: str) -> Any:
    from rich.console import Group
    from rich.text import Text

    shown = [row for row in rows if row.state not in FINAL][:16]
    texts = [Text(line, style="bold")]
    for row in shown:
        done = _share(row)
        bar = "█" * round(done * BAR) + "░" * (BAR - round(done * BAR))
        name = row.task.rpartition(".")[2]
        worker = (row.worker or "")[:6] if row.state is State.RUNNING else ""
        texts.append(Text(f"  {name:8} {row.state:10} {bar} {worker}", style=COLOURS.get(row.state, "dim")))
    return Group(*texts)


def _share(row: JobRow) -> float:
    if not row.progress:
        return 0.0
    progress = msgspec.json.decode(row.progress)
    total = progress.get("total") or 0
    return min(1.0, float(progress.get("done", 0)) / total) if total else 0.0
