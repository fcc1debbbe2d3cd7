"""Schedules that are put, switched and deleted at run time, and those of the code that are stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec.structs import replace

from mainspring.common.clock import to_datetime
from mainspring.errors import InvalidOption, UnknownTask, did_you_mean
from mainspring.limits.declare import BoundLimit
from mainspring.schedules import definition
from mainspring.schedules import plan as planning
from mainspring.schedules.declare import Declaration, itself
from mainspring.schedules.lookup import plans_of, unknown
from mainspring.schedules.plan import Definition, ScheduleNews, SchedulePlan, ScheduleStep, one_of_two, some_of
from mainspring.schedules.records import ScheduleDependency, ScheduleSwap
from mainspring.schedules.relations import no_group, refuse_cycle
from mainspring.schedules.rules import Once
from mainspring.schedules.service import forgetful
from mainspring.schedules.sync import CodeSchedules, SyncResult, known_links, link, sync
from mainspring.schedules.update import CurrentSchedule, DeletedSchedule, change, kept
from mainspring.tasks.notify import announce_schedule

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.jobs.call import Call
    from mainspring.stores.base import Store
    from mainspring.tasks.decorators import NeedsNothing

Called: TypeAlias = "Call[Any] | NeedsNothing | str"
"""What a schedule runs: a call, or a task (or its name) without arguments."""


def code_of(app: Mainspring) -> CodeSchedules:
    """The schedules of the code, complete; imports every included module."""
    app.import_included()
    return CodeSchedules(definition.of_code(app), app.settings.version or "", frozenset(app.tasks))


async def declare(app: Mainspring, *, force: bool = False) -> SyncResult:
    """Store the schedules of the code; ``force``: whatever version stored them before."""
    code = code_of(app)
    store = await app.client.store()
    await store.declare_limits([some_of(each.name, each.max_concurrent) for each in app.tasks.groups.values()])
    return await sync(store, code, force=force)


async def put(app: Mainspring, name: str, call: Called, when: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Store a schedule of a user, in place of the one of that name."""
    declared = Declaration.of(name, _called(app, call, name), when, given)
    app.import_included()
    store = await app.client.store()
    others = declared.options["depends_on"] or declared.options["blocks"]
    plans = await plans_of(store, () if others else [name])
    _refuse_code(app, name, plans.get(name))
    await _check_task(app, store, declared.task)
    definition = await _defined(app, store, declared, plans)
    before, waited = (plans[name].definition.blocks, plans[name].definition.depends_on) if name in plans else ((), ())
    if definition.depends_on:
        await _link(store, ScheduleDependency(name, definition.depends_on), ScheduleDependency(name, waited))
    for other in definition.blocks:
        await _mark(store, other, name, on=True)

    async def decide(current: CurrentSchedule) -> ScheduleStep | None:
        plan, now = current.plan, current.now
        if plan is None:
            _refuse_past(declared, now)
            return kept(planning.first(definition, now), now)
        wanted = replace(definition, blocked_by=plan.definition.blocked_by)
        if plan.definition == wanted and plan.owner == "user":
            return None
        if plan.definition.rule != wanted.rule:
            _refuse_past(declared, now)
        plan = await forgetful(store, name, plan, wanted.history)
        return kept(planning.revised(plan, wanted, now, owner="user"), now)

    await change(store, name, decide)
    if definition.depends_on:
        await _check_again(store, declared, definition, plans.get(name))
    else:
        await link(store, [ScheduleDependency(name, ())])
    for other in set(before) - set(definition.blocks):
        await _mark(store, other, name, on=False)


async def switch(app: Mainspring, name: str, *, on: bool, reason: str = "") -> None:
    """Enable or disable a schedule."""
    store = await app.client.store()

    async def decide(current: CurrentSchedule) -> ScheduleStep | None:
        plan = await _known(store, name, current.plan)
        after = planning.enabled(plan, current.now) if on else planning.disabled(plan, current.now, reason)
        same = after == plan or (not on and plan.off == "operator" and plan.note == reason)
        return None if same else kept(after, current.now)

    changed = await change(store, name, decide)
    if isinstance(changed.made, ScheduleStep) and changed.said is not None:
        before = planning.decode(changed.row.doc)
        if before.enabled is not changed.made.plan.enabled:
            announce_schedule(app.hooks, name, ScheduleNews("enabled" if on else "disabled", reason), changed.said.now)


