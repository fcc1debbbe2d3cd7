"""Pairs of jobs that differ in everything a filter can ask for."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

from mainspring import Query
from mainspring.jobs.job import Job
from tests.cli.conftest import LIMIT, Shop


class Pair(NamedTuple):
    """``one`` is what the filters of :attr:`filters` find, ``other`` is older and is found by ``--until`` alone."""

    one: Job[Any]
    other: Job[Any]
    filters: dict[str, str]

    def found(self, name: str) -> list[str]:
        """The words of a filter, and then the id that it finds."""
        return [f"--{name}", self.filters[name]]

    def expected(self, name: str) -> Job[Any]:
        return self.other if name == "until" else self.one


def ended(shop: Shop) -> Pair:
    """A dead job and a cancelled one."""
    other = shop.task("add").enqueue(1)
    other.cancel()
    with shop.app.worker():
        return _pair(shop, other, "first", "lost", state="dead", reason="failed", error="ValueError")


def dead(shop: Shop) -> Pair:
    """Two jobs that died of different things."""
    with shop.app.worker():
        other = shop.task("drop").enqueue()
        other.join(timeout=LIMIT)
        return _pair(shop, other, "first", "lost", reason="failed", error="ValueError")


def live(shop: Shop) -> Pair:
    """A scheduled job and one that waits for its next attempt."""
    with shop.app.worker():
        other = shop.task("flaky").enqueue()
        next(info for info in other.watch(timeout=LIMIT) if info.state == "retrying")
        return _pair(shop, other, "second", "late", state="scheduled")


def _pair(shop: Shop, other: Job[Any], parent: str, child: str, **more: str) -> Pair:
    """The one is a follow-up job of ``parent``, which is gone afterwards. Needs a worker."""
    between = datetime.now(UTC).isoformat()
    first = shop.task(parent).enqueue()
    first.join(timeout=LIMIT)
    [made] = shop.app.jobs.list(Query.where(parent=first.id)).jobs
    one = shop.app.jobs.get(made.id)
    if child == "lost":
        one.join(timeout=LIMIT)
    first.delete()
    filters = {"queue": "slow", "task": f"shop.{child}", "tag": "x", "since": between, "until": between}
    return Pair(one, other, {**filters, "parent": str(first.id), **more})
