"""What stands around a body: middleware, outermost first, then its dependencies.

All of it belongs to the attempt: it runs where the body runs, under the same time limits, and what it
raises is the attempt's error.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mainspring.tasks.middleware import Middleware

if TYPE_CHECKING:
    from mainspring.tasks.spec import TaskSpec
    from mainspring.worker.run.context import Context

Layers = Mapping[str, Sequence[Callable[[Any, Any], Any]]]
"""By kind of body: what wraps it, the innermost first."""


def layers(middleware: Sequence[Middleware]) -> Layers:
    """The methods that these classes have of their own; empty if there is none."""
    found: Layers = {
        "thread": [each.run for each in reversed(middleware) if type(each).run is not Middleware.run],
        "async": [each.arun for each in reversed(middleware) if type(each).arun is not Middleware.arun],
    }
    return {kind: own for kind, own in found.items() if own}


def body(spec: TaskSpec, ctx: Context, around: Layers) -> Callable[..., Any]:
    """A function to be called as the task's own, with everything around it."""
    own = around.get(spec.kind, ())
    if spec.kind == "async":
        return functools.partial(_run_async, spec, ctx, own)
    return functools.partial(_run, spec, ctx, own)


def _run(spec: TaskSpec, ctx: Context, own: Sequence[Callable[[Any, Any], Any]], /, *args: Any, **kwargs: Any) -> Any:
    def innermost() -> Any:
        if spec.plan is None:
            return spec.fn(*args, **kwargs)
        return spec.plan.call(spec.fn, ctx, args, kwargs)

    call: Callable[[], Any] = innermost
    for layer in own:
        call = functools.partial(layer, ctx, call)
    return call()


async def _run_async(
    spec: TaskSpec, ctx: Context, own: Sequence[Callable[[Any, Any], Any]], /, *args: Any, **kwargs: Any
) -> Any:
    async def innermost() -> Any:
        if spec.plan is None:
            return await spec.fn(*args, **kwargs)
        return await spec.plan.acall(spec.fn, ctx, args, kwargs)

    call: Callable[[], Awaitable[Any]] = innermost
    for layer in own:
        call = functools.partial(layer, ctx, call)
    return await call()
