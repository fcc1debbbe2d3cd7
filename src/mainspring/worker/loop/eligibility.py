"""What a worker is fit for: the tasks that it can run, and the lanes where their jobs wait."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import TYPE_CHECKING

from mainspring.jobs.lanes import BULK, bulk_term, on_terms, terms_of, version_term

if TYPE_CHECKING:
    from mainspring.tasks.spec import TaskSpec
    from mainspring.worker.config import WorkerConfig, WorkerSettings

_FEW = 3


def can_run(spec: TaskSpec, settings: WorkerSettings) -> bool:
    """Whether it has a slot of the task's kind and every label that the task needs."""
    slots = settings.async_slots if spec.kind == "async" else settings.thread_slots
    return slots > 0 and set(spec.needs) <= set(settings.labels)


def runnable(parts: WorkerConfig) -> tuple[str, ...]:
    """The names of the tasks that it can run."""
    return tuple(name for name, spec in parts.tasks.items() if can_run(spec, parts.settings))


def lane_kinds(parts: WorkerConfig) -> Mapping[str, tuple[str, ...]]:
    """For each kind of slot the kinds of the base lanes to ask for: the plain one, and those with terms that it fits.

    Jobs keep what they were enqueued with, and a task that needs less today may have left some behind: so all that
    few labels can make up is asked for, and of many each alone.
    """
    labels, version = parts.settings.labels, (version_term(parts.version),) if parts.version else ()
    sizes = range(len(labels) + 1) if len(labels) <= _FEW else (0, 1, len(labels))
    left = [(*some, *pin) for size in sizes for some in combinations(labels, size) for pin in {(), version}]
    kinds = {kind: {on_terms(kind, terms) for terms in left} for kind in ("async", "thread")}
    for name in runnable(parts):
        spec = parts.tasks[name]
        kinds[spec.kind] |= {on_terms(spec.kind, (*spec.needs, *pin)) for pin in {(), version}}
    return {"any": (on_terms("any", ()),)} | {kind: tuple(sorted(found)) for kind, found in kinds.items()}


def bulk_kinds(spec: TaskSpec, parts: WorkerConfig) -> tuple[str, ...]:
    """Of the base lanes that the jobs of a bulk task wait in, under each name that it has or had."""
    names = {spec.name, *(name for name, each in parts.tasks.items() if each.name == spec.name)}
    terms = [(*spec.needs, bulk_term(name)) for name in sorted(names)]
    pinned = [(*each, version_term(parts.version)) for each in terms] if spec.pinned else []
    return tuple(on_terms(spec.kind, each) for each in (*terms, *pinned))


def asked_kinds(parts: WorkerConfig) -> list[str]:
    """The kinds of all base lanes that it takes jobs from."""
    slots = {"async": parts.settings.async_slots, "thread": parts.settings.thread_slots}
    found = {each for kind, all_of in lane_kinds(parts).items() for each in all_of if slots.get(kind, 1)}
    for name in runnable(parts):
        spec = parts.tasks[name]
        if spec.bulk is not None:
            found.update(bulk_kinds(spec, parts))
    return sorted(found)


def fits(lane: str, parts: WorkerConfig) -> bool:
    """Whether it has the labels, and is of the version, that the jobs of this lane ask for."""
    own = {*parts.settings.labels, version_term(parts.version)}
    return all(term in own for term in terms_of(lane) if not term.startswith(BULK))
