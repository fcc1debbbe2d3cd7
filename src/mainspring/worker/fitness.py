"""What a worker is fit for: the tasks that it can run, and the lanes where their jobs wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mainspring.lanes import BULK, on_terms, terms_of, version_term

if TYPE_CHECKING:
    from mainspring.spec import TaskSpec
    from mainspring.worker.parts import Parts, WorkerSettings


def can_run(spec: TaskSpec, settings: WorkerSettings) -> bool:
    """Whether it has a slot of the task's kind and every label that the task needs."""
    slots = settings.async_slots if spec.kind == "async" else settings.thread_slots
    return slots > 0 and set(spec.needs) <= set(settings.labels)


def runnable(parts: Parts) -> tuple[str, ...]:
    """The names of the tasks that it can run."""
    return tuple(name for name, spec in parts.tasks.items() if can_run(spec, parts.settings))


def lane_kinds(parts: Parts) -> Mapping[str, tuple[str, ...]]:
    """For each kind of slot the kinds of the base lanes to ask for: the plain one, and those with terms that it fits.

    Each label alone is asked for as well: jobs keep what they were enqueued with, and a task that needs
    something else today may have left some behind.
    """
    kinds = {kind: {on_terms(kind, ())} for kind in ("async", "thread", "any")}
    for kind in ("async", "thread"):
        kinds[kind] |= {on_terms(kind, (label,)) for label in parts.settings.labels}
    for name in runnable(parts):
        spec = parts.tasks[name]
        kinds[spec.kind].add(on_terms(spec.kind, spec.needs))
        if spec.pinned:
            kinds[spec.kind].add(on_terms(spec.kind, (*spec.needs, version_term(parts.version))))
    return {kind: tuple(sorted(found)) for kind, found in kinds.items()}


def fits(lane: str, parts: Parts) -> bool:
    """Whether it has the labels, and is of the version, that the jobs of this lane ask for."""
    own = {*parts.settings.labels, version_term(parts.version)}
    return all(term in own for term in terms_of(lane) if not term.startswith(BULK))
