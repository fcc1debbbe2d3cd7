"""Wraps the function of a task: middleware, outermost first, then its dependencies.

All of it belongs to the attempt: it runs in the thread or task of the body, under the same time limits, and an error
that it raises is the attempt's error.
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
"""The middleware methods by kind of body, innermost first."""


def middleware_layers(middleware: Sequence[Middleware]) -> Layers:
    """The methods that these classes override; empty if there is none."""
    found: Layers = {
        "thread": [each.run for each in reversed(middleware) if type(each).run is not Middleware.run],
        "async": [each.arun for each in reversed(middleware) if type(each).arun is not Middleware.arun],
    }
    return {kind: methods for kind, methods in found.items() if methods}


def wrap_function(spec: TaskSpec, ctx: Context, layers: Layers) -> Callable[..., Any]:
    """A function with the signature of the task's function, wrapped in its middleware and dependencies."""
    methods = layers.get(spec.kind, ())
    if spec.kind == "async":
        return functools.partial(_run_async, spec, ctx, methods)
    return functools.partial(_run, spec, ctx, methods)


def _run(
    spec: TaskSpec, ctx: Context, methods: Sequence[Callable[[Any, Any], Any]], /, *args: Any, **kwargs: Any
) -> Any:
    def innermost() -> Any:
        if spec.plan is None:
            return spec.fn(*args, **kwargs)
        return spec.plan.call(spec.fn, ctx, args, kwargs)

    call: Callable[[], Any] = innermost
    for layer in methods:
        call = functools.partial(layer, ctx, call)
    return call()


async def _run_async(
    spec: TaskSpec, ctx: Context, methods: Sequence[Callable[[Any, Any], Any]], /, *args: Any, **kwargs: Any
) -> Any:
    async def innermost() -> Any:
        if spec.plan is None:
            return await spec.fn(*args, **kwargs)
        return await spec.plan.acall(spec.fn, ctx, args, kwargs)

    call: Callable[[], Awaitable[Any]] = innermost
    for layer in methods:
        call = functools.partial(layer, ctx, call)
    return await call()
