"""Facts about a callable behind its wrappers: async or not, generator or not, its parameters, its context."""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Annotated, Any, NamedTuple, TypeVar, cast, get_args, get_origin, get_type_hints

from mainspring.errors import BadSignature, InvalidOption, UnknownOption

F = TypeVar("F", bound=Callable[..., Any])

UNRUN = frozenset({CoroutineType, GeneratorType, AsyncGeneratorType})
"""Types of return values that have not run yet."""


class Dependency(NamedTuple):
    """The default of a parameter that ``Depends(fn)`` supplies; such a parameter is not an argument of a job."""

    fn: Callable[..., Any]
    cache: bool
    """Whether one value serves all parameters of an attempt with the same function."""


_CONTEXTS = ("Context", "AsyncContext")
_INJECTED = frozenset({"Depends", "TaskiqDepends", "Dependant"})
"""Classes of other frameworks with which their dependencies are declared."""
_NAME = r"[A-Za-z_][\w.]*"


def shape_of(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function that runs at a call: the function of a ``partial``, or the ``__call__`` of an object."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    plain = inspect.isroutine(fn) or inspect.isclass(fn)
    found: Callable[..., Any] = fn if plain else getattr(type(fn), "__call__", fn)  # noqa: B004 - we want the method, not whether it exists
    return found


def is_async(fn: Callable[..., Any]) -> bool:
    """Whether a call must be awaited."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(shape_of(fn))


def yields(fn: Callable[..., Any]) -> bool:
    """Whether a call returns a generator or an async generator."""
    shape = shape_of(fn)
    return inspect.isgeneratorfunction(shape) or inspect.isasyncgenfunction(shape)


def let_go(value: Any) -> str:
    """Close a coroutine or generator that will not run; returns a description for the error message."""
    if not isinstance(value, AsyncGeneratorType):  # closing an async generator needs an event loop
        with suppress(Exception):
            value.close()
    return "a coroutine" if isinstance(value, CoroutineType) else "a generator"


def parameters_of(fn: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters, with annotations as written; an empty list if the signature cannot be read.

    A parameter with ``Annotated[T, Depends(fn)]`` has the dependency as its default.
    """
    try:
        if sys.version_info >= (3, 14):
            from annotationlib import Format

            found = inspect.signature(fn, annotation_format=Format.FORWARDREF)
        else:
            found = inspect.signature(fn)
    except (ValueError, TypeError):
        return []
    return [supplied(fn, each) for each in found.parameters.values()]


def supplied(fn: Callable[..., Any], parameter: inspect.Parameter) -> inspect.Parameter:
    """The parameter with its dependency as its default, if its annotation has one."""
    if isinstance(parameter.default, Dependency) or parameter.annotation is parameter.empty:
        return parameter
    annotation = _annotated(fn, parameter)
    while hasattr(annotation, "__value__"):  # type Db = Annotated[...]
        annotation = annotation.__value__
    if get_origin(annotation) is not Annotated:
        return parameter
    found = next((each for each in annotation.__metadata__ if isinstance(each, Dependency)), None)
    if found is None or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        return parameter
    return parameter.replace(default=found)


def foreign_marker(fn: Callable[..., Any], parameter: inspect.Parameter) -> str:
    """The class of a marker of another framework in the default or the ``Annotated`` of a parameter, such as
    ``fastapi.Depends``, which only that framework replaces by a value; empty without one."""
    annotation: Any = None if parameter.annotation is parameter.empty else _annotated(fn, parameter)
    while hasattr(annotation, "__value__"):  # type Db = Annotated[...]
        annotation = annotation.__value__
    notes = annotation.__metadata__ if get_origin(annotation) is Annotated else ()
    for each in (parameter.default, *notes):
        kinds = [(kind.__module__.partition(".")[0], kind.__name__) for kind in type(each).__mro__]
        if isinstance(each, (Dependency, type)):
            continue
        injected = any(kind in _INJECTED or (package == "fastapi" and kind == "Security") for package, kind in kinds)
        if injected or (each is parameter.default and ("pydantic", "FieldInfo") in kinds):
            return f"{kinds[0][0]}.{kinds[0][1]}"
    return ""


def _annotated(fn: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """The annotation. Text is evaluated only if it may have a dependency: a name, or text with ``Depends``."""
    said = getattr(parameter.annotation, "__forward_arg__", parameter.annotation)
    if not isinstance(said, str):
        return said
    if "Depends" not in said:
        return _lookup(fn, said.strip()) if re.fullmatch(_NAME, said.strip()) else None
    bare = inspect.unwrap(shape_of(fn))
    try:
        holder = type("Annotation", (), {"__annotations__": {"it": said}})
        return get_type_hints(holder, getattr(bare, "__globals__", {}), _closure(bare), include_extras=True)["it"]
    except Exception as error:  # noqa: BLE001 - the annotation is code of the user
        hint = "Define the dependency at the top level of the module, or write db: Db = Depends(get_db)."
        why = f"has an annotation that cannot be resolved: {error}"
        raise BadSignature(name_of(fn), parameter.name, why, hint=hint) from None


def _closure(fn: Any) -> dict[str, Any]:
    try:
        return dict(inspect.getclosurevars(fn).nonlocals)
    except TypeError:  # not a Python function
        return {}


def source_hash(fn: Callable[..., Any]) -> str:
    """A hash of the source of a function, the same on every machine; empty if the source cannot be read."""
    try:
        source = inspect.getsource(inspect.unwrap(shape_of(fn)))
    except (OSError, TypeError, SyntaxError, IndexError):
        return ""
    return hashlib.sha256(inspect.cleandoc(source).encode(errors="replace")).hexdigest()[:16]


def accepts(fn: Callable[..., Any], count: int) -> bool:
    """Whether a call with this number of positional arguments fits the signature, or the signature is unknown."""
    try:
        inspect.signature(fn).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        return True
    return True


def explain_call(subject: str, example: str, **hints: str) -> Callable[[F], F]:
    """Decorate a function for users: a call that does not fit its signature raises an error of an option.

    Python's own ``TypeError`` says neither what a missing argument means nor which keywords exist. ``example`` is a
    correct call, ``hints`` has a sentence for names that people try.
    """

    def decorate(fn: F) -> F:
        @functools.wraps(fn)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return fn(*args, **kwargs)
            except TypeError as error:
                if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
                    raise  # from inside of the function
                wrong = _wrong_call(fn, subject, args, kwargs, f"Example: {example}", hints)
                raise wrong or error from None

        return cast("F", call)

    return decorate


class _NotGiven:
    def __repr__(self) -> str:
        return "..."


def _wrong_call(
    fn: Callable[..., Any], subject: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], example: str,
    hints: Mapping[str, str],
) -> UnknownOption | InvalidOption | None:  # fmt: skip
    own = list(inspect.signature(fn).parameters.values())[1:]  # without self
    names = [each.name for each in own if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    for name in kwargs:
        if name not in names:
            return UnknownOption(subject, name, names, hint=hints.get(name, f"Options: {', '.join(names)}. {example}"))
    for each in own[len(args) - 1 :]:
        if each.name in names and each.default is each.empty and each.name not in kwargs:
            return InvalidOption(each.name, _NotGiven(), "is missing", subject=subject, hint=example)
    rest = args[1 + sum(each.kind is each.POSITIONAL_OR_KEYWORD for each in own) :]
    return InvalidOption(subject, rest[0], "is one argument too many", hint=example) if rest else None


def takes_context(fn: Callable[..., Any]) -> str:
    """``Context`` or ``AsyncContext`` if the first parameter is annotated with it, else an empty text."""
    first = next(iter(parameters_of(fn)), None)
    if first is None or first.kind not in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD):
        return ""
    said = getattr(first.annotation, "__forward_arg__", first.annotation)
    alone = isinstance(said, type) or (isinstance(said, str) and re.fullmatch(_NAME, said.strip(" '\"")))
    return next((name for name, _ in _contexts(fn, said)), "") if alone else ""


def misplaced_context(fn: Callable[..., Any]) -> str:
    """The name of a parameter annotated as a context that is not the first parameter, or an empty text."""
    rest = parameters_of(fn)[int(bool(takes_context(fn))) :]
    for each in rest:
        said = getattr(each.annotation, "__forward_arg__", each.annotation)
        if any(sure for _, sure in _contexts(fn, said)):
            return each.name
    return ""


def _contexts(fn: Callable[..., Any], said: Any) -> Iterator[tuple[str, bool]]:
    """The context classes that an annotation names, each with whether it is certainly the class of this package."""
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
    """The object that a name means in the module of the function; None if it is unknown."""
    first, *rest = dotted.split(".")
    found = getattr(inspect.unwrap(shape_of(fn)), "__globals__", {}).get(first)
    for name in rest:
        found = getattr(found, name, None)
    return found


def name_of(fn: Callable[..., Any]) -> str:
    """The name of the function, for messages."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return cast("str", getattr(fn, "__name__", type(fn).__name__))


def check_guardable(fn: Any, option: str, subject: str, of_a_task: str) -> None:
    """Refuse everything but a ``def`` or an ``async def``.

    A generator function would be guarded when the generator is made, not while it runs. A static method would become an
    ordinary method: put the guard below ``@staticmethod``."""
    if not callable(fn) or isinstance(fn, (type, staticmethod)) or hasattr(fn, "declared") or yields(fn):
        hint = f"Decorate a def or an async def; {of_a_task}"
        raise InvalidOption(option, fn, "cannot be guarded", subject=subject, hint=hint)
