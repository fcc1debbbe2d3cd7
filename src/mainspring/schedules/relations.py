"""The relations between the schedules of the code: ``depends_on``, ``blocks`` and ``group``.

Names are resolved when they are needed, because the modules that declare them may be imported in any order. Before
:meth:`ScheduleRelations.check` nothing is refused: an unknown name is ignored.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from mainspring.errors import InvalidOption, did_you_mean
from mainspring.limits.declare import BoundLimit
from mainspring.options.checks import ScheduleGroup
from mainspring.schedules.declare import Declaration, names_itself
from mainspring.schedules.plan import block_limit, group_limit
from mainspring.schedules.plan.run_job import ONE_AT_A_TIME


class ScheduleRelations:
    """The relations of the schedules that an app has declared so far."""

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

    def bounds_of(self, task: str) -> tuple[BoundLimit, ...]:
        """Return the limits that the schedule on a task adds to every job of the task; () unless it has exactly one."""
        names = self._on.get(task, ())
        return self.bounds(names[0]) if len(names) == 1 else ()

    def bounds(self, name: str) -> tuple[BoundLimit, ...]:
        """Return the limits that a schedule adds to its jobs, whatever enqueued them."""
        declared = self._scheduled[name]
        limits = [block_limit(name, other) for other in sorted(self._partners.get(name, ()))]
        group = self._groups.get(declared.options["group"] or "")
        if group is not None:
            limits.append(group_limit(group.name, group.max_concurrent))
        bounds = tuple(BoundLimit(limit, None, 1) for limit in limits)
        if declared.options["mode"] == "continuous":
            return (*bounds, BoundLimit(ONE_AT_A_TIME, lambda **_: name, 1))
        return bounds

    def names(self, declared: Declaration, option: str, *, strict: bool = True) -> tuple[str, ...]:
        """Return the names of the schedules in ``depends_on`` or ``blocks``. ``strict`` refuses unknown ones."""
        found = [self.name(each, option, declared.subject, strict=strict) for each in declared.options[option]]
        return tuple(dict.fromkeys(each for each in found if each))

    def name(self, part: Any, option: str, subject: str, *, strict: bool = True) -> str:
        """Return the name of a schedule, given by its name or its task; "" if there is none and not ``strict``."""
        if isinstance(part, str):
            if strict and part not in self._scheduled:
                hint = "Declare it with @app.schedule in an included module."
                why = f"is not the name of a schedule{did_you_mean(part, self._scheduled)}"
                raise InvalidOption(option, part, why, subject=subject, hint=hint)
            return part
        names = self._on.get(part.name, ())
        if len(names) == 1:
            return names[0]
        if not strict:
            return ""
        why = f"has several schedules: {', '.join(names)}" if names else "has no schedule"
        hint = "Use the name of one of them." if names else "Add @app.schedule to the task, or name a schedule."
        raise InvalidOption(option, part, why, subject=subject, hint=hint)

    def check(self) -> None:
        """Refuse unknown names, cycles, and groups that are not declared."""
        if self._checked:
            return
        after: dict[str, tuple[str, ...]] = {}
        for each in self._scheduled.values():
            for option in ("depends_on", "blocks"):
                if each.name in self.names(each, option):
                    raise names_itself(option, each.name).about(each.subject)
            after[each.name] = self.names(each, "depends_on")
            group = each.options["group"]
            if group is not None and group not in self._groups:
                raise unknown_group(group, self._groups, each.subject)
        refuse_cycle(after)
        self._checked = True


def refuse_cycle(after: Mapping[str, Iterable[str]]) -> None:
    """``InvalidOption`` if schedules depend on each other in a cycle."""
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            cycle = (*path[path.index(name) :], name)
            why = f"is a cycle: {' -> '.join(cycle)}"
            hint = "Each of them would wait for ever: remove one dependency."
            raise InvalidOption("depends_on", cycle[1], why, subject=f"schedule {name!r}", hint=hint)
        if name not in done:
            for other in after.get(name, ()):
                visit(other, (*path, name))
            done.add(name)

    for each in after:
        visit(each, ())


def unknown_group(group: str, known: Iterable[str], subject: str) -> InvalidOption:
    """The error for a group that is used and not declared."""
    hint = f"Declare it: app.schedules.group({group!r}, max_concurrent=2)"
    return InvalidOption("group", group, f"is not declared{did_you_mean(group, known)}", subject=subject, hint=hint)
