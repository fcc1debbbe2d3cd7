"""Explains why a job does not run: checks everything that a claim checks, for one job, and describes it in words.

The obstacles come in the order of the claim. If there is none, the next turn of a worker with a free slot claims the
job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote
from uuid import UUID

import msgspec

from mainspring.breakers.records import BREAKER_SUFFIX, BreakerRow
from mainspring.common.clock import to_datetime
from mainspring.common.redact import HIDDEN, looks_secret, mask_urls
from mainspring.common.text import describe_same_function
from mainspring.errors import did_you_mean
from mainspring.flows.results import is_join
from mainspring.flows.shape import BUILT_IN
from mainspring.jobs.info import decode_error, describe_error
from mainspring.jobs.lanes import BULK, VERSION, base_of, excludes_suspects, is_suspect, terms_of, version_term
from mainspring.jobs.outcomes import Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import JobBody, JobRow, order_key
from mainspring.limits.records import BucketRow
from mainspring.queues.records import QueueMode
from mainspring.schedules.plan import describe_full_bucket
from mainspring.states import FINAL, State
from mainspring.worker.records import WorkerRow

if TYPE_CHECKING:
    from mainspring.stores.base import Store

_MAX_READ = 1000
_MAX_SHOWN = 10
_SHOWN_IN_TEXT = 3
ObstacleKind = Literal[
    "ended", "running", "not_due", "dependency", "key", "expired", "paused", "disabled", "limit", "rate", "breaker",
    "no_worker", "labels", "version", "unknown_task", "isolated", "capped", "slots",
]  # fmt: skip


class Obstacle(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that prevents a job from running."""

    kind: ObstacleKind
    text: str
    """The description for users."""
    until: datetime | None = None
    """When it ends, if that is known."""
    jobs: tuple[UUID, ...] = ()
    """The jobs that the job waits for: its parents, or the jobs that hold the capacity of a limit."""
    name: str = ""
    """The name of the queue, limit, breaker, key, schedule or task, or of the option that the workers need."""


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """What prevents a job from running; nothing if ``obstacles`` is empty."""

    id: UUID
    state: State
    obstacles: tuple[Obstacle, ...] = ()

    @property
    def text(self) -> str:
        """The state and the obstacles in words: ``ready: no live worker serves queue 'default'``."""
        found = "; ".join(each.text for each in self.obstacles)
        return f"{self.state.value}: {found or 'nothing prevents it from running, it starts in the next free slot'}"

    def __str__(self) -> str:
        return f"{self.id} is {self.text}"


async def explain(store: Store, row: JobRow, now: int) -> Why:
    """Check everything that can prevent this job from running."""
    id = UUID(bytes=row.id)
    if row.state in FINAL:
        said = f"the job has ended as {row.state.value}" + (f" ({row.reason.value})" if row.reason else "")
        return Why(id=id, state=row.state, obstacles=(Obstacle(kind="ended", text=said),))
    if row.state is State.RUNNING:
        said = f"the job runs on worker {row.worker}"
        if any(each.id == row.worker and each.is_silent(now) for each in await store.workers()):
            said += ", which has sent no heartbeat for longer than its lease: the next live worker gives the job back"
        return Why(id=id, state=row.state, obstacles=(Obstacle(kind="running", text=said, name=row.worker or ""),))
    if is_join(row):
        return Why(
            id=id, state=row.state, obstacles=tuple(await _find_open(store, row) + await _find_parents(store, row))
        )
    found: list[Obstacle] = []
    if row.expires is not None and row.expires <= now:
        found.append(Obstacle(kind="expired", text="the job expired before it started, and will be cancelled"))
    found += await _find_crash_delay(store, row) or await _find_parents(store, row) or _find_wait(row)
    found += await _find_queue_mode(store, row)
    buckets = await store.buckets(row.buckets) if row.buckets else []
    found += [each for bucket in buckets for each in _find_full(_without_secret(bucket, row))]
    if not found and any(bucket.kind in ("rate", "smooth") for bucket in buckets):
        found += await _find_expensive_head(store, row, now)
    workers = [each for each in await store.workers() if not each.is_silent(now)]
    missing = _find_missing_worker(row, workers)
    found += missing or await _find_isolation(store, row, workers) + await _find_capped_workers(store, row, workers)
    return Why(id=id, state=row.state, obstacles=tuple(found))


