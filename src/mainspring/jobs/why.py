"""Why a job does not run: what a claim would look at, looked at for one job and said in words.

The order is that of the claim: whoever clears the first obstacle sees the next one. Whenever there is none the
job is handed out by the next turn of a worker that has a free slot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote
from uuid import UUID

import msgspec

from mainspring.breakers.records import BREAKER_SUFFIX, BreakerRow
from mainspring.common.clock import to_datetime
from mainspring.jobs.lanes import BULK, VERSION, base_of, terms_of, version_term
from mainspring.jobs.query import Query
from mainspring.jobs.records import JobBody, JobRow
from mainspring.limits.records import BucketRow
from mainspring.queues.records import QueueMode
from mainspring.schedules.plan import held_by
from mainspring.schedules.sync import plan_or_nothing
from mainspring.states import FINAL, State
from mainspring.worker.records import WorkerRow

if TYPE_CHECKING:
    from mainspring.stores.base import Store

_LOOK = 1000
_SHOWN = 10
Obstacle = Literal[
    "ended", "running", "not_due", "dependency", "key", "expired", "paused", "disabled", "limit", "rate", "breaker",
    "no_worker", "labels", "version", "unknown_task", "capped",
]  # fmt: skip


class Hindrance(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that keeps a job from running."""

    kind: Obstacle
    text: str
    """For people."""
    until: datetime | None = None
    """When it will be over, if that is known."""
    jobs: tuple[UUID, ...] = ()
    """The jobs that are in the way: parents, or those that hold a limit's places."""
    name: str = ""
    """The queue, limit or task that it is about."""


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """What keeps a job from running; nothing does when ``obstacles`` is empty."""

    id: UUID
    state: State
    obstacles: tuple[Hindrance, ...] = ()

    def __str__(self) -> str:
        if not self.obstacles:
            return f"{self.id} is {self.state.value}: nothing holds it back, it starts with the next free slot"
        return f"{self.id} is {self.state.value}: " + "; ".join(each.text for each in self.obstacles)


async def why(store: Store, row: JobRow, now: int) -> Why:
    """Look at everything that can hold this job back."""
    id = UUID(bytes=row.id)
    if row.state in FINAL:
        said = f"it ended as {row.state.value}" + (f" ({row.reason.value})" if row.reason else "")
        return Why(id=id, state=row.state, obstacles=(Hindrance(kind="ended", text=said),))
    if row.state is State.RUNNING:
        said = f"it runs on worker {row.worker}"
        return Why(id=id, state=row.state, obstacles=(Hindrance(kind="running", text=said, name=row.worker or ""),))
    found: list[Hindrance] = []
    if row.expires is not None and row.expires <= now:
        found.append(Hindrance(kind="expired", text="it was not started in time and will be cancelled"))
    found += await _parts(store, row) or _waiting(row)
    found += await _mode(store, row)
    buckets = await store.buckets(row.buckets) if row.buckets else []
    found += [each for bucket in buckets for each in _full(bucket)]
    if not found and any(bucket.kind in ("rate", "smooth") for bucket in buckets):
        found += await _behind(store, row, now)
    workers = await store.workers()
    missing = _nobody(row, workers)
    found += missing or await _capped(store, row, workers)
    return Why(id=id, state=row.state, obstacles=tuple(found))


async def _behind(store: Store, row: JobRow, now: int) -> list[Hindrance]:
    """Nobody in a lane passes a job that costs more than a rate has left. It is looked for among the newest jobs."""
    page = await store.find(Query(queues=(row.queue,), states=(State.READY,)), limit=_LOOK)
    line = [each for each in page.jobs if each.lane == row.lane and (each.expires is None or each.expires > now)]
    first = min(line, key=lambda each: (-each.priority, each.seq), default=row)
    ahead, found = UUID(bytes=first.id), await store.buckets(first.buckets)
    return [
        msgspec.structs.replace(each, text=f"it stands behind {ahead}: {each.text}", jobs=(ahead,))
        for bucket in found
        for each in _full(bucket)
    ]


