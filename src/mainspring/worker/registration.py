"""Register a worker in the store, store what its code declares, and retire the worker."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import platform
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from mainspring.codec import dumps
from mainspring.common.callables import source_hash
from mainspring.common.clock import boottime
from mainspring.common.ids import worker_id
from mainspring.errors import did_you_mean, mask_url
from mainspring.jobs.outcomes import Outcome
from mainspring.jobs.query import Query
from mainspring.queues.records import QueueSettings
from mainspring.schedules.sync import sync
from mainspring.stores.records import Document
from mainspring.stores.shared.programs import (
    PROGRAMS,
    REFRESH,
    describe_foreign,
    describe_program,
    describe_same_names,
    tasks_of_programs,
)
from mainspring.tasks.spec import find_bad_signatures
from mainspring.worker.eligibility import all_lane_kinds, runnable_tasks, served_pools
from mainspring.worker.records import Beat, Registration, RescueResult
from mainspring.worker.retry_log import RetryLog

if TYPE_CHECKING:
    from mainspring.jobs.outcomes import Ack
    from mainspring.limits.records import Limit
    from mainspring.queues.records import QueueRow
    from mainspring.stores.base import Store
    from mainspring.worker.config import WorkerConfig
    from mainspring.worker.lease.heartbeat_thread import CheckLoop
    from mainspring.worker.lease.shared_state import SharedState
    from mainspring.worker.retry_log import Outage
    from mainspring.worker.run.attempt import RunEnvironment

log = logging.getLogger("mainspring.worker")

R = TypeVar("R")


class Heartbeats(Protocol):
    """Sends the heartbeats of a worker, also while its event loop is busy."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def wake(self) -> None: ...
    async def wait_registered(self) -> None: ...


class MakeHeartbeats(Protocol):
    """Builds the heartbeats of one worker."""

    def __call__(
        self,
        registration: Callable[[], Registration],
        worker_id: Callable[[], str],
        *,
        on_lost: Callable[[], None],
        on_lease_low: Callable[[], None],
        outage: Outage,
        check_loop: CheckLoop,
    ) -> Heartbeats: ...


def build_registration(config: WorkerConfig, more: Mapping[str, object]) -> Registration:
    """The row of a worker in the store, with ``more`` facts in its ``info``.

    It names only the tasks that the worker can run. The store parks jobs that a worker hands back for want of a slot or
    a label, and must not give them to the same worker again.
    """
    settings = config.settings
    info = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "python": platform.python_version(),
        "version": config.version,
        "roles": sorted(settings.roles),
        "async_slots": settings.async_slots,
        "thread_slots": settings.thread_slots,
        "process_slots": {name: pool.max for name, pool in served_pools(config).items()},
        "labels": list(settings.labels),
        "kinds": all_lane_kinds(config),
        "concurrency": settings.concurrency,
        "max_jobs": settings.max_jobs,
        **more,
    }
    return Registration(queues=settings.queues, tasks=runnable_tasks(config), lease=settings.lease, info=dumps(info))


def describe_worker(config: WorkerConfig) -> str:
    """The store, the queues and the slots, in one line for the log."""
    address, settings = config.store, config.settings
    url = mask_url(address.url)
    store = url if address.namespace == "default" else f"{url} (namespace {address.namespace})"
    if "worker" not in settings.roles:
        return f"store {store}, role scheduler, no slots"
    queues = ", ".join(settings.queues) or "none"
    labels = f", labels {', '.join(settings.labels)}" if settings.labels else ""
    slots = f"{settings.async_slots} async and {settings.thread_slots} thread slots"
    if pools := served_pools(config):
        slots += ", processes " + ", ".join(f"{name}={pool.max}" for name, pool in pools.items())
    at_once = "" if settings.max_jobs is None else f", at most {settings.max_jobs} jobs at once"
    return f"store {store}, queues {queues}, {slots}{at_once}{labels}"


async def register(
    environment: RunEnvironment,
    store: Store,
    registration: Callable[[], Registration],
    shared_state: SharedState,
    heartbeats: Heartbeats | None,
    outage: Outage,
) -> None:
    """Register the worker's current id. Retries until the store answers; takes another id if this one is taken."""
    if heartbeats is not None:
        heartbeats.wake()  # it reads the new id from now on; either of the two calls may register the id first

    async def beat() -> bool:
        sent, row = boottime(), registration()
        (reply,) = await store.beat([Beat(environment.worker, row)])
        if reply.alive:
            shared_state.extend(sent + row.lease / 1e6)
        return reply.alive

    while not await _retry(beat, RetryLog("registering the worker", log, outage)):
        environment.worker = worker_id()  # another worker has that id


