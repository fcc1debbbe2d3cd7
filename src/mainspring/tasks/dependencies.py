"""Dependencies: values that a task asks for by a parameter's default, made anew for each attempt.

    def get_db(ctx: Context) -> Iterator[Session]:
        with Session(ctx.state.engine) as session:
            yield session

    @app.task
    def bill(order: int, db: Session = Depends(get_db)) -> None: ...

A dependency is a function, ``def`` or ``async def``, that returns its value or yields it once. It may have
dependencies itself, and the context as its first parameter. What stands behind its ``yield`` runs when the
attempt is over, the last one first; an error of the body is raised at the ``yield``, and stays the attempt's
error if it is caught there. Dependencies of a ``def`` task run in its thread, those of an ``async def`` task on
the loop.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import IO, Any, NamedTuple, TypeVar, overload

from mainspring.common.callables import (
    UNRUN,
    Dependency,
    is_async,
    let_go,
    name_of,
    parameters_of,
    shape_of,
    takes_context,
)
from mainspring.errors import BadSignature, InvalidOption

T = TypeVar("T")
F = TypeVar("F", bound=IO[Any])


@overload
def Depends(fn: Callable[..., F], *, cache: bool = True) -> F: ...
@overload
def Depends(fn: Callable[..., AsyncIterator[T]], *, cache: bool = True) -> T: ...
@overload
def Depends(fn: Callable[..., Iterator[T]], *, cache: bool = True) -> T: ...
@overload
def Depends(fn: Callable[..., Awaitable[T]], *, cache: bool = True) -> T: ...
@overload
def Depends(fn: Callable[..., T], *, cache: bool = True) -> T: ...
def Depends(fn: Callable[..., Any], *, cache: bool = True) -> Any:  # noqa: N802 - reads as a word of a signature
    """The value of ``fn`` as the default of a task's parameter.

    Within one attempt ``fn`` is called once, however many ask for it; ``cache=False`` calls it for each.
    """
    if not callable(fn):
        raise InvalidOption("Depends", fn, "is not a function", hint="Depends(get_db), without the brackets of a call.")
    return Dependency(fn, cache)


class DependencyNode(NamedTuple):
    """One dependency with those that it has itself."""

    fn: Callable[..., Any]
    key: Any
    """What two askers of the same function share."""
    open: Callable[..., Any] | None
    """For a generator: makes its (async) context manager."""
    is_async: bool
    takes_context: bool
    cache: bool
    wants: tuple[tuple[str, DependencyNode], ...]


class DependencyPlan:
    """Which parameters of one function are supplied, and how."""

    def __init__(self, wants: Mapping[str, DependencyNode], places: Mapping[str, int]) -> None:
        self.names = tuple(wants)
        self._wants = wants
        self._places = places

    def enter(self, stack: ExitStack, ctx: Any, but: Collection[str] = ()) -> dict[str, Any]:
        """The values by parameter name; ``stack`` ends what has to be ended."""
        made: dict[Any, Any] = {}
        return {name: _make(node, stack, ctx, made) for name, node in self._wants.items() if name not in but}

    async def aenter(self, stack: AsyncExitStack, ctx: Any, but: Collection[str] = ()) -> dict[str, Any]:
        """The async twin of :meth:`enter`."""
        made: dict[Any, Any] = {}
        return {name: await _amake(node, stack, ctx, made) for name, node in self._wants.items() if name not in but}

    def call(self, fn: Callable[..., T], ctx: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> T:
        """Call ``fn`` with what is given, supply the rest, and end it after the call."""
        with ExitStack() as stack:
            supplied = self.enter(stack, ctx, self._given(args, kwargs))
            return fn(*args, **kwargs, **supplied)
        raise AssertionError  # what is thrown into a dependency comes out again

    async def acall(
        self, fn: Callable[..., Awaitable[T]], ctx: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> T:
        """The async twin of :meth:`call`."""
        async with AsyncExitStack() as stack:
            supplied = await self.aenter(stack, ctx, self._given(args, kwargs))
            return await fn(*args, **kwargs, **supplied)
        raise AssertionError  # what is thrown into a dependency comes out again

    def _given(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Collection[str]:
        return [name for name in self.names if name in kwargs or self._places[name] < len(args)]


def plan_of(fn: Callable[..., Any], *, task: str) -> DependencyPlan | None:
    """The dependencies of a task's function; None if it has none. ``BadSignature`` for one that cannot be supplied."""
    parameters = parameters_of(fn)
    if not any(isinstance(each.default, Dependency) for each in parameters):
        return None
    reader = _Reader(task, in_async=is_async(fn))
    wants: dict[str, DependencyNode] = {}
    places: dict[str, int] = {}
    for place, each in enumerate(parameters):
        if isinstance(each.default, Dependency):
            wants[each.name] = reader.node(each.name, each.default)
            places[each.name] = place if each.kind is not each.KEYWORD_ONLY else sys.maxsize
            if each.kind is each.POSITIONAL_ONLY:
                raise BadSignature(task, each.name, "is supplied and cannot be positional-only")
        elif wants and each.kind not in (each.KEYWORD_ONLY, each.VAR_KEYWORD) and min(places.values()) < place:
            hint = "Move it behind the task's arguments, or behind a bare *."
            raise BadSignature(task, next(iter(wants)), f"is supplied, but stands before {each.name!r}", hint=hint)
    return DependencyPlan(wants, places)


