"""From a declaration to what a scheduler needs of it: a definition with a complete job, always the same for the same
declaration, so that whoever starts next sees whether anything has changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from mainspring.errors import UnknownTask
from mainspring.jobs.lanes import unpinned
from mainspring.jobs.new_job import FOLLOW_UPS
from mainspring.schedules.declare import OF_JOBS
from mainspring.schedules.plan import TEMPLATE, Definition
from mainspring.tasks.middleware import wrap_call

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.jobs.call import Call
    from mainspring.limits.declare import BoundLimit
    from mainspring.schedules.declare import Declaration


def of_code(app: Mainspring) -> dict[str, Definition]:
    """The definitions of all schedules that the code declares; refused if they do not fit together."""
    wiring = app.tasks.wiring
    wiring.check()
    for each in app.tasks.scheduled.values():
        if app.tasks.find(each.task) is None:
            raise UnknownTask(each.task, app.tasks)
    return {
        each.name: define(
            app, each, wiring.bounds(each.name),
            depends_on=wiring.names(each, "depends_on"), blocks=wiring.names(each, "blocks"),
        )
        for each in app.tasks.scheduled.values()
    }  # fmt: skip


def define(
    app: Mainspring,
    declared: Declaration,
    bounds: Sequence[BoundLimit],
    *,
    depends_on: Sequence[str],
    blocks: Sequence[str],
) -> Definition:
    """The definition of one schedule, whose runs have these limits beside those of their task."""
    o = declared.options
    call = wrap_call(app.enqueue_middleware, _call(app, declared, bounds))
    return Definition(
        job=call.build(app.settings.version, declared.name).job(TEMPLATE),
        limits=call.limits,
        mode=o["mode"],
        rule=declared.rule,
        immediate=o["immediate"],
        jitter=o["jitter"],
        overlap=o["overlap"],
        misfire=o["misfire"],
        depends_on=tuple(depends_on),
        blocks=tuple(blocks),
        group=o["group"] or "",
        max_failures=o["max_failures"],
        reenable_after=o["reenable_after"] or 0,
        min_pause=o["min_pause"] if o["mode"] == "continuous" else 0,
        history=o["history"],
    )


def _call(app: Mainspring, declared: Declaration, bounds: Sequence[BoundLimit]) -> Call[Any]:
    """The call of each run, with what its task and its schedule are limited by."""
    task = app.tasks.find(declared.task)
    if declared.call is not None:
        call = declared.call if task is None else declared.call.retargeted(task.target)
    elif task is not None:
        call = task.s()
    else:
        raise UnknownTask(declared.task, app.tasks)
    target = call.target
    own = {name: declared.options[name] for name in FOLLOW_UPS if name in declared.given}
    limits = {bound.limit.name: bound for bound in (*target.bounds, *bounds)}
    call = call.retargeted(
        replace(
            target, bounds=tuple(limits.values()), part="", template=None, options={**target.options, **own},
            kind=unpinned(target.kind),  # a schedule outlives the version that declares it
        )
    )  # fmt: skip
    given = {name: declared.given[name] for name in OF_JOBS if name in declared.given}
    return call.options(**given) if given else call