async def declare_limits(store: Store, limits: Sequence[Limit], outage: Outage) -> None:
    """Store the limits as this code declares them. The code that started last decides. Retries until it succeeds."""
    if limits:
        await _retry(lambda: store.declare_limits(limits), RetryLog("declaring limits", log, outage))


async def declare_queues(store: Store, queues: Mapping[str, QueueSettings], outage: Outage) -> list[QueueRow]:
    """Store the settings of queues, and return the rows of all queues. Retries until it succeeds."""

    async def declare() -> list[QueueRow]:
        known = {row.name: row.declared for row in await store.queues()}
        for name, settings in queues.items():
            if settings != known.get(name, QueueSettings()):
                await store.configure_queue(name, settings, declared=True)
        return await store.queues()

    return await _retry(declare, RetryLog("declaring queues", log, outage))


async def record_program(store: Store, config: WorkerConfig, outage: Outage) -> None:
    """Store the name and the tasks of this program. Warn if all programs of the store are foreign to this one, and if
    one of them has a task of the same name with another function."""
    if not config.program:
        return
    retry_log = RetryLog("reading the programs of the store", log, outage)
    known = await _retry(functools.partial(store.documents, PROGRAMS), retry_log)
    url, namespace = mask_url(config.store.url), config.store.namespace
    if said := describe_foreign(config.program, config.tasks, known, url=url, namespace=namespace):
        log.warning(said)
    now, tasks = await _retry(store.now, retry_log), {name: source_hash(spec.fn) for name, spec in config.tasks.items()}
    if said := describe_same_names(config.program, tasks, known, now, url=url, namespace=namespace):
        log.warning(said)
    data, mine = describe_program(tasks), {doc.name: doc for doc in known}.get(config.program)
    if mine is None or mine.data != data or now - mine.version > REFRESH:
        await _retry(functools.partial(store.put_document, Document(PROGRAMS, config.program, now, data)), retry_log)
    others = [doc.name for doc in known if doc.name != config.program]
    if mine is not None and others:
        log.info("app %r shares this store with %s", config.program, ", ".join(map(repr, others)))


async def warn_of_unknown_queues(store: Store, config: WorkerConfig, stored: Collection[str], outage: Outage) -> None:
    """Warn of a queue that was given to this worker if no task, no ``app.queue`` and no stored job names it.

    Such a name is most likely misspelt. The warning is not an error: another program may use the queue later, and
    ``concurrency`` in the settings of the app may name queues of its other workers.
    """
    capped = {*config.settings.concurrency}.difference(config.settings.queues)
    given = capped.union(config.settings.queues if config.chosen_queues else ())
    for queue in sorted(given.difference(config.known_queues, stored)):
        of_queue = Query.where(queues=[queue])
        counts = await _retry(functools.partial(store.count, of_queue), RetryLog("looking at queues", log, outage))
        if not any(counts.values()):
            near = did_you_mean(queue, {*config.known_queues, *stored})
            where = "concurrency: " if queue in capped else ""
            log.warning("%sno task, no app.queue(...) and no stored job uses the queue %r%s", where, queue, near)


def warn_of_replaced_caps(config: WorkerConfig) -> None:
    """Warn if ``concurrency`` by queue in the settings has no effect, because ``-c 8`` of this worker, or a setting of
    a stronger place, such as ``MAINSPRING_CONCURRENCY=3``, replaces it."""
    settings = config.settings
    caps = sorted(each for each in config.replaced_caps if each.queue in settings.queues)
    if not caps:
        return
    shown = ", ".join(f"{each.queue}={each.cap}" for each in caps)
    both = ",".join(f"{queue}={cap}" for queue, cap in (*sorted(settings.concurrency.items()), *(c[:2] for c in caps)))
    chosen = settings.max_jobs or ",".join(f"{queue}={cap}" for queue, cap in sorted(settings.concurrency.items()))
    if (place := caps[0].replaced_by).startswith("MAINSPRING_"):
        what, instead = f"{place}={chosen}", f"{place}={both}"
    elif place:
        what, instead = f"concurrency={chosen} ({place})", "name these queues there too"
    else:
        what, instead = f"concurrency={chosen} of this worker", " ".join(f"-c {each}" for each in both.split(","))
    log.warning(
        "%s replaces concurrency by queue (%s) of the settings (%s): these queues have no cap of their own here. For "
        "the caps instead: %s; for a cap in the whole fleet: app.queue(..., limit=...)",
        what, shown, ", ".join(sorted({each.where for each in caps})), instead,
    )  # fmt: skip