async def _find_expensive_head(store: Store, row: JobRow, now: int) -> list[Obstacle]:
    """Find the first job of the lane, if it costs more than its rate has left.

    A lane is strictly in order: no job passes such a job. It is searched among the newest 1,000 ready jobs.
    """
    page = await store.find(Query(queues=(row.queue,), states=(State.READY,)), limit=_MAX_READ)
    line = [each for each in page.jobs if each.lane == row.lane and (each.expires is None or each.expires > now)]
    first = min(line, key=lambda each: order_key(each.seq, each.priority), default=row)
    ahead, found = UUID(bytes=first.id), await store.buckets(first.buckets)
    return [
        msgspec.structs.replace(each, text=f"the job waits behind job {ahead}: {each.text}", jobs=(ahead,))
        for bucket in found
        for each in _find_full(_without_secret(bucket, first))
    ]


def _find_wait(row: JobRow) -> list[Obstacle]:
    if row.token == 0 and row.state in (State.BLOCKED, State.SCHEDULED) and (found := _find_key_wait(row)):
        return found
    if row.state is State.BLOCKED:
        others = "another job" if row.deps == 1 else f"{row.deps} other jobs"
        return [Obstacle(kind="dependency", text=f"the job waits for {others} to end")]
    if row.state in (State.SCHEDULED, State.RETRYING) and row.due is not None:
        until = to_datetime(row.due)
        return [Obstacle(kind="not_due", text=f"the job is due at {until.isoformat(' ', 'seconds')}", until=until)]
    return []


async def _find_parents(store: Store, row: JobRow) -> list[Obstacle]:
    """Find the parents of a blocked job, or the members of a join, that have not ended."""
    if row.token == 0 and _find_key_wait(row):  # `keep_last` waits for the job before it: its key says so
        return []
    if row.state is not State.BLOCKED or not (edges := await store.waits_for(row.id, _MAX_SHOWN)):
        return []
    parents = {each.id: each for each in (await store.find(Query(ids=tuple(e.parent for e in edges)))).jobs}
    shown = [f"{UUID(bytes=edge.parent)} ({_parent_text(parents.get(edge.parent))})" for edge in edges[:_SHOWN_IN_TEXT]]
    others = row.deps - len(shown)
    more = f" and {others} more" if others > 0 else ""
    said = f"the job waits for {', '.join(shown)}{more}"
    return [Obstacle(kind="dependency", text=said, jobs=tuple(UUID(bytes=edge.parent) for edge in edges))]


async def _find_open(store: Store, row: JobRow) -> list[Obstacle]:
    """Find whether a join is open: it ends after it was closed."""
    if not any(join.open for join in await store.joins([row.id])):
        return []
    said = "it is open, so that jobs can be added: a batch is closed by batch.close() or mainspring flows close ID"
    return [Obstacle(kind="dependency", text=said)]


def _parent_text(parent: JobRow | None) -> str:
    if parent is None:
        return "deleted"
    retry = ": retry it" if parent.state is State.DEAD else ""
    return f"{parent.task}, {parent.state.value}{retry}"


async def _find_crash_delay(store: Store, row: JobRow) -> list[Obstacle]:
    """Find the delay after a crash, if the job waits for the end of it."""
    if row.state is not State.RETRYING or not row.crashes or row.due is None:
        return []
    last = (await store.attempts(row.id))[-1:]
    if not last or last[0].outcome is not Outcome.CRASHED:
        return []
    until = to_datetime(row.due)
    said = f"{_describe_crashes(row, last[0].error)}: the job is due at {until.isoformat(' ', 'seconds')}"
    return [Obstacle(kind="not_due", text=said, until=until)]


