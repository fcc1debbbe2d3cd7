"""Which tasks a worker can run, and in which lanes their jobs wait."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import TYPE_CHECKING

import msgspec

from mainspring.jobs.lanes import (
    BULK,
    DEFAULT_POOL,
    POOL,
    bulk_term,
    on_terms,
    pool_terms,
    terms_of,
    version_term,
)
from mainspring.pools.settings import PoolSettings

if TYPE_CHECKING:
    from mainspring.tasks.spec import TaskSpec
    from mainspring.worker.config import WorkerConfig, WorkerSettings

_MAX_COMBINED = 3
"""Up to this many labels, the worker asks for the lanes of every combination of its labels."""


def can_run(spec: TaskSpec, settings: WorkerSettings) -> bool:
    """Whether the worker has a slot of the task's kind and every label that the task needs."""
    if spec.kind == "process":
        slots = settings.process_slots if spec.pool == DEFAULT_POOL else int("worker" in settings.roles)
    else:
        slots = settings.async_slots if spec.kind == "async" else settings.thread_slots
    return slots > 0 and set(spec.needs) <= set(settings.labels)


def runnable_tasks(config: WorkerConfig) -> tuple[str, ...]:
    """The names of the tasks that the worker can run."""
    return tuple(name for name, spec in config.tasks.items() if can_run(spec, config.settings))


def lane_kinds(config: WorkerConfig) -> Mapping[str, tuple[str, ...]]:
    """For each kind of slot, the kinds of the base lanes to ask for: the plain one, and those whose terms it meets.

    A job keeps the terms it was enqueued with. If a task needed more labels earlier, its older jobs still wait in lanes
    with more terms. So the worker asks for every combination of up to three labels; with more labels than three, for
    each label alone and for all of them.
    """
    kinds = {kind: {on_terms(kind, each) for each in _term_sets(config)} for kind in ("async", "thread")}
    for name in runnable_tasks(config):
        spec = config.tasks[name]
        if spec.kind in kinds:
            kinds[spec.kind] |= {on_terms(spec.kind, (*spec.needs, *pin)) for pin in _pins(config)}
    for pool in config.pools_in_threads:
        kinds["thread"].update(pool_lane_kinds(pool, config))
    return {"any": (on_terms("any", ()),)} | {kind: tuple(sorted(found)) for kind, found in kinds.items()}


def pool_lane_kinds(pool: str, config: WorkerConfig) -> tuple[str, ...]:
    """The kinds of the base lanes in which the jobs of a pool of process slots wait: see :func:`lane_kinds`."""
    found = {on_terms("process", (*terms, *pool_terms(pool))) for terms in _term_sets(config)}
    for name in runnable_tasks(config):
        spec = config.tasks[name]
        if spec.pool == pool:
            found |= {on_terms("process", (*spec.needs, *pool_terms(pool), *pin)) for pin in _pins(config)}
    return tuple(sorted(found))


def served_pools(config: WorkerConfig) -> Mapping[str, PoolSettings]:
    """The pools of process slots that this worker has: those of the tasks that it can run."""
    settings = config.settings
    names = {config.tasks[name].pool for name in runnable_tasks(config)} - {""}
    default = PoolSettings(name=DEFAULT_POOL, max=settings.process_slots)
    found = {name: config.pools.get(name) or default for name in sorted(names)}
    return {name: pool if pool.max else msgspec.structs.replace(pool, max=default.max) for name, pool in found.items()}


def bulk_lane_kinds(spec: TaskSpec, config: WorkerConfig) -> tuple[str, ...]:
    """The kinds of the base lanes in which the jobs of a bulk task wait, for its name and each of its aliases."""
    names = {spec.name, *(name for name, each in config.tasks.items() if each.name == spec.name)}
    terms = [(*spec.needs, bulk_term(name)) for name in sorted(names)]
    pinned = [(*each, version_term(config.version)) for each in terms] if spec.pinned else []
    return tuple(on_terms(spec.kind, each) for each in (*terms, *pinned))


def _term_sets(config: WorkerConfig) -> list[tuple[str, ...]]:
    """The sets of terms to ask for: combinations of the labels of the worker, each with and without its version."""
    labels = config.settings.labels
    sizes = range(len(labels) + 1) if len(labels) <= _MAX_COMBINED else (0, 1, len(labels))
    return [(*some, *pin) for size in sizes for some in combinations(labels, size) for pin in _pins(config)]


def _pins(config: WorkerConfig) -> set[tuple[str, ...]]:
    return {(), (version_term(config.version),) if config.version else ()}


def all_lane_kinds(config: WorkerConfig) -> list[str]:
    """The kinds of all base lanes that the worker claims from."""
    slots = {"async": config.settings.async_slots, "thread": config.settings.thread_slots}
    found = {each for kind, kinds in lane_kinds(config).items() for each in kinds if slots.get(kind, 1)}
    for name in runnable_tasks(config):
        spec = config.tasks[name]
        if spec.bulk is not None:
            found.update(bulk_lane_kinds(spec, config))
    for pool in served_pools(config):
        found.update(pool_lane_kinds(pool, config))
    return sorted(found)


def meets_terms(lane: str, config: WorkerConfig) -> bool:
    """Whether the worker has the labels and the version that the jobs of this lane need."""
    own = {*config.settings.labels, version_term(config.version)}
    return all(term in own for term in terms_of(lane) if not term.startswith((BULK, POOL)))
