"""Progress, log lines and stream items of running attempts; the ended attempts of a job."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.jobs.records import AttemptReport, AttemptRow, LogLine
from mainspring.stores.postgres.driver.arrays import numbers
from mainspring.stores.postgres.driver.database import Database
from mainspring.stores.postgres.rows import attempt_row, log_line
from mainspring.stores.shared.constants import LINES_KEPT

_REPORT = """
select * from {schema}.report_v1(
    %(worker)s::text, %(id)b::bytea[], %(token)s::bigint[], %(progress)b::bytea[],
    %(line_at)s::integer[], %(when)s::bigint[], %(level)b::text[], %(text)b::bytea[],
    %(item_at)s::integer[], %(place)s::bigint[], %(item)b::bytea[], %(lines)s::integer
)
"""
_ATTEMPTS = """
select token, epoch, attempt, worker, started, ended, ran, outcome, error
from {schema}.attempts where job = %(job)s order by token
"""
_LOGS = "select at, level, text, n from {schema}.logs where job = %(job)s and n > %(after)s::bigint order by n"
_ITEMS = "select n, data from {schema}.items where job = %(job)s and n > %(after)s::bigint order by n limit %(limit)s"


async def report(db: Database, worker: str, reports: Sequence[AttemptReport]) -> list[bool]:
    lines = [(at, line) for at, each in enumerate(reports, start=1) for line in each.logs]
    items = [(at, item) for at, each in enumerate(reports, start=1) for item in dict(each.items).items()]
    params = {
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
    return [good for (good,) in await db.rows(_REPORT, params)]


async def attempts(db: Database, job: bytes) -> list[AttemptRow]:
    return [attempt_row(row) for row in await db.rows(_ATTEMPTS, {"job": job})]


async def logs(db: Database, job: bytes, after: int) -> list[LogLine]:
    return [log_line(row) for row in await db.rows(_LOGS, {"job": job, "after": after})]


async def items(db: Database, job: bytes, after: int, limit: int) -> list[tuple[int, bytes]]:
    rows = await db.rows(_ITEMS, {"job": job, "after": after, "limit": max(limit, 0)})
    return [(n, data) for n, data in rows]
