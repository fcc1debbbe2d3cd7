"""What this engine does not have yet: each method refuses by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from mainspring.errors import NotBuilt
from mainspring.records import Doc, LogLine, Report, Retention
from mainspring.stores.base import Listener


def not_built(name: str, *_given: object) -> NoReturn:
    raise NotBuilt("PostgresStore", name, hint=f"The PostgreSQL engine has no {name} yet; the SQLite engine has.")


class Unbuilt:
    async def report(self, worker: str, reports: Sequence[Report]) -> list[bool]:
        not_built("report", worker, reports)

    async def logs(self, job: bytes) -> list[LogLine]:
        not_built("logs", job)

    async def prune(self, retention: Retention, limit: int = 1000) -> int:
        not_built("prune", retention, limit)

    async def notify(self, queues: Sequence[str]) -> None:
        not_built("notify", queues)

    async def listen(self, worker: str, queues: Sequence[str]) -> Listener:
        not_built("listen", worker, queues)

    async def put(self, doc: Doc) -> Doc:
        not_built("put", doc)

    async def docs(self, kind: str) -> list[Doc]:
        not_built("docs", kind)