def _waiting(row: JobRow) -> list[Hindrance]:
    if row.token == 0 and row.state in (State.BLOCKED, State.SCHEDULED) and (found := _keyed(row)):
        return found
    if row.state is State.BLOCKED:
        others = "another job" if row.deps == 1 else f"{row.deps} other jobs"
        return [Hindrance(kind="dependency", text=f"it waits for {others} to end")]
    if row.state in (State.SCHEDULED, State.RETRYING) and row.due is not None:
        until = to_datetime(row.due)
        return [Hindrance(kind="not_due", text=f"it is due at {until.isoformat(' ', 'seconds')}", until=until)]
    return []


async def _parts(store: Store, row: JobRow) -> list[Hindrance]:
    """What a job of a schedule waits for, if that is other schedules."""
    if row.state is not State.BLOCKED:
        return []
    for link in await store.dependencies():
        if row.id in link.waiting:
            names = [name for name, noted in link.after if not noted]
            first = UUID(bytes=link.waiting[0])
            behind = "" if link.waiting[0] == row.id else f", behind job {first}"
            said = f"schedule {link.name!r} waits for {_list(names)} to succeed{behind}{await _off(store, names)}"
            jobs = (first,) if behind else ()
            others = [Hindrance(kind="dependency", text=said, name=link.name, jobs=jobs)]
            return others + ([] if row.deps <= 1 else _waiting(msgspec.structs.replace(row, deps=row.deps - 1)))
    return []


async def _off(store: Store, names: Sequence[str]) -> str:
    """Those of the schedules that do not run until they are enabled."""
    rows = await store.schedules(names) if names else []
    off = [row.name for row in rows if (plan := plan_or_nothing(row)) is not None and not plan.enabled]
    return f" ({_list(off)} {'is' if len(off) == 1 else 'are'} disabled)" if off else ""


def _list(names: Sequence[str]) -> str:
    *most, last = [repr(name) for name in names] or ["nobody any more"]
    return f"{', '.join(most)} and {last}" if most else last


def _keyed(row: JobRow) -> list[Hindrance]:
    """What a job that was never started waits for by the mode of its key."""
    try:
        key, mode = (body := msgspec.json.decode(row.record, type=JobBody)).key or "", body.mode
    except msgspec.DecodeError:  # of a later release: nothing is known of its key
        return []
    if mode == "keep_last" and row.state is State.BLOCKED:
        said = f"key {key!r} lets one run (keep_last): it waits for the job before it to end"
        return [Hindrance(kind="key", text=said, name=key)]
    if mode not in ("debounce", "throttle") or row.due is None:
        return []
    until = to_datetime(row.due)
    rule = "waits until nobody enqueues any more" if mode == "debounce" else "lets one start in each window"
    said = f"key {key!r} {rule} ({mode}): it is due at {until.isoformat(' ', 'seconds')}"
    return [Hindrance(kind="key", text=said, until=until, name=key)]


async def _mode(store: Store, row: JobRow) -> list[Hindrance]:
    found = []
    for queue in await store.queues():
        if queue.name == row.queue and queue.mode is QueueMode.PAUSED:
            found.append(Hindrance(kind="paused", text=f"queue {row.queue!r} is paused", name=row.queue))
        if queue.name == row.queue and queue.disabled is not None:
            by = f" by {queue.disabled_by}" if queue.disabled_by else ""
            said = f"queue {row.queue!r} was disabled{by} ({queue.disabled.value})"
            found.append(Hindrance(kind="disabled", text=said, name=row.queue))
    return found


def _full(found: BucketRow) -> list[Hindrance]:
    """By the numbers that the claim goes by."""
    if found.breaker is not None:
        return _broken(found, found.breaker)
    if found.kind != "concurrency" and found.size <= 0:
        said = f"rate {found.name!r} is set to {found.size}: nothing starts until that is changed"
        return [Hindrance(kind="rate", text=said, name=found.name)]
    if found.next_at is not None:
        until = to_datetime(found.next_at)
        said = f"rate {found.name!r} is used up ({found.used}/{found.size}), the next starts at {until:%H:%M:%S.%f}"
        return [Hindrance(kind="rate", text=said, until=until, name=found.name)]
    if found.kind == "concurrency" and found.used >= found.size:
        said = held_by(found.name) or f"limit {found.name!r} is reached"
        said += f" ({found.used}/{found.size})"
        holders = tuple(UUID(bytes=each) for each in found.holders)
        return [Hindrance(kind="limit", text=said, jobs=holders, name=found.name)]
    return []


