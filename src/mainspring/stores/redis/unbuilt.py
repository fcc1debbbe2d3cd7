"""The calls that this engine does not have yet: refused, never accepted and ignored."""
# ruff: noqa: ARG002 (the signatures are the contract's)

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from mainspring.errors import NotBuilt
from mainspring.records import Doc, LogLine, Report, Retention
from mainspring.stores.base import Listener


def not_built(name: str) -> NoReturn:
    raise NotBuilt("Redis store", name, hint="Use the SQLite store until this part of the Redis store is there.")


class Unbuilt:
    """Each method leaves here when it is built."""

    async def report(self, worker: str, reports: Sequence[Report]) -> list[bool]:
        not_built("report")

    async def logs(self, job: bytes) -> list[LogLine]:
        not_built("logs")

    async def prune(self, retention: Retention, limit: int = 1000) -> int:
        not_built("prune")

    async def notify(self, queues: Sequence[str]) -> None:
        not_built("notify")

    async def listen(self, worker: str, queues: Sequence[str]) -> Listener:
        not_built("listen")

    async def put(self, doc: Doc) -> Doc:
        not_built("put")

    async def docs(self, kind: str) -> list[Doc]:
        not_built("docs")
