"""What a callable is behind its wrapping: its colour, whether it yields, its parameters. And what was never run."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, cast, get_args

UNRUN = frozenset({CoroutineType, GeneratorType, AsyncGeneratorType})
"""Types of what a function returns that has not run yet."""

_CONTEXTS = ("Context", "AsyncContext")
_NAME = r"[A-Za-z_][\w.]*"


def shape_of(fn: Callable[..., Any]) -> Callable[..., Any]:
    """What runs when it is called: the function in a ``partial``, the ``__call__`` of an object."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    plain = inspect.isroutine(fn) or inspect.isclass(fn)
    found: Callable[..., Any] = fn if plain else getattr(type(fn), "__call__", fn)  # noqa: B004 - not whether, which
    return found


def is_async(fn: Callable[..., Any]) -> bool:
    """Whether a call of it is to be awaited."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(shape_of(fn))


def yields(fn: Callable[..., Any]) -> bool:
    """Whether a call of it only makes a generator, of either colour."""
    shape = shape_of(fn)
    return inspect.isgeneratorfunction(shape) or inspect.isasyncgenfunction(shape)


def let_go(value: Any) -> str:
    """Close what nobody will run; says what it was."""
    if not isinstance(value, AsyncGeneratorType):  # that one has no end of its own that could be reached from here
        with suppress(Exception):
            value.close()
    return "a coroutine" if isinstance(value, CoroutineType) else "a generator"


def parameters_of(fn: Callable[..., Any]) -> list[inspect.Parameter]:
    """Its parameters, annotations as they stand; none for one that cannot be read."""
    try:
        if sys.version_info >= (3, 14):
            from annotationlib import Format

            return list(inspect.signature(fn, annotation_format=Format.FORWARDREF).parameters.values())
        return list(inspect.signature(fn).parameters.values())
    except (ValueError, TypeError):
        return []


def takes_context(fn: Callable[..., Any]) -> str:
    """``Context`` or ``AsyncContext`` if the first parameter is annotated as one, else nothing."""
    first = next(iter(parameters_of(fn)), None)
    if first is None or first.kind not in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD):
        return ""
    said = getattr(first.annotation, "__forward_arg__", first.annotation)
    alone = isinstance(said, type) or (isinstance(said, str) and re.fullmatch(_NAME, said.strip(" '\"")))
    return next((name for name, _ in _contexts(fn, said)), "") if alone else ""


def misplaced_context(fn: Callable[..., Any]) -> str:
    """A parameter that is annotated as a context and will not get one, if there is such."""
    rest = parameters_of(fn)[int(bool(takes_context(fn))) :]
    for each in rest:
        said = getattr(each.annotation, "__forward_arg__", each.annotation)
        if any(sure for _, sure in _contexts(fn, said)):
            return each.name
    return ""


def _contexts(fn: Callable[..., Any], said: Any) -> Iterator[tuple[str, bool]]:
    """The contexts that an annotation names, each with whether it is ours for sure."""
    if not isinstance(said, str):
        yield from ((each.__name__, True) for each in (said, *get_args(said)) if _ours(each))
        return
    for dotted in re.findall(_NAME, said):
        name = dotted.rpartition(".")[2]
        if name in _CONTEXTS:
            found = _lookup(fn, dotted)
            if found is None or _ours(found):
                yield name, found is not None


def _ours(found: Any) -> bool:
    if not isinstance(found, type) or found.__name__ not in _CONTEXTS:
        return False
    return found.__module__.partition(".")[0] == __name__.partition(".")[0]


def _lookup(fn: Callable[..., Any], dotted: str) -> Any:
    """What a name means where the function stands; None if that cannot be told."""
    first, *rest = dotted.split(".")
    found = getattr(inspect.unwrap(shape_of(fn)), "__globals__", {}).get(first)
    for name in rest:
        found = getattr(found, name, None)
    return found


def name_of(fn: Callable[..., Any]) -> str:
    """What people call it."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return cast("str", getattr(fn, "__name__", type(fn).__name__))