def report_bad_signatures(config: WorkerConfig) -> None:
    """Log the tasks whose annotations cannot be resolved: no job of them can be enqueued, and none can run."""
    for error in find_bad_signatures(config.tasks.values()):
        log.error("%s", error)


async def warn_of_missing_slots(store: Store, config: WorkerConfig, outage: Outage) -> None:
    """Warn of tasks that this worker cannot run because it has no slots for them, if no other live worker can."""
    settings = config.settings
    for kind, slots in (("async", settings.async_slots), ("thread", settings.thread_slots)):
        if slots or "worker" not in settings.roles:
            continue
        names = set[str]()
        for name, spec in config.tasks.items():
            queue = config.routes.queue_for(name, spec.options["queue"])
            if spec.kind == kind and queue in settings.queues:
                names.add(name)
        if not names:
            continue
        workers = await _retry(store.workers, RetryLog("looking at workers", log, outage))
        if left := sorted(names.difference(*(worker.tasks for worker in workers))):
            few = ", ".join(map(repr, left[:5])) + (f" and {len(left) - 5} more" if len(left) > 5 else "")
            what = "def" if kind == "thread" else "async def"
            log.warning("%s_slots=0: no live worker runs the %s tasks %s; their jobs stay ready", kind, what, few)


def warn_of_unknown_hook_tasks(config: WorkerConfig) -> None:
    """Warn of hooks with ``task=`` that matches no task of this worker: the name is most likely misspelt."""
    for text in config.hooks.without_task(config.tasks):
        log.warning(text)


async def warn_of_unmatched_routes(store: Store, config: WorkerConfig, outage: Outage) -> None:
    """Warn of routes that match no task, neither of this program nor of the other programs of the store.

    Such a name is most likely misspelt. The warning is not an error: the program may enqueue jobs by name for a program
    that has not started yet.
    """
    unmatched = config.routes.without_task(config.tasks)
    if not unmatched:
        return
    retry_log = RetryLog("reading the programs of the store", log, outage)
    others = tasks_of_programs(await _retry(functools.partial(store.documents, PROGRAMS), retry_log))
    if others is None:
        return
    known = others.union(config.tasks, *(worker.tasks for worker in await _retry(store.workers, retry_log)))
    for route in config.routes.without_task(known):
        queue = config.routes.table[route]
        log.warning("the route %r to queue %r matches no task%s", route, queue, did_you_mean(route, known))


async def declare_schedules(store: Store, config: WorkerConfig, outage: Outage) -> None:
    """Store the schedules that the code declares, except those that newer code has declared. Retries."""
    code = config.schedules
    if code is not None:
        await _retry(lambda: sync(store, code), RetryLog("storing schedules", log, outage))


async def retire(
    store: Store, worker: str, limit: float, cause: Outcome = Outcome.INTERRUPTED, acks: Sequence[Ack] = ()
) -> RescueResult | None:
    """Delete the worker's row, within ``limit`` seconds. If that fails (None), its lease ends by itself."""
    try:
        async with asyncio.timeout(limit):
            return await store.retire(worker, cause, acks)
    except Exception as error:  # noqa: BLE001 - the lease of the worker ends by itself
        why = f"no answer in {limit:g} s" if isinstance(error, TimeoutError) else error
        log.warning("worker %s could not remove its row from the store; its lease will expire: %s", worker, why)
        return None


async def _retry(call: Callable[[], Awaitable[R]], retry_log: RetryLog) -> R:
    while True:
        try:
            result = await call()
        except Exception as error:  # noqa: BLE001 - logged, and tried again
            await asyncio.sleep(retry_log.record_failure(error))
        else:
            retry_log.record_success()
            return result
