"""Progress, log lines and stream items of running attempts; what is kept of attempts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, LiteralString

from mainspring.jobs.outcomes import Outcome
from mainspring.jobs.records import AttemptReport, AttemptRow, LogLine
from mainspring.stores.postgres.arrays import numbers
from mainspring.stores.postgres.session import Params
from mainspring.stores.postgres.statements import fill

LINES_KEPT = 1000

_REPORT = """
select * from {schema}.report_v1(
    %(worker)s::text, %(id)b::bytea[], %(token)s::bigint[], %(progress)b::bytea[],
    %(line_at)s::integer[], %(when)s::bigint[], %(level)b::text[], %(text)b::bytea[],
    %(item_at)s::integer[], %(place)s::bigint[], %(item)b::bytea[], %(lines)s::integer
)
"""


def report(worker: str, reports: Sequence[AttemptReport], schema: str) -> tuple[LiteralString, Params]:
    lines = [(at, line) for at, each in enumerate(reports, start=1) for line in each.logs]
    items = [(at, item) for at, each in enumerate(reports, start=1) for item in dict(each.items).items()]
    return fill(_REPORT, schema), {
        "worker": worker,
        "id": [each.id for each in reports],
        "token": numbers(each.token for each in reports),
        "progress": [each.progress for each in reports],
        "line_at": numbers(at for at, _ in lines),
        "when": numbers(line.at for _, line in lines),
        "level": [line.level for _, line in lines],
        "text": [line.text.encode("utf-8", "replace") for _, line in lines],
        "item_at": numbers(at for at, _ in items),
        "place": numbers(place for _, (place, _) in items),
        "item": [data for _, (_, data) in items],
        "lines": LINES_KEPT,
    }


def log_line(row: tuple[Any, ...]) -> LogLine:
    at, level, text, n = row
    return LogLine(at, level, text.decode("utf-8"), n)


def attempt_row(row: tuple[Any, ...]) -> AttemptRow:
    return AttemptRow(
        token=row[0], epoch=row[1], attempt=row[2], worker=row[3], started=row[4], ended=row[5],
        outcome=Outcome(row[6]), error=row[7],
    )  # fmt: skip
