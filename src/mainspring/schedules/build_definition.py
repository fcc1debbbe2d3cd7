"""Builds the stored definition of a schedule from its declaration.

The same declaration always gives the same definition. A worker that starts compares it with the stored one, and
writes nothing if nothing has changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from mainspring.errors import InvalidOption, UnknownTask
from mainspring.jobs.lanes import unpinned
from mainspring.jobs.new_job import FOLLOW_UPS
from mainspring.options.table import options_for
from mainspring.schedules.declare import check_jitter_expiry
from mainspring.schedules.plan import TEMPLATE, Definition
from mainspring.tasks.middleware import wrap_call

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.jobs.call import Call
    from mainspring.limits.declare import BoundLimit
    from mainspring.schedules.declare import Declaration


def build_code_definitions(app: Mainspring) -> dict[str, Definition]:
    """Build the definitions of the schedules that the code declares; ``InvalidOption`` if their relations are wrong."""
    wiring = app.tasks.wiring
    wiring.check()
    for each in app.tasks.scheduled.values():
        if app.tasks.find(each.task) is None:
            raise UnknownTask(each.task, app.tasks)
    return {
        each.name: build_definition(
            app, each, wiring.bounds(each.name),
            depends_on=wiring.names(each, "depends_on"), blocks=wiring.names(each, "blocks"),
        )
        for each in app.tasks.scheduled.values()
    }  # fmt: skip


def build_definition(
    app: Mainspring,
    declared: Declaration,
    bounds: Sequence[BoundLimit],
    *,
    depends_on: Sequence[str],
    blocks: Sequence[str],
) -> Definition:
    """Build the definition of one schedule. ``bounds`` are limits of its runs, beside the limits of the task."""
    o = declared.options
    call = wrap_call(app.enqueue_middleware, _build_call(app, declared, bounds))
    job = call.build(app.settings.version, declared.name).job(TEMPLATE)
    try:
        check_jitter_expiry(o["jitter"], job.expires_in)  # the task of a call by name is known only now
    except InvalidOption as error:
        raise error.about(declared.subject) from None
    return Definition(
        job=job,
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


def _build_call(app: Mainspring, declared: Declaration, bounds: Sequence[BoundLimit]) -> Call[Any]:
    """Build the call of each run, with the limits of its task and of its schedule."""
    task = app.tasks.find(declared.task)
    if declared.call is not None:
        call = declared.call if task is None else declared.call.retargeted(task.target)
    elif task is not None:
        call = task.s().inheriting(declared.job_options)
    else:
        raise UnknownTask(declared.task, app.tasks)
    target = call.target
    own = {name: declared.options[name] for name in FOLLOW_UPS if name in declared.given}
    limits = {bound.limit.name: bound for bound in (*target.bounds, *bounds)}
    call = call.retargeted(
        replace(
            target, bounds=tuple(limits.values()), template=None, options={**target.options, **own},
            kind=unpinned(target.kind),  # a schedule outlives the version that declares it
        )
    )  # fmt: skip
    given = {each.name: declared.given[each.name] for each in options_for("job") if each.name in declared.given}
    return call.options(**given) if given else call
