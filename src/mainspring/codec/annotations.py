"""From a function to the types of its parameters, and to one decoder for all of them."""

from __future__ import annotations

import collections.abc
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import msgspec.inspect

from mainspring.codec import wire
from mainspring.codec.losses import key_check
from mainspring.common.callables import Dependency, shape_of, supplied
from mainspring.common.secret import Secret
from mainspring.errors import BadSignature, shown


class Parameters:
    """The parameters of one function, ready to bind, check and decode a call."""

    __slots__ = (
        "by_keyword", "checks", "decoder", "defaults", "item_types", "keys",
        "named", "needed", "plain", "positional", "rest", "supplied", "types",
    )  # fmt: skip

    def __init__(self) -> None:
        self.types: dict[str, Any] = {}  # by key: parameter names, "*", "**"
        self.item_types: dict[str, Any] = {}  # of one item of "*" and "**"
        self.positional: list[str] = []
        self.by_keyword: list[str] = []
        self.defaults: dict[str, Any] = {}
        self.rest = "args"  # the name of *args in the function
        self.supplied: set[str] = set()  # not arguments: their default is a Depends

    def ready(self, task: str) -> None:
        """Make the decoder: a struct with one field per parameter, under the parameter's name."""
        self.keys = tuple(self.types)
        self.named = frozenset(self.by_keyword)
        self.needed = frozenset(self.keys) - self.defaults.keys()
        self.plain = self.keys == tuple(self.positional)
        self.checks = {key: check for key in self.keys if (check := key_check(self.types[key])) is not None}
        fields: list[Any] = [(f"a{index}", self.types[key], *self._default(key)) for index, key in enumerate(self.keys)]
        names = {f"a{index}": key for index, key in enumerate(self.keys)}
        struct = msgspec.defstruct(f"{task} call", fields, rename=names, forbid_unknown_fields=True, kw_only=True)
        self.decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(struct, dec_hook=wire.from_json)

    def spread(self, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Decoded values as ``(args, kwargs)`` of the function."""
        given = dict(zip(self.keys, values, strict=True))
        extra, keyword = given.pop("*", ()), given.pop("**", {})
        args = [given.pop(name) for name in self.positional]
        return (*args, *extra), {**given, **keyword}

    def _default(self, key: str) -> tuple[Any, ...]:
        """The default of the function itself: the same object, as in a Python call."""
        if key not in self.defaults:
            return ()
        default = self.defaults[key]
        if type(default) in (type(None), bool, int, float, str):
            return (default,)
        return (msgspec.field(default_factory=lambda: default),)


def resolve_parameters(fn: Callable[..., Any], task: str, *, skip_first: bool) -> Parameters:
    """Read the signature of ``fn``; ``BadSignature`` names the parameter that cannot be used."""
    found = Parameters()
    for parameter in _parameters_of(fn, task)[int(skip_first) :]:
        if isinstance(parameter.default, Dependency):
            found.supplied.add(parameter.name)
            continue
        _add(found, parameter, _resolve(fn, task, parameter.name, parameter.annotation))
    for key, declared in found.types.items():
        check_type(task, found.rest if key == "*" else key, declared)
    found.ready(task)
    return found


def parameter_names(fn: Callable[..., Any], task: str) -> list[str]:
    """The names of all parameters; no annotation is resolved."""
    return [each.name for each in _parameters_of(fn, task) if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]


def holds_secret(declared: Any) -> bool:
    """Whether a value of this type may contain a ``Secret``, at any depth."""
    return _mentions(declared, Secret, set())


def _mentions(declared: Any, wanted: type, seen: set[int]) -> bool:
    if declared is wanted or get_origin(declared) is wanted:
        return True
    if id(declared) in seen:
        return False
    seen.add(id(declared))
    parts = list(get_args(declared))
    bare = get_origin(declared) or declared
    if isinstance(bare, type) and wire.has_fields(bare):
        try:
            parts += get_type_hints(bare, include_extras=True).values()
        except Exception:  # noqa: BLE001 - the decoder reports a name that cannot be resolved
            return False
    return any(_mentions(part, wanted, seen) for part in parts)


def resolve_return(fn: Callable[..., Any], task: str) -> Any:
    """The declared return type of ``fn``; ``Any`` without an annotation."""
    declared = declared_return(fn, task)
    check_type(task, "return", declared)
    return declared


def declared_return(fn: Callable[..., Any], task: str) -> Any:
    """The declared return type without a check that JSON can represent it."""
    return _resolve(fn, task, "return", _signature_of(fn, task).return_annotation)


def declared_type(fn: Callable[..., Any], task: str, name: str) -> Any:
    """The declared type of one parameter, unchecked; ``Any`` without an annotation."""
    return _resolve(fn, task, name, _signature_of(fn, task).parameters[name].annotation)


def _signature_of(fn: Callable[..., Any], task: str) -> Any:
    import inspect

    try:
        if sys.version_info >= (3, 14):
            from annotationlib import Format

            return inspect.signature(fn, annotation_format=Format.FORWARDREF)
        return inspect.signature(fn)
    except (ValueError, TypeError) as error:
        raise BadSignature(task, "*", f"cannot be read: {error}", hint="Wrap it in your own function.") from None


def _parameters_of(fn: Callable[..., Any], task: str) -> list[Any]:
    return [supplied(fn, each) for each in _signature_of(fn, task).parameters.values()]


def _add(found: Parameters, parameter: Any, declared: Any) -> None:
    name, kind = parameter.name, parameter.kind
    if kind is parameter.VAR_POSITIONAL:
        found.rest = name
        found.item_types["*"], found.types["*"], found.defaults["*"] = declared, list[declared], []
        return
    if kind is parameter.VAR_KEYWORD:
        found.item_types["**"], found.types["**"], found.defaults["**"] = declared, dict[str, declared], {}
        return
    found.types[name] = declared
    if kind is not parameter.KEYWORD_ONLY:
        found.positional.append(name)
    if kind is not parameter.POSITIONAL_ONLY:
        found.by_keyword.append(name)
    if parameter.default is not parameter.empty:
        found.defaults[name] = parameter.default


class _Annotated:
    """An object with one annotation, for ``get_type_hints``."""

    def __init__(self, name: str, annotation: Any) -> None:
        self.__annotations__ = {name: annotation}


def _resolve(fn: Callable[..., Any], task: str, name: str, annotation: Any) -> Any:
    """Resolve one annotation. One at a time, so that only the names of this annotation must be importable."""
    import inspect

    if annotation is inspect.Parameter.empty:
        return Any
    shape = shape_of(fn)
    bare = inspect.unwrap(getattr(shape, "__func__", shape))
    try:
        hints = get_type_hints(_Annotated(name, annotation), _globals(bare), _closure(bare), include_extras=True)
    except Exception as error:
        raise BadSignature(
            task,
            name,
            f"has an annotation that cannot be resolved: {error}",
            hint="Define or import the name at the top level of the task's module, also at run time "
            "(not only under TYPE_CHECKING).",
        ) from error
    return _widened(hints[name])


def _globals(fn: Any) -> dict[str, Any]:
    return dict(getattr(fn, "__globals__", {}))


def _closure(fn: Any) -> dict[str, Any]:
    """The closure variables of an inner function, so that local classes can be resolved."""
    code, cells = getattr(fn, "__code__", None), getattr(fn, "__closure__", None)
    if code is None or not cells:
        return {}
    found = {}
    for name, cell in zip(code.co_freevars, cells, strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found


def _widened(declared: Any) -> Any:
    if declared is object:
        return Any
    if get_origin(declared) is collections.abc.Iterable:
        return collections.abc.Sequence[get_args(declared)[0]]  # type: ignore[misc]  # a type made at run time
    return declared


def check_type(task: str, argument: str, declared: Any) -> None:
    """``BadSignature`` unless JSON can represent values of this type."""
    try:
        wire.decoder_for(declared)
    except Exception as error:
        text = str(error).replace("`", "").partition(" - type ")[0]
        raise BadSignature(
            task,
            argument,
            f"is declared as {_shown_type(declared)}, which JSON cannot represent: {text}",
            hint="Choose one type, or a dataclass or tagged msgspec.Struct per alternative.",
        ) from error
    for part in _parts_of(declared):
        _refuse_unchecked(task, argument, part)
        _refuse_keys(task, argument, part)


def _parts_of(declared: Any, aliases: tuple[Any, ...] = ()) -> Iterator[Any]:
    """The type and the types in it, as they are written: the items of a list, the alternatives of a union."""
    while (found := getattr(declared, "__value__", None) or getattr(declared, "__supertype__", None)) is not None:
        if any(declared is each for each in aliases):
            return  # an alias that contains itself
        aliases, declared = (*aliases, declared), found  # type X = ..., NewType("X", ...)
    yield declared
    if get_origin(declared) is not Literal:
        for each in get_args(declared)[: 1 if get_origin(declared) is Annotated else None]:
            yield from _parts_of(each, aliases)


def _refuse_unchecked(task: str, argument: str, declared: Any) -> None:
    """``BadSignature`` for a constraint of pydantic or annotated-types, which msgspec ignores."""
    for note in declared.__metadata__ if get_origin(declared) is Annotated else ():
        kinds = {(kind.__module__.partition(".")[0], kind.__name__) for kind in type(note).__mro__}
        if not {package for package, _ in kinds} & {"pydantic", "annotated_types"} or type(note).__name__ in _HARMLESS:
            continue
        found = note.metadata if ("pydantic", "FieldInfo") in kinds else [note]
        if not found:
            continue  # only a title or a description
        raise BadSignature(
            task,
            argument,
            f"has the constraint {', '.join(shown(each, 60) for each in found)}, which is not checked here",
            hint="Use msgspec.Meta, as in Annotated[int, msgspec.Meta(gt=5)], or a pydantic model with this field.",
        )


_HARMLESS = frozenset(
    {"Discriminator", "DocInfo", "Examples", "SkipJsonSchema", "SkipValidation", "Tag", "WithJsonSchema"}
)
"""Notes that are no constraints."""


def _refuse_keys(task: str, argument: str, declared: Any) -> None:
    """``BadSignature`` for a mapping whose keys JSON cannot hold: only an empty mapping would be accepted."""
    kind, args = get_origin(declared), get_args(declared)
    if not isinstance(kind, type) or not issubclass(kind, collections.abc.Mapping) or len(args) != 2:
        return
    info = wire.type_info(args[0])
    while isinstance(info, msgspec.inspect.Metadata):
        info = info.type
    if all(isinstance(each, _NO_KEYS) for each in getattr(info, "types", (info,))):
        raise BadSignature(
            task,
            argument,
            f"is declared as {_shown_type(declared)}, and JSON has no such keys: every value would be refused",
            hint=f"Use text or numbers as keys, or pairs: list[tuple[{', '.join(map(wire.shown_type, args))}]].",
        )


_NO_KEYS = (
    msgspec.inspect.BoolType, msgspec.inspect.NoneType, msgspec.inspect.TupleType, msgspec.inspect.VarTupleType,
    msgspec.inspect.ListType, msgspec.inspect.SetType, msgspec.inspect.FrozenSetType, msgspec.inspect.DictType,
    msgspec.inspect.StructType, msgspec.inspect.DataclassType, msgspec.inspect.TypedDictType,
    msgspec.inspect.NamedTupleType,
)  # fmt: skip


def _shown_type(declared: Any) -> str:
    return declared.__name__ if isinstance(declared, type) and not get_args(declared) else str(declared)
