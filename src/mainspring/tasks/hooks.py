"""Hooks: functions that are called at events, at most once, in the process that stored the change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from mainspring.common.callables import accepts, name_of, yields
from mainspring.errors import InvalidOption, UnknownOption, did_you_mean
from mainspring.tasks.events import BREAKER_EVENTS, EVENTS, SCHEDULE_EVENTS

_ALL = (*EVENTS, *BREAKER_EVENTS, *SCHEDULE_EVENTS)
_HOW = 'Write @app.on("dead") above a function that takes an Event.'


class Hook(NamedTuple):
    fn: Callable[[Any], Any]
    """Takes an ``Event``, a ``BreakerEvent`` or a ``ScheduleEvent``; ``def`` or ``async def``."""
    task: str | None
    """A name or a pattern; None for every task."""


class Hooks:
    """The hooks of an app, by event."""

    def __init__(self) -> None:
        self._by_event: dict[str, list[Hook]] = {}

    @staticmethod
    def check(events: Sequence[str], task: str | None) -> None:
        """Refuse names that are not events, and a wrong ``task``."""
        if not events:
            raise InvalidOption("app.on", (), "must name at least one event", hint=f"Events: {', '.join(_ALL)}.")
        if task is not None and (not isinstance(task, str) or not task):
            hint = f"Write task={name!r}." if (name := getattr(task, "name", "")) else 'Example: task="shop.*".'
            raise InvalidOption("task", task, "must be the name of a task or a pattern", subject="app.on", hint=hint)
        for event in events:
            if not isinstance(event, str):
                raise InvalidOption("app.on", event, "is not the name of an event", hint=_HOW)
            if event not in _ALL:
                raise UnknownOption("app.on", event, _ALL)
            if event not in EVENTS and task is not None:
                why, hint = f"cannot be given with {event}", "The event has no task."
                raise InvalidOption("task", task, why, subject="app.on", hint=hint)

    def add(self, events: Sequence[str], fn: Callable[[Any], Any], task: str | None) -> None:
        """Call ``fn`` at these events, after the hooks that were added before."""
        self.check(events, task)
        if not callable(fn):
            raise InvalidOption("app.on", fn, "is not a function", hint=_HOW)
        if yields(fn):
            hint = "A call only makes a generator, and nothing reads it: write a def or an async def without yield."
            raise InvalidOption("app.on", fn, "is a generator function, so its body would not run", hint=hint)
        if not accepts(fn, 1):
            hint = f"Write def {name_of(fn)}(event: Event), with from mainspring import Event."
            raise InvalidOption("app.on", fn, "must take one argument, the event", hint=hint)
        for event in dict.fromkeys(events):
            self._by_event.setdefault(event, []).append(Hook(fn, task))

    def has(self, event: str) -> bool:
        """Whether there is a hook for this event."""
        return event in self._by_event

    def of(self, event: str, task: str) -> list[Hook]:
        """The hooks for this event of this task."""
        return [hook for hook in self._by_event.get(event, ()) if hook.task is None or fnmatchcase(task, hook.task)]

    def without_task(self, known: Collection[str]) -> Iterator[str]:
        """One sentence for each ``task=`` that matches none of the ``known`` tasks."""
        for wanted in dict.fromkeys(hook.task for hooks in self._by_event.values() for hook in hooks):
            if wanted is None or any(fnmatchcase(name, wanted) for name in known):
                continue
            same = [name for name in known if name.rpartition(".")[2] == wanted]
            near = f"; did you mean {same[0]!r}?" if same else did_you_mean(wanted, known)
            fns = {name_of(hook.fn): None for hooks in self._by_event.values() for hook in hooks if hook.task == wanted}
            yield f"app.on(..., task={wanted!r}): this app has no such task, {', '.join(fns)} is not called{near}"

    def __bool__(self) -> bool:
        return bool(self._by_event)
