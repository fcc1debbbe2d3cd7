"""How the schedules of the code hang together: what they wait for, whom they block, whose group they are of.

Names are looked up when somebody asks, for modules that declare them may be imported in any order. Until
:meth:`Wiring.check` was called nothing is refused: what is not known is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from mainspring.errors import InvalidOption, did_you_mean
from mainspring.jobs.new_job import NO_PART, ScheduleMembership
from mainspring.limits.declare import BoundLimit
from mainspring.options.checks import ScheduleGroup
from mainspring.schedules.declare import Declaration, itself
from mainspring.schedules.plan import one_of_two, some_of
from mainspring.schedules.plan.run_job import ONE_AT_A_TIME


class ScheduleRelations:
    """Of one state of an app's declarations."""

    def __init__(self, scheduled: Mapping[str, Declaration], groups: Mapping[str, ScheduleGroup]) -> None:
        self._scheduled = dict(scheduled)
        self._groups = dict(groups)
        self._on: dict[str, list[str]] = defaultdict(list)
        for each in scheduled.values():
            self._on[each.task].append(each.name)
        self._partners: dict[str, set[str]] = defaultdict(set)
        for each in scheduled.values():
            for other in self.names(each, "blocks", strict=False):
                self._partners[each.name].add(other)
                self._partners[other].add(each.name)
        self._checked = False

    def part_of(self, task: str) -> ScheduleMembership:
        """What the schedule on a task means for all its jobs; nothing unless there is exactly one."""
        names = self._on.get(task, ())
        return ScheduleMembership(names[0], self.bounds(names[0])) if len(names) == 1 else NO_PART

    def bounds(self, name: str) -> tuple[BoundLimit, ...]:
        """The limits of its jobs, however they were made."""
        declared = self._scheduled[name]
        limits = [one_of_two(name, other) for other in sorted(self._partners.get(name, ()))]
        group = self._groups.get(declared.options["group"] or "")
        if group is not None:
            limits.append(some_of(group.name, group.max_concurrent))
        bounds = tuple(BoundLimit(limit, None, 1) for limit in limits)
        if declared.options["mode"] == "continuous":
            return (*bounds, BoundLimit(ONE_AT_A_TIME, lambda **_: name, 1))
        return bounds

    def names(self, declared: Declaration, option: str, *, strict: bool = True) -> tuple[str, ...]:
        """The schedules that ``depends_on`` or ``blocks`` of a schedule means."""
        found = [self.name(each, option, declared.subject, strict=strict) for each in declared.options[option]]
        return tuple(dict.fromkeys(each for each in found if each))

    def name(self, part: Any, option: str, subject: str, *, strict: bool = True) -> str:
        """A schedule by its name or by the task that it stands on; empty if there is none and nobody minds."""
        if isinstance(part, str):
            if strict and part not in self._scheduled:
                hint = "Declare it with @app.schedule, in a module that is included."
                why = f"is not the name of a schedule{did_you_mean(part, self._scheduled)}"
                raise InvalidOption(option, part, why, subject=subject, hint=hint)
            return part
        names = self._on.get(part.name, ())
        if len(names) == 1:
            return names[0]
        if not strict:
            return ""
        why = f"has several schedules: {', '.join(names)}" if names else "has no schedule"
        hint = "Name the one that you mean." if names else "Put @app.schedule on it, or name a schedule."
        raise InvalidOption(option, part, why, subject=subject, hint=hint)

    def check(self) -> None:
        """Refuse names that are not there, cycles, and groups that nobody declared."""
        if self._checked:
            return
        after: dict[str, tuple[str, ...]] = {}
        for each in self._scheduled.values():
            for option in ("depends_on", "blocks"):
                if each.name in self.names(each, option):
                    raise itself(option, each.name).about(each.subject)
            after[each.name] = self.names(each, "depends_on")
            group = each.options["group"]
            if group is not None and group not in self._groups:
                raise no_group(group, self._groups, each.subject)
        refuse_cycle(after)
        self._checked = True


def refuse_cycle(after: Mapping[str, Iterable[str]]) -> None:
    """``InvalidOption`` if schedules wait for each other in a circle."""
    done: set[str] = set()

    def visit(name: str, way: tuple[str, ...]) -> None:
        if name in way:
            circle = (*way[way.index(name) :], name)
            why = f"is a cycle: {' -> '.join(circle)}"
            hint = "Each would wait for the other for ever: take one of them out."
            raise InvalidOption("depends_on", circle[1], why, subject=f"schedule {name!r}", hint=hint)
        if name not in done:
            for other in after.get(name, ()):
                visit(other, (*way, name))
            done.add(name)

    for each in after:
        visit(each, ())


def no_group(group: str, known: Iterable[str], subject: str) -> InvalidOption:
    """A group that is used and was not declared."""
    hint = f"app.schedules.group({group!r}, max_concurrent=2)"
    return InvalidOption("group", group, f"is not declared{did_you_mean(group, known)}", subject=subject, hint=hint)
