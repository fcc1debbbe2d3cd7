"""A schedule as code declares it. This module checks all that needs neither other modules nor the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from mainspring.common.callables import parameters_of
from mainspring.common.duration import format_duration
from mainspring.errors import InvalidOption
from mainspring.jobs.new_job import FOLLOW_UPS, check_follow_up
from mainspring.options.checks import schedule_name
from mainspring.options.table import SECOND, expires_too_soon, resolve_options
from mainspring.schedules import rules

if TYPE_CHECKING:
    from mainspring.jobs.call import Call
    from mainspring.tasks.task import BaseTask

WHEN = ("cron", "every", "at", "after")
_RULE_OPTIONS = ("tz", "start", "end", "jitter", "misfire", "immediate")
_REFUSED_CALL_OPTIONS = ("delay", "run_at", "connection")


class Declaration(NamedTuple):
    """A schedule that code declares with ``@app.schedule``, or that ``app.schedules.put`` stores."""

    name: str
    task: str
    fn: Callable[..., Any] | None
    """The function of the task; None if the schedule was declared with a call."""
    call: Call[Any] | None
    """None: the task runs without arguments."""
    rule: rules.RuleWindow | None
    options: Mapping[str, Any]
    """Every option in normal form; durations are microseconds."""
    given: Mapping[str, Any]
    """The options that the user gave, unchanged."""
    module_run: object = None
    """The run of the module that made the function."""
    job_options: Mapping[str, Any] = {}
    """The options of ``task.options(...)`` for its runs, in normal form; a call has its own."""

    @classmethod
    def of(
        cls, name: str | None, on: BaseTask[Any, Any] | Call[Any], when: Mapping[str, Any], given: Mapping[str, Any]
    ) -> Declaration:
        """Check a declaration on a task that needs no arguments, or on a call."""
        from mainspring.jobs.call import Call

        task = on.task if isinstance(on, Call) else on.name
        name = schedule_name(task if name is None else name, "name")
        subject = f"schedule {name!r}"
        resolved = resolve_options("schedule", given, subject=subject)
        try:
            _check_modes(resolved, when, given)
            rule = _build_rule(name, resolved, when, given)
            _check_not_itself(name, resolved)
            _check_job_options(on)
            if not isinstance(on, Call):
                _check_arguments(on)
            check_jitter_expiry(resolved["jitter"], _expires(on, resolved, given))
        except InvalidOption as error:
            raise (error if error.subject else error.about(subject)) from None
        for event in FOLLOW_UPS:
            check_follow_up(event, resolved[event], subject)
        if isinstance(on, Call):
            return cls(name, task, None, on, rule, resolved, dict(given))
        return cls(name, task, on.fn, None, rule, resolved, dict(given), on.module_run, on.given)

    def replaces(self, known: Declaration) -> bool:
        """Whether this is the same function, declared again because its module ran twice."""
        from mainspring.tasks.registry import same_source

        return self.fn is not None and known.fn is not None and self.fn is not known.fn and same_source(known, self)

    @property
    def subject(self) -> str:
        """The name of the schedule in error messages."""
        return f"schedule {self.name!r}"


def _check_modes(resolved: Mapping[str, Any], when: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse options that do not fit the mode."""
    mode = resolved["mode"]
    if mode != "scheduled":
        for name in (*WHEN, *_RULE_OPTIONS):
            value = when.get(name) if name in WHEN else given.get(name)
            if value is not None and value is not False:
                hint = f"Remove {name}=, or remove mode={mode!r}."
                raise InvalidOption(name, value, f"works with mode='scheduled' only, not with {mode!r}", hint=hint)
    elif all(value is None for value in when.values()):
        hint = 'Give one of cron="0 3 * * *", every="90s", at=datetime(...), after="10m" or mode="triggered".'
        raise InvalidOption("cron", None, "the schedule has no rule that says when it runs", hint=hint)
    if mode != "continuous" and "min_pause" in given:
        hint = 'mode="continuous" starts a new run after each run. Other schedules run when they are due.'
        raise InvalidOption("min_pause", given["min_pause"], "works with mode='continuous' only", hint=hint)
    if mode == "continuous" and resolved["overlap"] != "skip":
        why = "cannot be combined with mode='continuous', which has one run at a time"
        raise InvalidOption("overlap", resolved["overlap"], why)
    if resolved["misfire"] == "all" and resolved["overlap"] == "cancel_previous":
        hint = "Each run would cancel the run before it. Use misfire='once', which makes the last run only."
        raise InvalidOption("misfire", "all", "cannot be combined with overlap='cancel_previous'", hint=hint)
    if not resolved["max_failures"] and given.get("reenable_after") is not None:
        raise InvalidOption("reenable_after", given["reenable_after"], "has no effect with max_failures=0")


def _build_rule(
    name: str, resolved: Mapping[str, Any], when: Mapping[str, Any], given: Mapping[str, Any]
) -> rules.RuleWindow | None:
    if resolved["mode"] != "scheduled":
        return None
    found = rules.make_rule(**when, tz=resolved["tz"], immediate=resolved["immediate"], schedule=name)
    rules.check_jitter(given.get("jitter"), found)
    return rules.make_window(found, resolved["start"], resolved["end"])


def _check_not_itself(name: str, resolved: Mapping[str, Any]) -> None:
    for option in ("depends_on", "blocks"):
        if name in resolved[option]:
            raise names_itself(option, name)


def names_itself(option: str, name: str) -> InvalidOption:
    """The error for a schedule that names itself in ``depends_on`` or ``blocks``."""
    if option == "blocks":
        return InvalidOption(option, name, "names the schedule itself", hint="To keep its runs apart, use overlap=.")
    return InvalidOption(option, name, "names the schedule itself: it would never run", hint="Name another schedule.")


def _check_job_options(on: BaseTask[Any, Any] | Call[Any]) -> None:
    """Refuse options of the call, or of ``task.options(...)``, that a run of a schedule cannot have."""
    for name in _REFUSED_CALL_OPTIONS:
        if on.given.get(name) is not None:
            hint = "cron=, every=, at= and after= set when it runs." if name != "connection" else "Remove it."
            raise InvalidOption(name, on.given[name], "is not allowed for the call of a schedule", hint=hint)


def check_jitter_expiry(jitter: int, expires: int | None) -> None:
    """Refuse runs that could expire before they are due."""
    if jitter and expires is not None and expires <= jitter:
        raise expires_too_soon(expires, f"jitter={format_duration(jitter / SECOND)}")


def _expires(on: BaseTask[Any, Any] | Call[Any], resolved: Mapping[str, Any], given: Mapping[str, Any]) -> int | None:
    """The ``expires`` of the runs: of the schedule, or else of the call, or else of the task."""
    from mainspring.jobs.call import Call

    task = on.target.options if isinstance(on, Call) else on.declared.options
    found: int | None = resolved["expires"] if "expires" in given else on.given.get("expires", task["expires"])
    return found


def _check_arguments(task: BaseTask[Any, Any]) -> None:
    declared = task.declared
    supplied = () if declared.plan is None else declared.plan.names
    needed = [
        each.name for each in parameters_of(declared.fn)[int(declared.takes_context) :]
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        and each.name not in supplied
    ]  # fmt: skip
    if needed:
        hint = f"Pass the arguments: call={task.name.rpartition('.')[2]}.s(...)."
        raise InvalidOption("schedule", task, f"needs arguments: {', '.join(needed)}", hint=hint)
