"""Middleware: a wrapper around every enqueue and every run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from mainspring.common.callables import is_async, yields
from mainspring.errors import InvalidOption

if TYPE_CHECKING:
    from mainspring.jobs.call import Call
    from mainspring.worker.run.context import AsyncContext, Context


class Middleware:
    """Override what you need; what you leave alone costs nothing. The first one added is the outermost.

    An exception out of ``run`` or ``arun`` is the attempt's, as if the handler had raised it.
    """

    def enqueue(self, call: Call[Any]) -> Call[Any]:
        """The call that is enqueued instead; raise to refuse it. Runs in the producer, also inside its event loop."""
        return call

    def run(self, ctx: Context, body: Callable[[], Any]) -> Any:  # noqa: ARG002  # for those who override it
        """Around the body of a ``def`` task, in its thread; returns the result."""
        return body()

    @classmethod
    def check(cls) -> None:
        """Refuse a method of the wrong colour: its work would never be awaited, or never end."""
        for name, wanted in (("enqueue", "def"), ("run", "def"), ("arun", "async def")):
            if is_async(getattr(cls, name)) is not (wanted == "async def") or yields(getattr(cls, name)):
                raise InvalidOption("middleware", cls.__name__, f"{name} must be a plain {wanted}")

    async def arun(self, ctx: AsyncContext, body: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ARG002  # the same
        """Around the body of an ``async def`` task, on the loop; returns the result."""
        return await body()
