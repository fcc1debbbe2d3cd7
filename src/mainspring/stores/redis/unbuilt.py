"""The calls that this engine does not have yet: refused, never accepted and ignored."""
# ruff: noqa: ARG002 (the signatures are the contract's)

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from mainspring.errors import NotBuilt
from mainspring.query import Query
from mainspring.records import Doc, LogLine, Mode, NewJob, QueueRow, Report, Retention, Tally
from mainspring.stores.base import Listener, TallyBy


def not_built(name: str) -> NoReturn:
    raise NotBuilt("Redis store", name, hint="Use the SQLite store until this part of the Redis store is there.")


def check_jobs(jobs: Sequence[NewJob]) -> None:
    """Refuse jobs that ask for what this engine would ignore."""
    for job in jobs:
        for name in ("unique", "marks", "keep", "follows"):
            if getattr(job, name) not in (None, ()):
                not_built(f"enqueue of a job with {name}")


def check_query(query: Query) -> None:
    """Refuse conditions that this engine would ignore: then it would find, or change, too many."""
    for name in ("marks", "reasons", "errors", "since", "until", "ended_before"):
        if getattr(query, name) not in (None, ()):
            not_built(f"a query by {name}")


class Unbuilt:
    """Each method leaves here when it is built."""

    async def report(self, worker: str, reports: Sequence[Report]) -> list[bool]:
        not_built("report")

    async def tally(self, query: Query, by: TallyBy) -> list[Tally]:
        not_built("tally")

    async def logs(self, job: bytes, after: int = 0) -> list[LogLine]:
        not_built("logs")

    async def items(self, job: bytes, after: int = 0, limit: int = 1000) -> list[tuple[int, bytes]]:
        not_built("items")

    async def prune(self, retention: Retention, limit: int = 1000) -> int:
        not_built("prune")

    async def notify(self, queues: Sequence[str]) -> None:
        not_built("notify")

    async def listen(self, worker: str, queues: Sequence[str]) -> Listener:
        not_built("listen")

    async def set_mode(self, queues: Sequence[str], mode: Mode) -> None:
        not_built("set_mode")

    async def modes(self) -> list[QueueRow]:
        not_built("modes")

    async def put(self, doc: Doc) -> Doc:
        not_built("put")

    async def docs(self, kind: str) -> list[Doc]:
        not_built("docs")