def _describe_crashes(row: JobRow, error: bytes | None = None) -> str:
    """How often the job crashed its process, and how often it may. ``error``: of the last crash, if its worker lived
    and reported it."""
    times = "once" if row.crashes == 1 else f"{row.crashes} times"
    is_last = is_suspect(row.crashes, row.crash_limit)
    limit = "the next crash makes the job dead" if is_last else f"{row.crash_limit} crashes make the job dead"
    last = "" if error is None else f", the last time by {describe_error(decode_error(error))}"
    return f"the process that ran the job crashed {times}{last} ({limit})"


def _find_key_wait(row: JobRow) -> list[Obstacle]:
    """Find what a job that never started waits for, by the mode of its key."""
    try:
        key, mode = (body := msgspec.json.decode(row.record, type=JobBody)).key or "", body.mode
    except msgspec.DecodeError:  # a later version wrote it: its key cannot be read
        return []
    if mode == "keep_last" and row.state is State.BLOCKED:
        said = f"key {key!r} runs one job at a time (keep_last): the job waits for the running job to end"
        return [Obstacle(kind="key", text=said, name=key)]
    if mode not in ("debounce", "throttle") or row.due is None:
        return []
    until = to_datetime(row.due)
    rule = "waits until enqueues have stopped" if mode == "debounce" else "starts one job in each window"
    said = f"key {key!r} {rule} ({mode}): the job is due at {until.isoformat(' ', 'seconds')}"
    return [Obstacle(kind="key", text=said, until=until, name=key)]


async def _find_queue_mode(store: Store, row: JobRow) -> list[Obstacle]:
    found = []
    for queue in await store.queues():
        if queue.name == row.queue and queue.mode is QueueMode.PAUSED:
            found.append(Obstacle(kind="paused", text=f"queue {row.queue!r} is paused", name=row.queue))
        if queue.name == row.queue and queue.disabled is not None:
            by = f" by {queue.disabled_by}" if queue.disabled_by else ""
            said = f"queue {row.queue!r} was disabled{by} ({queue.disabled.value})"
            found.append(Obstacle(kind="disabled", text=said, name=row.queue))
    return found


def _without_secret(bucket: BucketRow, row: JobRow) -> BucketRow:
    """The bucket to describe: its key is hidden if it is the value of a secret argument, as in ``job.info().args``."""
    by = bucket.limit.rpartition("/")[2]
    if bucket.name == bucket.limit or not (
        looks_secret(by) or by in msgspec.json.decode(row.record, type=JobBody).hide
    ):
        return msgspec.structs.replace(bucket, name=mask_urls(bucket.name))
    return msgspec.structs.replace(bucket, name=f"{bucket.limit}={HIDDEN}")


def _find_full(found: BucketRow) -> list[Obstacle]:
    """Find whether a bucket has no capacity, by the same numbers as the claim."""
    if found.breaker is not None:
        return _find_open_breaker(found, found.breaker)
    if found.kind != "concurrency" and found.size <= 0:
        said = f"rate {found.name!r} is set to {found.size}: no job starts until the size is changed"
        return [Obstacle(kind="rate", text=said, name=found.name)]
    if found.next_at is not None:
        until = to_datetime(found.next_at)
        said = f"rate {found.name!r} is used up ({found.used}/{found.size}), the next job starts at {until:%H:%M:%S.%f}"
        return [Obstacle(kind="rate", text=said, until=until, name=found.name)]
    if found.kind == "concurrency" and found.used >= found.size:
        said = describe_full_bucket(found.name) or f"limit {found.name!r} has reached its size"
        said += f" ({found.used}/{found.size})"
        holders = tuple(UUID(bytes=each) for each in found.holders)
        return [Obstacle(kind="limit", text=said, jobs=holders, name=found.name)]
    return []


