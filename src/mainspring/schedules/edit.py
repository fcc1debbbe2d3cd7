"""Edits stored schedules: put, enable, disable, delete, and store the schedules of the code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec.structs import replace

from mainspring.common.clock import to_datetime
from mainspring.errors import InvalidOption, UnknownTask, did_you_mean
from mainspring.limits.declare import BoundLimit
from mainspring.schedules import plan as planning
from mainspring.schedules.build_definition import build_code_definitions, build_definition
from mainspring.schedules.compare_and_set import CurrentSchedule, DeletedSchedule, change_schedule, write_plan
from mainspring.schedules.declare import Declaration, names_itself
from mainspring.schedules.info import load_plans, unknown_schedule
from mainspring.schedules.plan import Definition, ScheduleNews, SchedulePlan, ScheduleStep, block_limit, group_limit
from mainspring.schedules.records import ScheduleSwap
from mainspring.schedules.relations import refuse_cycle, unknown_group
from mainspring.schedules.rules import Once
from mainspring.schedules.swap import load_new_successes, mark_needed, remember_forgotten
from mainspring.schedules.sync import CodeSchedules, SyncResult, sync
from mainspring.tasks.notify import announce_schedule

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.jobs.call import Call
    from mainspring.stores.base import Store
    from mainspring.tasks.decorators import NeedsNothing

Called: TypeAlias = "Call[Any] | NeedsNothing | str"
"""What a schedule runs: a call, or a task (or the name of a task) without arguments."""


def load_code_schedules(app: Mainspring) -> CodeSchedules:
    """Return every schedule that the code declares. Imports every included module first."""
    app.import_included()
    return CodeSchedules(
        build_code_definitions(app), app.settings.version or "", frozenset(app.tasks), app.settings.name or "",
        tuple(app.tasks.unused_schedules()),
    )  # fmt: skip


async def declare(app: Mainspring, *, force: bool = False) -> SyncResult:
    """Store the schedules of the code. ``force``: also if a newer version of the code has stored them."""
    code = load_code_schedules(app)
    store = await app.client.store()
    await store.declare_limits([group_limit(each.name, each.max_concurrent) for each in app.tasks.groups.values()])
    return await sync(store, code, force=force)


async def put(app: Mainspring, name: str, call: Called, when: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Store a schedule, and replace the schedule of that name."""
    declared = Declaration.of(name, _resolve_call(app, call, name), when, given)
    app.import_included()
    store = await app.client.store()
    others = declared.options["depends_on"] or declared.options["blocks"]
    plans = await load_plans(store, () if others else [name])
    _refuse_code(app, name, plans.get(name))
    await _check_task(app, store, declared.task)
    definition = await _define(app, store, declared, plans)
    before = plans[name].definition.blocks if name in plans else ()
    for other in definition.depends_on:
        await _set_needed(store, other)
    for other in definition.blocks:
        await _set_blocked_by(store, other, name, on=True)

    async def decide(current: CurrentSchedule) -> ScheduleStep | None:
        plan, now = current.plan, current.now
        successes = await load_new_successes(store, plan, definition)
        if plan is None:
            return write_plan(_refuse_past(planning.new_plan(definition, now, successes), declared), now)
        wanted = replace(definition, blocked_by=plan.definition.blocked_by)
        if plan.definition == wanted and plan.owner == "user":
            return None
        known = await remember_forgotten(store, name, plan, wanted.history)
        revised = planning.revise(known, wanted, now, successes, owner="user")
        return write_plan(_refuse_past(revised, declared), now)

    await change_schedule(store, name, decide)
    if definition.depends_on:
        await _check_dependencies_again(store, declared, definition, plans.get(name))
    for other in set(before) - set(definition.blocks):
        await _set_blocked_by(store, other, name, on=False)


async def switch(app: Mainspring, name: str, *, on: bool, reason: str = "") -> None:
    """Enable or disable a schedule, and announce the event."""
    store = await app.client.store()

    async def decide(current: CurrentSchedule) -> ScheduleStep | None:
        plan = await _require(store, name, current.plan)
        after = planning.enable(plan, current.now) if on else planning.disable(plan, current.now, reason)
        same = after == plan or (not on and plan.off == "operator" and plan.note == reason)
        return None if same else write_plan(after, current.now)

    changed = await change_schedule(store, name, decide)
    if isinstance(changed.made, ScheduleStep) and changed.said is not None:
        before = planning.decode(changed.row.doc)
        if before.enabled is not changed.made.plan.enabled:
            announce_schedule(app.hooks, name, ScheduleNews("enabled" if on else "disabled", reason), changed.said.now)


