"""Middleware: code of the user around every enqueue and every run of a job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from mainspring.common.callables import is_async, yields
from mainspring.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mainspring.jobs.call import Call
    from mainspring.worker.run.context import AsyncContext, Context

R = TypeVar("R")


class Middleware:
    """Override ``enqueue``, or both ``run`` and ``arun``, or all three. The middleware added first is the outermost.

    A middleware with only one of ``run`` and ``arun`` is refused: tasks of the other kind would run without it. To
    leave them out, write ``arun = Middleware.arun`` (or ``run = Middleware.run``) in the class. An exception raised by
    ``run`` or ``arun`` fails the attempt, as if the handler had raised it. If one returns None and
    its body returned a value, or was not called, the attempt fails with ``MiddlewareError``.
    """

    def enqueue(self, call: Call[Any]) -> Call[Any]:
        """Return the call to enqueue; raise to refuse it. Runs in the producer, also inside its event loop."""
        return call

    def run(self, ctx: Context, body: Callable[[], Any]) -> Any:  # noqa: ARG002  # subclasses use it
        """Run around the body of a ``def`` task, in its thread; returns the result."""
        return body()

    async def arun(self, ctx: AsyncContext, body: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ARG002  # subclasses use it
        """Run around the body of an ``async def`` task, on the loop; returns the result."""
        return await body()


_METHODS = {"enqueue": "def", "run": "def", "arun": "async def"}
_TASKS = {"run": "def", "arun": "async def"}
"""The tasks that each method wraps."""


def check_middleware(kind: type[Middleware]) -> None:
    """Refuse a middleware with a method that would never be called, or that would skip half of the tasks."""
    for name, wanted in _METHODS.items():
        if is_async(getattr(kind, name)) is not (wanted == "async def") or yields(getattr(kind, name)):
            raise InvalidOption("middleware", kind.__name__, f"{name} must be a plain {wanted}")
    own = [name for each in kind.__mro__ for name in vars(each) if each not in (Middleware, object)]
    missing = [name for name in _METHODS if name not in own]
    _refuse_misspelled(kind, own, missing)
    if len(missing) == len(_METHODS):
        hint = "Write def enqueue(self, call), or def run(self, ctx, body) and async def arun(self, ctx, body)."
        raise InvalidOption("middleware", kind.__name__, "has none of the methods enqueue, run and arun", hint=hint)
    for name, other in (("run", "arun"), ("arun", "run")):
        if name in own and other in missing:
            tasks = _TASKS[other]
            why = f"has {name} and no {other}: {tasks} tasks would run without it"
            hint = f"Write both. To leave out {tasks} tasks, write {other} = Middleware.{other} in the class."
            raise InvalidOption("middleware", kind.__name__, why, hint=hint)


def _refuse_misspelled(kind: type[Middleware], own: Iterable[str], missing: Sequence[str]) -> None:
    from difflib import get_close_matches

    for name in own:
        near = get_close_matches(name, missing, n=1, cutoff=0.8)
        if near and name not in _METHODS and not name.startswith("_") and callable(getattr(kind, name)):
            both = " enqueue is called for enqueue and for aenqueue." if near == ["enqueue"] else ""
            hint = f"Rename it; begin the name of a method of your own with an underscore.{both}"
            why = f"has a method {name!r} that is never called; did you mean {near[0]!r}?"
            raise InvalidOption("middleware", kind.__name__, why, hint=hint)


def wrap_call(middleware: Iterable[Middleware], call: Call[R]) -> Call[R]:
    """The call as every middleware changes it, the outermost first."""
    for each in middleware:
        changed = each.enqueue(call)
        if not isinstance(changed, type(call)) or changed.app is not call.app:
            raise InvalidOption(
                "middleware", changed, "enqueue must return a call of the same app",
                subject=type(each).__name__, hint="return call.options(...), or the call itself.",
            )  # fmt: skip
        call = changed
    return call