def _find_open_breaker(found: BucketRow, breaker: BreakerRow) -> list[Obstacle]:
    name, until = found.limit.removesuffix(BREAKER_SUFFIX), None
    if breaker.state == "closed" or (breaker.state == "half_open" and found.used < found.size):
        return []
    if breaker.state == "half_open":
        said = f"breaker {name!r} is half open, and its probe{'s are' if found.used > 1 else ' is'} running"
    elif breaker.until is None:
        said = f"breaker {name!r} is open until an operator resets it"
    else:
        until = to_datetime(breaker.until)
        said = f"breaker {name!r} is open until {until:%H:%M:%S}"
        said += " (opened by hand)" if breaker.tripped else f" ({breaker.failures} failures, the last: {breaker.error})"
    holders = tuple(UUID(bytes=each) for each in found.holders) if breaker.state == "half_open" else ()
    return [Obstacle(kind="breaker", text=said, until=until, jobs=holders, name=name)]


def describe_unserved(queue: str, served: Iterable[str], ready: int = 0) -> str:
    """The sentence for a queue that no live worker serves. ``served`` are the queues that live workers serve."""
    jobs = f", which has {ready:,} ready job{'s' if ready > 1 else ''}" if ready else ""
    return f"no live worker serves queue {queue!r}{jobs}{did_you_mean(queue, served)}"


def _find_missing_worker(row: JobRow, workers: Sequence[WorkerRow]) -> list[Obstacle]:
    """Find why no live worker would claim the job."""
    serving = [each for each in workers if row.queue in each.queues]
    if not serving:
        said = describe_unserved(row.queue, {queue for each in workers for queue in each.queues})
        return [Obstacle(kind="no_worker", text=said, name=row.queue)]
    needs = {term for term in terms_of(row.lane) if term[0] not in (VERSION, BULK)}
    fit = [each for each in serving if needs <= set(_read_facts(each).labels)]
    if not fit:
        labels = ", ".join(sorted(needs))
        said = f"no live worker of queue {row.queue!r} has the labels that the job needs: {labels}"
        return [Obstacle(kind="labels", text=said, name=labels)]
    pins = {term for term in terms_of(row.lane) if term.startswith(VERSION)}
    if pins and not any(version_term(_read_facts(each).version) in pins for each in fit):
        pinned = ", ".join(sorted(unquote(pin[1:]) for pin in pins))
        said = f"the job is pinned to version {pinned}, and no live worker of queue {row.queue!r} runs that version"
        return [Obstacle(kind="version", text=said, name=pinned)]
    if all(_read_facts(each).stopping for each in fit):
        whose = "the only live worker" if len(fit) == 1 else f"each of the {len(fit)} live workers"
        said = f"{whose} of queue {row.queue!r} is stopping and claims no more jobs"
        return [Obstacle(kind="no_worker", text=said, name=row.queue)]
    kind = base_of(row.lane).removeprefix(row.queue + "/")
    if slots := _find_missing_slots(row.queue, kind.partition("~")[0], fit):
        return [slots]
    if not any(kind in (_read_facts(each).kinds or (kind,)) for each in fit):
        said = f"no live worker of queue {row.queue!r} claims jobs with these labels, slot and version ({kind})"
        if any(term[0] == BULK for term in terms_of(row.lane)):
            said = (
                f"no live worker of queue {row.queue!r} had task {row.task!r} as a bulk task when it started: start a "
                "worker after the declaration"
            )
        return [Obstacle(kind="no_worker", text=said, name=row.queue)]
    if row.task not in BUILT_IN and not any(row.task in each.tasks for each in fit):
        said = f"no live worker of queue {row.queue!r} knows task {row.task!r}"
        without = [each for each in ("async", "thread") if _find_missing_slots(row.queue, each, fit)]
        if without:
            said += f", or they have no slots for it: {' and '.join(f'{each}_slots=0' for each in without)}"
        elif same := describe_same_function(row.task, {task for each in fit for task in each.tasks}):
            said += f"; {same}"
        return [Obstacle(kind="unknown_task", text=said, name=row.task)]
    return []


