"""Wraps the function of a task: middleware, outermost first, then its dependencies.

All of it belongs to the attempt: it runs in the thread or task of the body, under the same time limits, and an error
that it raises is the attempt's error.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mainspring.errors import MiddlewareError
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
        call = functools.partial(_call_layer, layer, ctx, call)
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
        call = functools.partial(_acall_layer, layer, ctx, call)
    return await call()


def _call_layer(layer: Callable[[Any, Any], Any], ctx: Context, body: Callable[[], Any]) -> Any:
    """Call ``run`` of a middleware; ``MiddlewareError`` if it loses the result of the body, or skips the body."""
    seen = _SeenBody()

    def watched() -> Any:
        seen.called = True
        seen.result = body()
        return seen.result

    value = layer(ctx, watched)
    if value is None:
        seen.check(layer)
    return value


async def _acall_layer(layer: Callable[[Any, Any], Any], ctx: Context, body: Callable[[], Awaitable[Any]]) -> Any:
    """Async version of :func:`_call_layer`."""
    seen = _SeenBody()

    async def watched() -> Any:
        seen.called = True
        seen.result = await body()
        return seen.result

    value = await layer(ctx, watched)
    if value is None:
        seen.check(layer)
    return value


class _SeenBody:
    """What a middleware did with its ``body()``."""

    __slots__ = ("called", "result")

    def __init__(self) -> None:
        self.called = False
        self.result: Any = None

    def check(self, layer: Callable[[Any, Any], Any]) -> None:
        """Called when the middleware returned None: right if the body returned None too, or raised."""
        if not self.called or self.result is not None:
            owner = type(getattr(layer, "__self__", layer)).__name__
            raise MiddlewareError(owner, getattr(layer, "__name__", "run"), ran=self.called)