class _Reader:
    """Reads the dependencies of one task."""

    def __init__(self, task: str, *, in_async: bool) -> None:
        self._task = task
        self._async = in_async
        self._known: dict[Any, DependencyNode] = {}

    def node(self, argument: str, asked: Dependency) -> DependencyNode:
        key = _key(asked.fn)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._read(argument, asked.fn)
        return known._replace(cache=asked.cache) if known.cache is not asked.cache else known

    def _read(self, argument: str, fn: Callable[..., Any]) -> DependencyNode:
        shape = shape_of(fn)
        awaited = is_async(fn)
        open_it: Callable[..., Any] | None = contextmanager(fn) if inspect.isgeneratorfunction(shape) else None
        if inspect.isasyncgenfunction(shape):
            open_it, awaited = asynccontextmanager(fn), True
        if awaited and not self._async:
            hint = "Write the task as async def, or the dependency as def."
            raise BadSignature(self._task, argument, f"depends on {name_of(fn)}, which is async", hint=hint)
        context = takes_context(fn)
        if context == "AsyncContext" and not self._async:
            why = f"depends on {name_of(fn)}, which takes an AsyncContext that a def task does not have"
            raise BadSignature(self._task, argument, why, hint="Annotate it as Context.")
        return DependencyNode(
            fn, _key(fn), open_it, awaited, bool(context), True, self._wants(argument, fn, bool(context))
        )

    def _wants(self, argument: str, fn: Callable[..., Any], takes: bool) -> tuple[tuple[str, DependencyNode], ...]:
        wants: list[tuple[str, DependencyNode]] = []
        for each in parameters_of(fn)[int(takes) :]:
            if isinstance(each.default, Dependency):
                wants.append((each.name, self.node(argument, each.default)))
            elif each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
                raise BadSignature(
                    self._task,
                    argument,
                    f"depends on {name_of(fn)}, whose parameter {each.name!r} nobody supplies",
                    hint="Give it a default, another Depends(...), or, for the context, put it first: ctx: Context.",
                )
        return tuple(wants)


def _make(node: DependencyNode, stack: ExitStack, ctx: Any, made: dict[Any, Any]) -> Any:
    if node.cache and node.key in made:
        return made[node.key]
    first = (ctx,) if node.takes_context else ()
    wants = {name: _make(each, stack, ctx, made) for name, each in node.wants}
    value = _plain(node, first, wants) if node.open is None else _entered(node.open(*first, **wants), stack)
    if node.cache:
        made[node.key] = value
    return value


async def _amake(node: DependencyNode, stack: AsyncExitStack, ctx: Any, made: dict[Any, Any]) -> Any:
    if node.cache and node.key in made:
        return made[node.key]
    first = (ctx,) if node.takes_context else ()
    wants = {name: await _amake(each, stack, ctx, made) for name, each in node.wants}
    if node.open is None:
        value = await node.fn(*first, **wants) if node.is_async else _plain(node, first, wants)
    elif node.is_async:
        value = await _aentered(node.open(*first, **wants), stack)
    else:
        value = _entered(node.open(*first, **wants), stack)
    if node.cache:
        made[node.key] = value
    return value


def _plain(node: DependencyNode, first: tuple[Any, ...], wants: Mapping[str, Any]) -> Any:
    """What a function returns; refused if that has not run yet."""
    value = node.fn(*first, **wants)
    if type(value) in UNRUN:
        why = f"{name_of(node.fn)} returned {let_go(value)}, which has not run"
        raise InvalidOption("Depends", node.fn, why, hint="Give the async def or the generator function itself.")
    return value


def _entered(span: Any, stack: ExitStack | AsyncExitStack) -> Any:
    """Its value; its end is on the stack. What it catches is still the attempt's error."""

    def end(*error: Any) -> None:
        span.__exit__(*error)

    value = span.__enter__()
    stack.push(end)
    return value


async def _aentered(span: Any, stack: AsyncExitStack) -> Any:
    async def end(*error: Any) -> None:
        await span.__aexit__(*error)

    value = await span.__aenter__()
    stack.push_async_exit(end)
    return value


def _key(fn: Callable[..., Any]) -> Any:
    try:
        hash(fn)
    except TypeError:
        return id(fn)
    return fn
