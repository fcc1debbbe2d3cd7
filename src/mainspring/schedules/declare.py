"""What is known of a schedule from its declaration alone: checked before any other module or a store is looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from mainspring.common.callables import parameters_of
from mainspring.errors import InvalidOption
from mainspring.jobs.new_job import FOLLOW_UPS, check_follow_up
from mainspring.options.checks import schedule_name
from mainspring.options.table import resolve_options
from mainspring.schedules import rules

if TYPE_CHECKING:
    from mainspring.jobs.call import Call
    from mainspring.tasks.task import BaseTask

WHEN = ("cron", "every", "at", "after")
OF_JOBS = ("queue", "priority", "expires", "retries", "timeout", "tags", "meta")
"""Options of the runs."""
_OF_RULES = ("tz", "start", "end", "jitter", "misfire", "immediate")
_UNFIT = ("delay", "run_at", "connection")


class Declaration(NamedTuple):
    """A schedule as code declares it, or as it is put at run time."""

    name: str
    task: str
    fn: Callable[..., Any] | None
    """The function of the task, if that is known."""
    call: Call[Any] | None
    """None: the task without arguments."""
    rule: rules.RuleWindow | None
    options: Mapping[str, Any]
    """Resolved; durations in microseconds."""
    given: Mapping[str, Any]
    """The options that were named, as they were given."""

    @classmethod
    def of(
        cls, name: str | None, on: BaseTask[Any, Any] | Call[Any], when: Mapping[str, Any], given: Mapping[str, Any]
    ) -> Declaration:
        """Of a task that needs no arguments, or of a call."""
        from mainspring.jobs.call import Call

        call = on if isinstance(on, Call) else None
        task = on.task if isinstance(on, Call) else on.name
        name = schedule_name(task if name is None else name, "name")
        subject = f"schedule {name!r}"
        resolved = resolve_options("schedule", given, subject=subject)
        try:
            _check_modes(resolved, when, given)
            rule = _rule(name, resolved, when, given)
            _check_itself(name, resolved)
            if isinstance(on, Call):
                _check_call(on)
            else:
                _check_arguments(on)
        except InvalidOption as error:
            raise (error if error.subject else error.about(subject)) from None
        for event in FOLLOW_UPS:
            check_follow_up(event, resolved[event], subject)
        fn = None if isinstance(on, Call) else on.fn
        return cls(name, task, fn, call, rule, resolved, dict(given))

    def replaces(self, known: Declaration) -> bool:
        """The same function declared again, by a module that was run twice."""
        from mainspring.tasks.registry import same_source

        return self.fn is not None and known.fn is not None and self.fn is not known.fn and same_source(known, self)

    @property
    def subject(self) -> str:
        """In errors."""
        return f"schedule {self.name!r}"


def _check_modes(resolved: Mapping[str, Any], when: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Options that the mode has no use for are refused."""
    mode = resolved["mode"]
    if mode != "scheduled":
        for name in (*WHEN, *_OF_RULES):
            value = when.get(name) if name in WHEN else given.get(name)
            if value is not None and value is not False:
                raise InvalidOption(
                    name, value, f"is for mode='scheduled', not {mode!r}", hint="Leave one of them out."
                )
    elif all(value is None for value in when.values()):
        hint = 'Give one of cron="0 3 * * *", every="90s", at=datetime(...) and after="10m"; or mode="triggered".'
        raise InvalidOption("cron", None, "a schedule needs to know when it is due", hint=hint)
    if mode != "continuous" and "min_pause" in given:
        hint = 'mode="continuous" runs again after each run; others run when they are due.'
        raise InvalidOption("min_pause", given["min_pause"], "is for mode='continuous' alone", hint=hint)
    if mode == "continuous" and resolved["overlap"] != "skip":
        raise InvalidOption("overlap", resolved["overlap"], "does not go with mode='continuous', which runs one copy")
    if resolved["misfire"] == "all" and resolved["overlap"] == "cancel_previous":
        hint = "Each run would cancel the one before it: misfire='once' makes the last."
        raise InvalidOption("misfire", "all", "does not go with overlap='cancel_previous'", hint=hint)
    if not resolved["max_failures"] and given.get("reenable_after") is not None:
        raise InvalidOption("reenable_after", given["reenable_after"], "has no meaning with max_failures=0")


def _rule(
    name: str, resolved: Mapping[str, Any], when: Mapping[str, Any], given: Mapping[str, Any]
) -> rules.RuleWindow | None:
    if resolved["mode"] != "scheduled":
        return None
    found = rules.rule(
        **when, tz=resolved["tz"], immediate=resolved["immediate"], schedule=name
    )  # exactly one of those, or an error
    rules.jitter_us(given.get("jitter"), found)
    return rules.window(found, resolved["start"], resolved["end"])


def _check_itself(name: str, resolved: Mapping[str, Any]) -> None:
    for option in ("depends_on", "blocks"):
        if name in resolved[option]:
            raise itself(option, name)


def itself(option: str, name: str) -> InvalidOption:
    """A schedule that names itself."""
    if option == "blocks":
        return InvalidOption(option, name, "names the schedule itself", hint="overlap= says whether its runs overlap.")
    return InvalidOption(option, name, "names the schedule itself: it would never run", hint="Name another one.")


def _check_call(call: Call[Any]) -> None:
    for name in _UNFIT:
        if call.given.get(name) is not None:
            hint = "cron=, every=, at= and after= say when it runs." if name != "connection" else "Leave it out."
            raise InvalidOption(name, call.given[name], "cannot be an option of the call of a schedule", hint=hint)


def _check_arguments(task: BaseTask[Any, Any]) -> None:
    declared = task.declared
    supplied = () if declared.plan is None else declared.plan.names
    needed = [
        each.name for each in parameters_of(declared.fn)[int(declared.takes_context) :]
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        and each.name not in supplied
    ]  # fmt: skip
    if needed:
        hint = f"Give the arguments: call={task.name.rpartition('.')[2]}.s(...)."
        raise InvalidOption("schedule", task, f"needs arguments: {', '.join(needed)}", hint=hint)
