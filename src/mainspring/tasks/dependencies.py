"""Dependencies: values that are made for each attempt and passed to parameters with the default ``Depends(fn)``.

    def get_db(ctx: Context) -> Iterator[Session]:
        with Session(ctx.state.engine) as session:
            yield session

    @app.task
    def bill(order: int, db: Session = Depends(get_db)) -> None: ...

``db: Annotated[Session, Depends(get_db)]`` is the same, with or without a default.

A dependency is a function, ``def`` or ``async def``, that returns its value or yields it once. It may have
dependencies itself, and the context as its first parameter. The code after its ``yield`` runs when the attempt ends, in
reverse order; an exception of the handler is raised at the ``yield``, and remains the error of the attempt if the
dependency catches it. Dependencies of a ``def`` task run in its thread, dependencies of an ``async def`` task on the
event loop.
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
    foreign_marker,
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


def _yield_nothing() -> Iterator[None]:
    yield


async def _ayield_nothing() -> AsyncIterator[None]:
    yield


_MANAGER_CODE = frozenset(
    getattr(each, "__code__", None) for each in (contextmanager(_yield_nothing), asynccontextmanager(_ayield_nothing))
) - {None}
"""The code of every function with the decorator ``@contextmanager`` or ``@asynccontextmanager``."""


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
def Depends(fn: Callable[..., Any], *, cache: bool = True) -> Any:  # noqa: N802 - named like a class, as in FastAPI
    """The default of a task's parameter that gets the value of ``fn``.

    In one attempt ``fn`` is called once for all parameters; with ``cache=False`` it is called for each parameter.
    """
    if not callable(fn):
        raise InvalidOption("Depends", fn, "is not a function", hint="Write Depends(get_db), not Depends(get_db()).")
    return Dependency(fn, cache)


class DependencyNode(NamedTuple):
    """One dependency with its own dependencies."""

    fn: Callable[..., Any]
    key: Any
    """The key of the cached value."""
    open: Callable[..., Any] | None
    """For a generator function: makes its (async) context manager."""
    is_async: bool
    takes_context: bool
    cache: bool
    wants: tuple[tuple[str, DependencyNode], ...]


class DependencyPlan:
    """The parameters of one function that are dependencies, and how to make their values."""

    def __init__(self, wants: Mapping[str, DependencyNode], places: Mapping[str, int]) -> None:
        self.names = tuple(wants)
        self._wants = wants
        self._places = places

    def enter(self, stack: ExitStack, ctx: Any, but: Collection[str] = ()) -> dict[str, Any]:
        """The values by parameter name; ``stack`` ends the generators."""
        made: dict[Any, Any] = {}
        return {name: _make(node, stack, ctx, made) for name, node in self._wants.items() if name not in but}

    async def aenter(self, stack: AsyncExitStack, ctx: Any, but: Collection[str] = ()) -> dict[str, Any]:
        """Async version of :meth:`enter`."""
        made: dict[Any, Any] = {}
        return {name: await _amake(node, stack, ctx, made) for name, node in self._wants.items() if name not in but}

    def call(self, fn: Callable[..., T], ctx: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> T:
        """Call ``fn`` with the given arguments and its dependencies, and end the dependencies after the call."""
        with ExitStack() as stack:
            supplied = self.enter(stack, ctx, self._given(args, kwargs))
            return fn(*args, **kwargs, **supplied)
        raise AssertionError  # unreachable: the stack does not swallow exceptions

    async def acall(
        self, fn: Callable[..., Awaitable[T]], ctx: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> T:
        """Async version of :meth:`call`."""
        async with AsyncExitStack() as stack:
            supplied = await self.aenter(stack, ctx, self._given(args, kwargs))
            return await fn(*args, **kwargs, **supplied)
        raise AssertionError  # unreachable: the stack does not swallow exceptions

    def _given(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Collection[str]:
        return [name for name in self.names if name in kwargs or self._places[name] < len(args)]


def refuse_foreign(fn: Callable[..., Any], task: str) -> None:
    """``BadSignature`` for a parameter that another framework would fill in, such as FastAPI: the task would get the
    marker itself."""
    for each in parameters_of(fn):
        if marker := foreign_marker(fn, each):
            hint = "Give it a plain default, or none."
            if marker.rpartition(".")[2] in ("Depends", "Security", "TaskiqDepends"):
                hint = f"Use the Depends of Mainspring: from mainspring import Depends; {each.name}: T = Depends(fn)."
            why = f"is declared with {marker}(...), which nothing fills in here: the task would get this object"
            raise BadSignature(task, each.name, why, hint=hint)


def plan_of(fn: Callable[..., Any], *, task: str) -> DependencyPlan | None:
    """The dependencies of a task's function; None without any. ``BadSignature`` if one cannot be made."""
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
                raise BadSignature(task, each.name, "is a dependency and cannot be positional-only")
        elif wants and each.kind not in (each.KEYWORD_ONLY, each.VAR_KEYWORD) and min(places.values()) < place:
            hint = "Move it after the task's arguments, or after a bare *."
            raise BadSignature(task, next(iter(wants)), f"is a dependency and must come after {each.name!r}", hint=hint)
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
        refuse_foreign(fn, self._task)
        shape = shape_of(fn)
        if getattr(shape, "__code__", None) in _MANAGER_CODE:
            why = f"depends on {name_of(fn)}, which has the decorator @contextmanager and would not be entered"
            hint = "Remove the decorator: Depends(...) enters a generator function, and ends it after the attempt."
            raise BadSignature(self._task, argument, why, hint=hint)
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
            raise BadSignature(self._task, argument, why, hint="Annotate the parameter with Context.")
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
                    f"depends on {name_of(fn)}, whose parameter {each.name!r} has no default",
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
    """The value that a function returns; refused if it is a coroutine or generator that has not run."""
    value = node.fn(*first, **wants)
    if type(value) in UNRUN:
        why = f"{name_of(node.fn)} returned {let_go(value)}, which has not run"
        raise InvalidOption("Depends", node.fn, why, hint="Give the async def or the generator function itself.")
    return value


def _entered(span: Any, stack: ExitStack | AsyncExitStack) -> Any:
    """Enter the generator; its end is put on the stack. An exception that it catches remains the attempt's error."""

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