async def delete(app: Mainspring, name: str) -> None:
    """Remove a schedule with its history."""
    store = await app.client.store()

    async def decide(current: CurrentSchedule) -> DeletedSchedule | None:
        if current.plan is None and current.again:
            return None
        plan = await _known(store, name, current.plan)
        if plan.owner == "code" and plan.gone_in is None and await _is_declared(app, store, name, plan):
            hint = "Take it out of the code, or disable it."
            raise InvalidOption("schedule", name, "is declared by the code, which would store it again", hint=hint)
        return DeletedSchedule()

    plans = await plans_of(store, [name])
    needed = await _waiting_for(store, name)
    if needed:
        raise _needed(name, needed)
    row = (await change(store, name, decide)).row
    needed = await _waiting_for(store, name)
    if needed and row.rev:  # put just now: who puts looks after it was stored, and we after it went
        await store.swap_schedule(ScheduleSwap(name=name, rev=0, doc=row.doc, look=row.look))
        raise _needed(name, needed)
    await link(store, [ScheduleDependency(name, ())])
    for other in plans[name].definition.blocks if name in plans else ():
        await _mark(store, other, name, on=False)
        await store.forget_limit(one_of_two(name, other).name)


# ---- private ---------------------------------------------------------------------------------------


async def _is_declared(app: Mainspring, store: Store, name: str, plan: SchedulePlan) -> bool:
    """Whether there is code that would store it again: in this process, or in a worker that lives."""
    app.import_included()
    task = plan.definition.job.task
    return name in app.tasks.scheduled or any(task in each.tasks for each in await store.workers() if not each.lost)


async def _waiting_for(store: Store, name: str) -> list[str]:
    """The schedules that are stored and wait for this one."""
    found = [row.name for row in await store.dependencies() if name in dict(row.after)]
    return sorted(await plans_of(store, found)) if found else []


def _needed(name: str, by: Iterable[str]) -> InvalidOption:
    hint = "They would never run again: put them without it first."
    return InvalidOption("schedule", name, f"is what others wait for: {', '.join(by)}", hint=hint)


def _called(app: Mainspring, call: Any, name: str) -> Any:
    """The task or the call; a name of a task is looked up."""
    from mainspring.jobs.call import Call
    from mainspring.tasks.task import BaseTask

    if isinstance(call, str):
        return app.tasks.find(call) or app.call(call)
    if isinstance(call, BaseTask):
        return call.bound_to(app)
    if isinstance(call, Call):
        if call.app is app:
            return call
        raise InvalidOption("call", call, "is a call of another app", subject=f"schedule {name!r}")
    hint = "A call is task.s(...), with its arguments; a task without arguments may stand for it."
    raise InvalidOption("call", call, "is neither a call nor a task", subject=f"schedule {name!r}", hint=hint)


def _refuse_code(app: Mainspring, name: str, plan: SchedulePlan | None) -> None:
    if name in app.tasks.scheduled or (plan is not None and plan.owner == "code" and plan.gone_in is None):
        hint = "Change it there, or choose another name; app.schedules.enable and disable work on both."
        raise InvalidOption("name", name, "is that of a schedule of the code", subject="app.schedules.put", hint=hint)


async def _check_task(app: Mainspring, store: Store, task: str) -> None:
    """Known here, or to a worker that is alive."""
    if app.tasks.find(task) is not None:
        return
    known = {each for worker in await store.workers() if not worker.lost for each in worker.tasks}
    if task not in known:
        raise UnknownTask(task, {*known, *app.tasks})