def _find_missing_slots(queue: str, kind: str, workers: Sequence[WorkerRow]) -> Obstacle | None:
    """Find whether every one of these workers has no slot for jobs of this kind."""
    if kind not in ("async", "thread"):
        return None
    option, tasks = f"{kind}_slots", "async def" if kind == "async" else "def"
    if any(getattr(_read_facts(each), option) != 0 for each in workers):
        return None
    said = f"no live worker of queue {queue!r} runs {tasks} tasks: they have {option}=0"
    return Obstacle(kind="slots", text=said, name=option)


async def _find_isolation(store: Store, row: JobRow, workers: Sequence[WorkerRow]) -> list[Obstacle]:
    """Find whether every worker that would claim this suspect holds another job that crashed before."""
    if not is_suspect(row.crashes, row.crash_limit):
        return []
    takers = {each.id for each in workers if _would_take(row, each)}
    page = await store.find(Query(states=(State.RUNNING,)), limit=_MAX_READ)
    crashed = [each for each in page.jobs if each.worker in takers and excludes_suspects(each.crashes)]
    if not takers or takers - {each.worker for each in crashed}:
        return []
    whose = "the worker" if len(takers) == 1 else f"each of the {len(takers)} workers"
    said = (
        f"{_describe_crashes(row)}: the job starts in a worker that runs no other job that crashed before, and {whose} "
        f"of queue {row.queue!r} runs such a job"
    )
    jobs = tuple(UUID(bytes=each.id) for each in crashed)
    return [Obstacle(kind="isolated", text=said, jobs=jobs[:_MAX_SHOWN], name=row.queue)]


async def _find_capped_workers(store: Store, row: JobRow, workers: Sequence[WorkerRow]) -> list[Obstacle]:
    """Find whether every worker that would claim the job has reached ``concurrency``, for its queue or for all jobs."""
    facts = {each.id: _read_facts(each) for each in workers if _would_take(row, each)}
    caps = {id: each.max_jobs or each.concurrency.get(row.queue) for id, each in facts.items()}
    if not caps or None in caps.values():
        return []
    page = await store.find(Query(states=(State.RUNNING,)), limit=_MAX_READ)
    counts = {id: each.max_jobs is not None for id, each in facts.items()}  # whether jobs of any queue count
    counted = [each for each in page.jobs if counts.get(each.worker or "") or each.queue == row.queue]
    held = Counter(each.worker for each in counted)
    if any(held[id] < (cap or 0) for id, cap in caps.items()):
        return []
    most = sum(cap or 0 for cap in caps.values())
    whose = "the worker of" if len(caps) == 1 else f"each of the {len(caps)} workers of"
    said = f"{whose} queue {row.queue!r} has reached concurrency= ({sum(held[id] for id in caps)}/{most})"
    jobs = tuple(UUID(bytes=each.id) for each in counted if each.worker in caps)
    return [Obstacle(kind="capped", text=said, jobs=jobs[:_MAX_SHOWN], name=row.queue)]


def _would_take(row: JobRow, worker: WorkerRow) -> bool:
    return not _find_missing_worker(row, [worker])


class _WorkerFacts(msgspec.Struct):
    """The facts that a worker stored about itself."""

    labels: tuple[str, ...] = ()
    version: str = ""
    kinds: tuple[str, ...] = ()
    async_slots: int | None = None
    thread_slots: int | None = None
    concurrency: dict[str, int] = {}
    max_jobs: int | None = None
    stopping: bool = False


def _read_facts(worker: WorkerRow) -> _WorkerFacts:
    return msgspec.json.decode(worker.info, type=_WorkerFacts) if worker.info else _WorkerFacts()