def _broken(found: BucketRow, breaker: BreakerRow) -> list[Hindrance]:
    name, until = found.limit.removesuffix(BREAKER_SUFFIX), None
    if breaker.state == "closed" or (breaker.state == "half_open" and found.used < found.size):
        return []
    if breaker.state == "half_open":
        said = f"breaker {name!r} is half open with its probe{'s' if found.used > 1 else ''} running"
    elif breaker.until is None:
        said = f"breaker {name!r} is open until somebody resets it"
    else:
        until = to_datetime(breaker.until)
        said = f"breaker {name!r} is open until {until:%H:%M:%S}"
        said += " (by hand)" if breaker.tripped else f" ({breaker.failures} failures, last {breaker.error})"
    holders = tuple(UUID(bytes=each) for each in found.holders) if breaker.state == "half_open" else ()
    return [Hindrance(kind="breaker", text=said, until=until, jobs=holders, name=name)]


def _nobody(row: JobRow, workers: Sequence[WorkerRow]) -> list[Hindrance]:
    """No living worker would take it."""
    serving = [each for each in workers if not each.lost and row.queue in each.queues]
    if not serving:
        said = f"no live worker serves queue {row.queue!r}"
        return [Hindrance(kind="no_worker", text=said, name=row.queue)]
    needs = {term for term in terms_of(row.lane) if term[0] not in (VERSION, BULK)}
    fit = [each for each in serving if needs <= set(_said(each).labels)]
    if not fit:
        labels = ", ".join(sorted(needs))
        said = f"no live worker of queue {row.queue!r} has what it needs: {labels}"
        return [Hindrance(kind="labels", text=said, name=labels)]
    pins = {term for term in terms_of(row.lane) if term.startswith(VERSION)}
    if pins and not any(version_term(_said(each).version) in pins for each in fit):
        pinned = ", ".join(sorted(unquote(pin[1:]) for pin in pins))
        said = f"it is pinned to version {pinned}, and no live worker of queue {row.queue!r} is of that version"
        return [Hindrance(kind="version", text=said, name=pinned)]
    kind = base_of(row.lane).removeprefix(row.queue + "/")
    if not any(kind in (_said(each).kinds or (kind,)) for each in fit):
        said = f"no live worker of queue {row.queue!r} takes jobs with its needs, slot and version ({kind})"
        return [Hindrance(kind="no_worker", text=said, name=row.queue)]
    if not any(row.task in each.tasks for each in fit):
        said = f"no live worker of queue {row.queue!r} knows task {row.task!r}"
        return [Hindrance(kind="unknown_task", text=said, name=row.task)]
    return []


async def _capped(store: Store, row: JobRow, workers: Sequence[WorkerRow]) -> list[Hindrance]:
    """Every worker that would take it runs as many of its queue as it was told to."""
    caps = {each.id: _said(each).concurrency.get(row.queue) for each in workers if _would_take(row, each)}
    if not caps or None in caps.values():
        return []
    page = await store.find(Query(queues=(row.queue,), states=(State.RUNNING,)), limit=_LOOK)
    held = Counter(each.worker for each in page.jobs)
    if any(held[id] < (cap or 0) for id, cap in caps.items()):
        return []
    most = sum(cap or 0 for cap in caps.values())
    whose = "its worker runs" if len(caps) == 1 else f"each of its {len(caps)} workers runs"
    said = f"{whose} as many of queue {row.queue!r} as concurrency= allows ({sum(held[id] for id in caps)}/{most})"
    jobs = tuple(UUID(bytes=each.id) for each in page.jobs if each.worker in caps)
    return [Hindrance(kind="capped", text=said, jobs=jobs[:_SHOWN], name=row.queue)]


def _would_take(row: JobRow, worker: WorkerRow) -> bool:
    return not _nobody(row, [worker])


class _Said(msgspec.Struct):
    """What a worker says of itself."""

    labels: tuple[str, ...] = ()
    version: str = ""
    kinds: tuple[str, ...] = ()
    concurrency: dict[str, int] = {}


def _said(worker: WorkerRow) -> _Said:
    return msgspec.json.decode(worker.info, type=_Said) if worker.info else _Said()
