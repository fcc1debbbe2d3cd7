"""Progress, log lines and stream items of running attempts, and the attempts of a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mainspring.jobs.outcomes import Outcome
from mainspring.jobs.records import AttemptReport, AttemptRow, LogLine
from mainspring.stores.shared.constants import LINES_KEPT

if TYPE_CHECKING:
    from mainspring.stores.sqlite.driver.transaction import Tx


def report(tx: Tx, worker: str, reports: Sequence[AttemptReport]) -> list[bool]:
    return [_report(tx, worker, each) for each in reports]


def _report(tx: Tx, worker: str, report: AttemptReport) -> bool:
    if not tx.all("lease_is_good", (report.id, report.token, worker)):
        return False
    if report.progress is not None:
        tx.run("set_progress", (report.id, report.progress))
    if report.logs:
        last = tx.all("last_line", (report.id,))[0][0]
        lines = [(report.id, n, line.at, line.level, _clean(line.text)) for n, line in enumerate(report.logs, last + 1)]
        tx.cursor.executemany(tx.sql["add_line"], lines[-LINES_KEPT:])
        tx.run("drop_lines", (report.id, last + len(lines) - LINES_KEPT))
    if report.items:
        tx.cursor.executemany(tx.sql["add_item"], [(report.id, n, data) for n, data in report.items])
    return True


def _clean(text: str) -> str:
    """The text without lone surrogates, which SQLite cannot store."""
    return text.encode("utf-8", "replace").decode("utf-8")


def attempts(tx: Tx, job: bytes) -> list[AttemptRow]:
    return [
        AttemptRow(
            token=token,
            epoch=epoch,
            attempt=attempt,
            worker=worker,
            started=started,
            ended=ended,
            ran=ran,
            outcome=Outcome(outcome),
            error=error,
        )
        for token, epoch, attempt, worker, started, ended, ran, outcome, error in tx.all("attempts", (job,))
    ]


def logs(tx: Tx, job: bytes, after: int) -> list[LogLine]:
    return [LogLine(*row) for row in tx.all("logs", (job, after))]


def items(tx: Tx, job: bytes, after: int, limit: int) -> list[tuple[int, bytes]]:
    return [(n, data) for n, data in tx.all("items", (job, after, max(limit, 0)))]