async def _defined(
    app: Mainspring, store: Store, declared: Declaration, plans: Mapping[str, SchedulePlan]
) -> Definition:
    depends_on, blocks = (_stored(app, declared, option, plans) for option in ("depends_on", "blocks"))
    after: dict[str, Sequence[str]] = {each: plan.definition.depends_on for each, plan in plans.items()}
    refuse_cycle({**after, declared.name: depends_on})
    bounds = [BoundLimit(one_of_two(declared.name, other), None, 1) for other in blocks]
    group = declared.options["group"]
    if group is not None:
        bounds.append(await _grouped(app, store, group, declared.subject))
    return definition.define(app, declared, bounds, depends_on=depends_on, blocks=blocks)


def _stored(app: Mainspring, declared: Declaration, option: str, plans: Mapping[str, SchedulePlan]) -> list[str]:
    """The schedules that are meant, each of which is stored."""
    found = []
    for each in declared.options[option]:
        name = each if isinstance(each, str) else app.tasks.wiring.name(each, option, declared.subject)
        if name == declared.name:
            raise itself(option, name).about(declared.subject)
        if name not in plans:
            raise _not_stored(option, name, plans, declared.subject)
        found.append(name)
    return list(dict.fromkeys(found))


def _not_stored(option: str, name: str, known: Iterable[str], subject: str) -> InvalidOption:
    hint = "Put it first; schedules of the code are stored by workers that start."
    return InvalidOption(
        option, name, f"is not known to the store{did_you_mean(name, known)}", subject=subject, hint=hint
    )


async def _link(store: Store, wanted: ScheduleDependency, before: ScheduleDependency) -> None:
    """Say what it waits for, and then look again: of two who would make a circle at the same time at least one sees
    what the other has said."""
    await link(store, [wanted])
    try:
        refuse_cycle(await known_links(store))
    except InvalidOption:
        await link(store, [before])
        raise


async def _check_again(
    store: Store, declared: Declaration, definition: Definition, before: SchedulePlan | None
) -> None:
    """What it waits for may have been deleted since it was looked at: then it is as it was before."""
    known = await plans_of(store, definition.depends_on)
    gone = [name for name in definition.depends_on if name not in known]
    if not gone:
        return

    async def decide(current: CurrentSchedule) -> ScheduleStep | DeletedSchedule | None:
        if before is None or current.plan is None:
            return None if current.plan is None else DeletedSchedule()
        plan = planning.revised(
            current.plan, before.definition, current.now, owner=before.owner, version=before.version
        )
        return kept(plan, current.now)

    await change(store, declared.name, decide)
    await link(store, [ScheduleDependency(declared.name, () if before is None else before.definition.depends_on)])
    raise _not_stored("depends_on", gone[0], known, declared.subject)


async def _grouped(app: Mainspring, store: Store, group: str, subject: str) -> BoundLimit:
    known = app.tasks.groups.get(group)
    if known is not None:
        return BoundLimit(some_of(known.name, known.max_concurrent), None, 1)
    limits = {row.limit.name: row.limit for row in await store.limits()}
    limit = limits.get(some_of(group, 1).name)
    if limit is None:
        raise no_group(group, app.tasks.groups, subject)
    return BoundLimit(limit, None, 1)


async def _mark(store: Store, partner: str, name: str, *, on: bool) -> None:
    """Tell a schedule that another, put at run time, blocks it or does so no more; holds from its next run on."""

    async def decide(current: CurrentSchedule) -> ScheduleStep | None:
        if current.plan is None:
            return None
        definition = current.plan.definition
        others = {*definition.blocked_by, name} if on else {*definition.blocked_by} - {name}
        if others == set(definition.blocked_by):
            return None
        changed = replace(definition, blocked_by=tuple(sorted(others)))
        return kept(replace(current.plan, definition=changed), current.now)

    await change(store, partner, decide)


def _refuse_past(declared: Declaration, now: int) -> None:
    rule = None if declared.rule is None else declared.rule.rule
    if isinstance(rule, Once) and rule.moment is not None and rule.moment < now:
        hint = "Give a moment that is to come; app.schedules.trigger(name) runs one now."
        raise InvalidOption("at", str(to_datetime(rule.moment)), "is over already", subject=declared.subject, hint=hint)


async def _known(store: Store, name: str, plan: SchedulePlan | None) -> SchedulePlan:
    if plan is None:
        raise unknown(name, [row.name for row in await store.schedules()])
    return plan
