"""Middleware: code of the user around every enqueue and every run of a job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from mainspring.common.callables import is_async, yields
from mainspring.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainspring.jobs.call import Call
    from mainspring.worker.run.context import AsyncContext, Context

R = TypeVar("R")


class Middleware:
    """Override the methods you need; the others cost nothing. The middleware added first is the outermost.

    An exception raised by ``run`` or ``arun`` fails the attempt, as if the handler had raised it.
    """

    def enqueue(self, call: Call[Any]) -> Call[Any]:
        """Return the call to enqueue; raise to refuse it. Runs in the producer, also inside its event loop."""
        return call

    def run(self, ctx: Context, body: Callable[[], Any]) -> Any:  # noqa: ARG002  # subclasses use it
        """Run around the body of a ``def`` task, in its thread; returns the result."""
        return body()

    @classmethod
    def check(cls) -> None:
        """Refuse a method that is ``async def`` where ``def`` is needed, or the reverse: it would never be awaited."""
        for name, wanted in (("enqueue", "def"), ("run", "def"), ("arun", "async def")):
            if is_async(getattr(cls, name)) is not (wanted == "async def") or yields(getattr(cls, name)):
                raise InvalidOption("middleware", cls.__name__, f"{name} must be a plain {wanted}")

    async def arun(self, ctx: AsyncContext, body: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ARG002  # subclasses use it
        """Run around the body of an ``async def`` task, on the loop; returns the result."""
        return await body()


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