async def delete(app: Mainspring, name: str) -> None:
    """Delete a schedule and its history."""
    store = await app.client.store()

    async def decide(current: CurrentSchedule) -> DeletedSchedule | None:
        if current.plan is None and current.again:
            return None
        plan = await _require(store, name, current.plan)
        if plan.owner == "code" and plan.gone_in is None and await _is_declared(app, store, name, plan):
            hint = "Remove it from the code, or disable it."
            raise InvalidOption("schedule", name, "is declared by the code, which would store it again", hint=hint)
        if plan.needed:
            await _refuse_needed(store, name)
        return DeletedSchedule()

    plans = await load_plans(store, [name])
    row = (await change_schedule(store, name, decide)).row
    if row.rev and planning.decode(row.doc).needed:
        # A schedule that depends on this one may have been put in the meantime. `put` checks after it stored its row
        # and we check after we deleted ours, so at least one of the two sees the other.
        try:
            await _refuse_needed(store, name)
        except InvalidOption:
            await store.swap_schedule(ScheduleSwap(name=name, rev=0, doc=row.doc, look=row.look))
            raise
    for other in plans[name].definition.blocks if name in plans else ():
        await _set_blocked_by(store, other, name, on=False)
        await store.forget_limit(block_limit(name, other).name)


# ---- private ---------------------------------------------------------------------------------------


async def _is_declared(app: Mainspring, store: Store, name: str, plan: SchedulePlan) -> bool:
    """Whether code would store the schedule again: the code of this process, or of a live worker."""
    app.import_included()
    task = plan.definition.job.task
    return name in app.tasks.scheduled or any(task in each.tasks for each in await store.workers() if not each.lost)


async def _refuse_needed(store: Store, name: str) -> None:
    """``InvalidOption`` if a stored schedule depends on this one."""
    found = sorted(each for each, plan in (await load_plans(store)).items() if name in plan.definition.depends_on)
    if found:
        hint = "Without it they would never run again. Put them without this dependency first."
        raise InvalidOption("schedule", name, f"is a dependency of other schedules: {', '.join(found)}", hint=hint)


async def _set_needed(store: Store, name: str) -> None:
    """Note that another schedule depends on this one: its deletion looks for such schedules."""

    async def decide(current: CurrentSchedule) -> ScheduleStep | None:
        if current.plan is None or current.plan.needed:
            return None
        return write_plan(await mark_needed(store, name, current.plan), current.now)

    await change_schedule(store, name, decide)


def _resolve_call(app: Mainspring, call: Any, name: str) -> Any:
    """Return the task or the call. The name of a task is looked up."""
    from mainspring.flows.flow import Flow
    from mainspring.jobs.call import Call, Step
    from mainspring.tasks.task import BaseTask

    if isinstance(call, str):
        return app.tasks.find(call) or app.call(call)
    if isinstance(call, BaseTask):
        return call.bound_to(app)
    if isinstance(call, Call) and not isinstance(call, Step):
        if call.app is app:
            return call
        raise InvalidOption("call", call, "is a call of another app", subject=f"schedule {name!r}")
    hint = "Pass task.s(...) with its arguments, or a task that needs no arguments."
    if isinstance(call, Flow):
        hint = "A schedule makes single jobs. For a flow, schedule a task that returns the flow."
    raise InvalidOption("call", call, "is neither a call nor a task", subject=f"schedule {name!r}", hint=hint)


def _refuse_code(app: Mainspring, name: str, plan: SchedulePlan | None) -> None:
    if name in app.tasks.scheduled or (plan is not None and plan.owner == "code" and plan.gone_in is None):
        hint = "Change it in the code, or choose another name. app.schedules.enable and disable work for both."
        why = "is the name of a schedule that the code declares"
        raise InvalidOption("name", name, why, subject="app.schedules.put", hint=hint)


async def _check_task(app: Mainspring, store: Store, task: str) -> None:
    """``UnknownTask`` unless this process or a live worker knows the task."""
    if app.tasks.find(task) is not None:
        return
    known = {each for worker in await store.workers() if not worker.lost for each in worker.tasks}
    if task not in known:
        raise UnknownTask(task, {*known, *app.tasks})


async def _define(
    app: Mainspring, store: Store, declared: Declaration, plans: Mapping[str, SchedulePlan]
) -> Definition:
    depends_on, blocks = (_find_stored(app, declared, option, plans) for option in ("depends_on", "blocks"))
    after: dict[str, Sequence[str]] = {each: plan.definition.depends_on for each, plan in plans.items()}
    refuse_cycle({**after, declared.name: depends_on})
    bounds = [BoundLimit(block_limit(declared.name, other), None, 1) for other in blocks]
    group = declared.options["group"]
    if group is not None:
        bounds.append(await _find_group_limit(app, store, group, declared.subject))
    return build_definition(app, declared, bounds, depends_on=depends_on, blocks=blocks)


