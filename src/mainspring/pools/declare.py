"""``app.pool(name=...)``: a pool of child processes that runs the jobs of tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from mainspring.errors import InvalidOption, did_you_mean
from mainspring.jobs.lanes import DEFAULT_POOL
from mainspring.pools.settings import PoolSettings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainspring.tasks.spec import TaskSpec


class ProcessPool(NamedTuple):
    """A pool of child processes in each worker. Give it, or its name, as ``pool=`` of a task."""

    name: str
    settings: PoolSettings


def declare_pool(name: str, resolved: Mapping[str, Any], given: Mapping[str, Any]) -> ProcessPool:
    """The pool with these options in normal form. The maximum of the default pool is ``process_slots`` of the worker,
    unless it is given here."""
    settings = PoolSettings(name=name, **resolved)
    if name == DEFAULT_POOL and "max" not in given:
        return ProcessPool(name, msgspec.structs.replace(settings, max=0))
    if settings.min > settings.max:
        why = f"is more than max={settings.max}"
        raise InvalidOption("min", settings.min, why, subject=f"pool {name!r}", hint="Raise max= too.")
    return ProcessPool(name, settings)


def refuse_undeclared(tasks: Iterable[TaskSpec], pools: Mapping[str, PoolSettings]) -> None:
    """Refuse a task whose pool is not declared: its name is most likely misspelt."""
    for spec in tasks:
        if spec.pool and spec.pool != DEFAULT_POOL and spec.pool not in pools:
            raise InvalidOption(
                "pool", spec.pool, f"is not declared{did_you_mean(spec.pool, pools)}", subject=f"task {spec.name!r}",
                hint=f'Declare it: app.pool(name="{spec.pool}", max=2).',
            )  # fmt: skip
