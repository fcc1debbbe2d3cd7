"""``ctx.bind(fn)``: the job's context in threads that a handler starts itself."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, copy_context
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, TypeVar

from mainspring.worker.run.attempt import RunningAttempt

F = TypeVar("F", bound=Callable[..., Any])


def bound(fn: F, attempt: RunningAttempt | None, current: ContextVar[RunningAttempt]) -> F:
    """``fn``, such that ``current`` is the attempt inside it in whatever thread it runs."""
    here = copy_context()

    if iscoroutinefunction(fn):

        @wraps(fn)
        async def bound_async(*args: Any, **kwargs: Any) -> Any:
            if attempt is not None:
                current.set(attempt)
            return await fn(*args, **kwargs)

        return bound_async  # type: ignore[return-value]  # the wrapper has fn's signature

    @wraps(fn)
    def bound_plain(*args: Any, **kwargs: Any) -> Any:
        return here.copy().run(fn, *args, **kwargs)

    return bound_plain  # type: ignore[return-value]  # the wrapper has fn's signature