def _find_stored(app: Mainspring, declared: Declaration, option: str, plans: Mapping[str, SchedulePlan]) -> list[str]:
    """Return the names of the schedules that an option names. Each must be stored."""
    found = []
    for each in declared.options[option]:
        name = each if isinstance(each, str) else app.tasks.wiring.name(each, option, declared.subject)
        if name == declared.name:
            raise names_itself(option, name).about(declared.subject)
        if name not in plans:
            raise _not_stored(option, name, plans, declared.subject)
        found.append(name)
    return list(dict.fromkeys(found))


def _not_stored(option: str, name: str, known: Iterable[str], subject: str) -> InvalidOption:
    hint = "Put it first. A worker that starts stores the schedules of the code."
    return InvalidOption(option, name, f"is not in the store{did_you_mean(name, known)}", subject=subject, hint=hint)


async def _check_dependencies_again(
    store: Store, declared: Declaration, definition: Definition, before: SchedulePlan | None
) -> None:
    """Undo the change if a dependency was deleted between the check and the write, or if there is a cycle now.

    Two processes may each store one half of a cycle at the same time. Each checks after its write, so at least one of
    them sees the cycle, and takes its own half back.
    """
    known = await load_plans(store)
    try:
        for name in definition.depends_on:
            if name not in known:
                raise _not_stored("depends_on", name, known, declared.subject)
        refuse_cycle({name: plan.definition.depends_on for name, plan in known.items()})
    except InvalidOption:
        await _restore(store, declared.name, before)
        raise


async def _restore(store: Store, name: str, before: SchedulePlan | None) -> None:
    """Give the schedule its former definition, or delete it if it is new."""

    async def decide(current: CurrentSchedule) -> ScheduleStep | DeletedSchedule | None:
        if before is None or current.plan is None:
            return None if current.plan is None else DeletedSchedule()
        plan = planning.revise(current.plan, before.definition, current.now, owner=before.owner, version=before.version)
        return write_plan(replace(plan, used={**plan.used, **before.used}), current.now)

    await change_schedule(store, name, decide)


async def _find_group_limit(app: Mainspring, store: Store, group: str, subject: str) -> BoundLimit:
    """Return the limit of a group that this app declares or that the store knows."""
    known = app.tasks.groups.get(group)
    if known is not None:
        return BoundLimit(group_limit(known.name, known.max_concurrent), None, 1)
    limits = {row.limit.name: row.limit for row in await store.limits()}
    limit = limits.get(group_limit(group, 1).name)
    if limit is None:
        raise unknown_group(group, app.tasks.groups, subject)
    return BoundLimit(limit, None, 1)


async def _set_blocked_by(store: Store, partner: str, name: str, *, on: bool) -> None:
    """Add or remove ``name`` in ``blocked_by`` of another schedule. The change holds from its next run on."""

    async def decide(current: CurrentSchedule) -> ScheduleStep | None:
        if current.plan is None:
            return None
        definition = current.plan.definition
        others = {*definition.blocked_by, name} if on else {*definition.blocked_by} - {name}
        if others == set(definition.blocked_by):
            return None
        changed = replace(definition, blocked_by=tuple(sorted(others)))
        return write_plan(replace(current.plan, definition=changed), current.now)

    await change_schedule(store, partner, decide)


def _refuse_past(plan: SchedulePlan, declared: Declaration) -> SchedulePlan:
    """Return the plan; ``InvalidOption`` if its rule has no occurrence left."""
    rule = None if plan.rule is None else plan.rule.rule
    if not planning.is_over(plan):
        return plan
    hint = "Give a time in the future. app.schedules.trigger(name) runs a schedule now."
    if isinstance(rule, Once) and rule.moment is not None:
        raise InvalidOption("at", str(to_datetime(rule.moment)), "is in the past", subject=declared.subject, hint=hint)
    end = None if plan.rule is None or plan.rule.end is None else str(to_datetime(plan.rule.end))
    raise InvalidOption("end", end, "leaves no occurrence in the future", subject=declared.subject, hint=hint)


async def _require(store: Store, name: str, plan: SchedulePlan | None) -> SchedulePlan:
    if plan is None:
        raise unknown_schedule(name, [row.name for row in await store.schedules()])
    return plan
