"""A task's signature: binds a call as Python does, checks the arguments, and encodes them as JSON.

The payload is a JSON object with the arguments by name; ``*args`` travel under ``"*"``, ``**kwargs``
under ``"**"``. A producer that knows only the task's name writes positional arguments under ``"@"``; they
are bound when they are read. Arguments left to their default are not stored: the code that runs the job decides.

How a call is checked: it is encoded, decoded by the task's own decoder, and compared. So exactly the values that a
worker will get are checked, for every type that the decoder knows. A value that would be lost or changed (a set under
``Any``, a NaN, a subclass with more fields) is refused at enqueue. Only if this fast check fails, each argument is
checked alone to name the wrong argument.

A value of another kind is accepted if the declared type can represent it without loss: a tuple for ``Sequence``, a list
for ``set``, a dict for a dataclass, the value of an ``Enum``. Text for a ``datetime`` or a ``UUID`` is not accepted.
What the declared type would ignore or change is refused, at enqueue and in stored arguments: see ``losses.py``.
"""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET
from msgspec.structs import astuple

from mainspring.codec import wire
from mainspring.codec.annotations import Parameters, holds_secret, resolve_parameters, resolve_return
from mainspring.codec.canonical import plain
from mainspring.codec.failures import text_of
from mainspring.codec.fit import fit
from mainspring.codec.losses import Loss, find_loss
from mainspring.codec.mismatch import describe_mismatch
from mainspring.codec.results import RESULT_LIMIT, EncodedResult, decode_result, encode_result
from mainspring.common.redact import HIDDEN, looks_secret
from mainspring.common.secret import Secret
from mainspring.errors import (
    ArgumentNotSerializable,
    BadSignature,
    EnqueueError,
    MissingArgument,
    PayloadTooDeep,
    PayloadTooLarge,
    Undecodable,
    UnknownArgument,
    WrongArgument,
    shown,
)

PAYLOAD_LIMIT = 1_000_000
_SHORT = 2 * wire.DEPTH_LIMIT
"""A JSON text of at most this many bytes cannot be nested too deep."""
_decode_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_RESERVED = frozenset({"@", "*", "**"})


class Supplied:
    """Stands for an argument whose value is known when the job runs: the result of another job."""

    __slots__ = ()


class PartialCall(NamedTuple):
    """A call without the arguments that are supplied later."""

    data: bytes
    supplied: dict[str, Supplied]


class Signature:
    """The parameters of a function with their declared types, resolved at first use.

    >>> def add(a: int, b: int = 1) -> int: ...
    >>> signature = Signature.of(add)
    >>> signature.encode_call((2,), {"b": 3})
    b'{"a":2,"b":3}'
    >>> signature.decode_call(b'{"a":2}')
    ((2, 1), {})
    """

    __slots__ = (
        "_checks",
        "_decode",
        "_parameters",
        "_plain",
        "_returns",
        "_size",
        "fn",
        "limit",
        "skip_context",
        "task",
    )

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        skip_context: bool = False,
        task: str | None = None,
        limit: int = PAYLOAD_LIMIT,
    ) -> None:
        self.fn = fn
        self.skip_context = skip_context
        self.task = task or str(getattr(fn, "__name__", type(fn).__name__))
        self.limit = limit
        self._parameters: Parameters | None = None
        self._returns: Any = UNSET

    @classmethod
    def of(
        cls,
        fn: Callable[..., Any],
        *,
        skip_context: bool = False,
        task: str | None = None,
        limit: int = PAYLOAD_LIMIT,
    ) -> Signature:
        """The signature of ``fn``, without its first parameter if that is the context.

        ``limit`` is the maximum size of the arguments in bytes.
        """
        return cls(fn, skip_context=skip_context, task=task, limit=limit)

    # ---- calls -------------------------------------------------------------------------------------

    def encode_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """The call as bytes, bound and checked; ``ArgumentError`` names the wrong argument."""
        parameters = self._parameters or self._resolve()
        if self._plain and not kwargs and len(args) == self._size:
            bound, sent = dict(zip(parameters.keys, args)), args  # noqa: B905 - of one length, and the check costs time
        else:
            bound = self._bind(parameters, args, kwargs)
            sent = tuple([bound[key] if key in bound else parameters.defaults[key] for key in parameters.keys])
        try:
            data = wire.encode(bound)
            if len(data) > self.limit:
                raise PayloadTooLarge(self.task, len(data), self.limit)
            flat = len(data) <= _SHORT and b"\\" not in data
            if astuple(self._decode(data)) == sent and (flat or self._simple(data)):
                return data
        except PayloadTooLarge:
            raise
        except Exception:  # noqa: BLE001, S110 - the slow check finds and explains every error
            pass
        return self._check(parameters, bound)

    def encode_partial(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> PartialCall:
        """A call of which some arguments are :class:`Supplied`. The others are checked one by one."""
        parameters = self._parameters or self._resolve()
        if not parameters.positional and args and isinstance(args[0], Supplied):
            what = "takes only *args" if "*" in parameters.types else "takes no argument by position"
            why = f"{what}, and a step of a flow gets the result before it as its first parameter"
            raise WrongArgument(self.task, "", why, hint="Give the function a first parameter with a name.")
        bound = self._bind(parameters, args, kwargs)
        supplied = {name: value for name, value in bound.items() if isinstance(value, Supplied)}
        given = self._fit(parameters, {name: value for name, value in bound.items() if name not in supplied})
        for name, value in given.items():
            self._check_one(name, value, parameters.types.get(name, Any))
        data = wire.encode(given)
        if len(data) > self.limit:
            raise PayloadTooLarge(self.task, len(data), self.limit)
        return PartialCall(data, supplied)

    def decode_call(
        self, data: bytes | memoryview | msgspec.Raw, *, as_numbers: bool = True
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a stored call as their declared types; ``Undecodable`` when they do not fit.

        ``as_numbers``: ``true`` and ``false`` fit a declared number.
        """
        try:
            parameters = self._parameters or self._resolve()
            values = astuple(self._decode(data))
            if self._checks:
                self._check_keys(data)
        except Exception as error:
            call = self._decode_by_name(data) or (self._decode_fitted(data) if as_numbers else None)
            if call is not None:
                return call
            hint = error.hint if isinstance(error, _Ignored) else ""
            raise Undecodable(f"task {self.task!r}", text_of(error).replace("`", "'"), hint=hint) from error
        return (values, {}) if self._plain else parameters.spread(values)

    def arguments(self, data: bytes) -> dict[str, Any]:
        """The arguments of an encoded call by name as plain JSON values, including the defaults."""
        parameters = self._parameters or self._resolve()
        values = zip(parameters.keys, astuple(self._decode(data)), strict=True)
        found = plain(dict(values))
        return {name: value for name, value in found.items() if value or name not in ("*", "**")}

    # ---- results -----------------------------------------------------------------------------------

    def encode_result(self, value: Any, limit: int = RESULT_LIMIT) -> EncodedResult:
        """The result as bytes, by the declared return type. Never raises."""
        try:
            declared = self.returns
        except BadSignature:
            declared = Any  # refused at enqueue; the work is done now, so a plain result is kept
        return encode_result(value, declared, limit)

    def decode_result(self, data: bytes | memoryview) -> Any:
        """A stored result as the declared return type."""
        return decode_result(data, self.returns)

    # ---- inspect -----------------------------------------------------------------------------------

    @property
    def returns(self) -> Any:
        """The declared return type; ``Any`` without an annotation."""
        if self._returns is UNSET:
            self._returns = resolve_return(self.fn, self.task)
        return self._returns

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Declared types by parameter name, in order; ``*`` and ``**`` for the rest."""
        return dict((self._parameters or self._resolve()).types)

    @property
    def positional(self) -> tuple[str, ...]:
        """The parameters that can be given by position, in order."""
        return tuple((self._parameters or self._resolve()).positional)

    @property
    def optional(self) -> frozenset[str]:
        """The parameters that have a default."""
        return frozenset((self._parameters or self._resolve()).defaults)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The parameters whose declared type contains a ``Secret``."""
        return tuple(name for name, declared in self.parameters.items() if holds_secret(declared))

    def check(self, *, returns: bool = True) -> None:
        """Resolve the annotations now; ``BadSignature`` names the parameter that cannot be resolved.

        ``returns=False`` leaves out the return type, which no result needs.
        """
        if self._parameters is None:
            self._resolve()
        if returns:
            _ = self.returns

    def taking_any(self, names: Iterable[str]) -> Signature:
        """The same signature, in which these parameters take any value: their values are not known yet."""
        made = copy.copy(self)
        parameters = self._read()
        parameters.types.update((name, Any) for name in names if name in parameters.types)
        parameters.ready(self.task)
        made._use(parameters)  # noqa: SLF001 - a copy of this object
        return made

    def __repr__(self) -> str:
        return f"<Signature of {self.task}>"

    # ---- private -----------------------------------------------------------------------------------

    def _resolve(self) -> Parameters:
        return self._use(self._read())

    def _use(self, parameters: Parameters) -> Parameters:
        self._decode = parameters.decoder.decode
        self._plain = parameters.plain
        self._checks = parameters.checks
        self._size = len(parameters.keys)
        self._parameters = parameters  # last: other threads take its presence as "ready"
        return parameters

    def _read(self) -> Parameters:
        return resolve_parameters(self.fn, self.task, skip_first=self.skip_context)

    def _bind(self, parameters: Parameters, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        bound: dict[str, Any] = dict(zip(parameters.positional, args, strict=False))
        if kwargs:
            if not parameters.named.issuperset(kwargs):
                kwargs, bound["**"] = self._take_rest(parameters, kwargs)
            if not bound.keys().isdisjoint(kwargs):
                twice = next(name for name in kwargs if name in bound)
                raise WrongArgument(self.task, twice, f"argument {twice!r} is given twice")
            bound.update(kwargs)
        if not parameters.needed <= bound.keys():
            missing = parameters.needed - bound.keys()
            raise MissingArgument(self.task, [name for name in parameters.keys if name in missing])
        if len(args) > len(parameters.positional):
            if "*" not in parameters.types:
                raise self._too_many(parameters, len(args))
            bound["*"] = list(args[len(parameters.positional) :])
        return bound

    def _take_rest(self, parameters: Parameters, kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Keywords that name a parameter, and keywords for ``**kwargs``."""
        rest = {name: value for name, value in kwargs.items() if name not in parameters.named}
        if "**" not in parameters.types:
            raise self._unknown(parameters, next(iter(rest)))
        return {name: value for name, value in kwargs.items() if name in parameters.named}, rest

    def _unknown(self, parameters: Parameters, name: str) -> UnknownArgument:
        why = f"argument {name!r} can only be given by position" if name in parameters.types else ""
        if name in parameters.supplied:
            why = f"argument {name!r} is a dependency, which the worker supplies"
        return UnknownArgument(self.task, name, parameters.by_keyword, why=why)

    def _too_many(self, parameters: Parameters, given: int) -> UnknownArgument:
        takes = len(parameters.positional)
        why = f"takes {takes} positional argument{'' if takes == 1 else 's'}, {given} were given"
        return UnknownArgument(self.task, "", parameters.positional, why=why)

    def _decode_by_name(self, data: Any) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """A call written by ``dumps_call``, whose producer did not know the signature.

        If it has positional arguments that do not fit, ``Undecodable`` says why; None if it is not such a call.
        """
        given: Any = {}
        try:
            parameters = self._parameters or self._resolve()
            given = wire.decode(data, dict[str, Any])
            if "@" not in given and ("**" not in parameters.types or "**" in given or "*" in given):
                return None
            bound = self._bind(parameters, tuple(given["@"]) if "@" in given else (), _without_places(given))
            values = self._decode_kept(wire.encode(self._fit(parameters, bound)))
        except Exception as error:
            if "@" not in given:
                return None  # the first reason is the clearer message
            hint = "The job was enqueued by name, from a program that does not know the task's signature."
            why = error.args[0] if isinstance(error, EnqueueError) else text_of(error).replace("`", "'")
            raise Undecodable(f"task {self.task!r}", str(why), hint=hint) from error
        return parameters.spread(values)

    def _decode_fitted(self, data: Any) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """A call whose producer wrote ``true`` for an ``int``; None if another reason makes it undecodable."""
        try:
            parameters = self._parameters or self._resolve()
            fitted = self._fit(parameters, wire.decode(data, dict[str, Any]))
            return parameters.spread(self._decode_kept(wire.encode(fitted)))
        except Exception:  # noqa: BLE001 - the first reason is the clearer message
            return None

    def _decode_kept(self, data: bytes) -> tuple[Any, ...]:
        values = astuple(self._decode(data))
        self._check_keys(data)
        return values

    def _check_keys(self, data: Any) -> None:
        """Raise ``_Ignored`` if stored arguments have keys that their declared types do not have."""
        if not self._checks:
            return
        stored = _decode_raw(data)
        for key, check in self._checks.items():
            if key in stored and check(stored[key]):
                value = wire.decode(stored[key], Any)
                parameters = self._parameters or self._resolve()
                name = parameters.rest if key == "*" else "" if key == "**" else key
                if (loss := find_loss(value, parameters.types[key], name)) is not None:
                    raise _Ignored(loss)

    def _simple(self, data: bytes) -> bool:
        return b"\\u0000" not in data and not wire.too_deep(data, wire.DEPTH_LIMIT + 1)

    def _check(self, parameters: Parameters, bound: dict[str, Any]) -> bytes:
        """The slow check: each argument alone, to name the wrong argument and explain the error."""
        bound = self._fit(parameters, bound)
        for key, value in bound.items():
            if key == "*":
                for index, item in enumerate(value):
                    self._check_one(f"{parameters.rest}[{index}]", item, parameters.item_types["*"])
            elif key == "**":
                for name, item in value.items():
                    self._check_one(name, item, parameters.item_types["**"])
            else:
                self._check_one(key, value, parameters.types[key])
        data = wire.encode(bound)
        self._decode(data)
        return data

    def _fit(self, parameters: Parameters, bound: dict[str, Any]) -> dict[str, Any]:
        return {key: fit(value, parameters.types.get(key, Any)) for key, value in bound.items()}

    def _check_one(self, name: str, value: Any, declared: Any) -> None:
        try:
            data = wire.encode(value)
        except RecursionError:
            raise PayloadTooDeep(self.task, name, wire.DEPTH_LIMIT) from None
        except Exception:  # noqa: BLE001 - encoders run user code; the wrong part is searched below
            raise self._unwritable(name, value, declared) from None
        if wire.too_deep(data, wire.DEPTH_LIMIT):
            raise PayloadTooDeep(self.task, name, wire.DEPTH_LIMIT)
        if b"\\u0000" in data and (path := wire.find(value, name, wire.has_nul)) is not None:
            raise ArgumentNotSerializable(
                self.task,
                name,
                f"argument {path!r} contains a NUL character, which not every store can keep",
                path=path,
                hint='Remove it (text.replace("\\0", "")), or declare the parameter as bytes.',
            )
        if wire.has_no_number(data) and (found := wire.find_part(value, name, wire.is_unequal_number)) is not None:
            path, number = found
            raise ArgumentNotSerializable(
                self.task,
                name,
                f"argument {path!r} is {number!s}; JSON has no NaN and no infinity",
                path=path,
                hint=wire.number_advice(number, declared, "Pass"),
            )
        try:
            back = wire.decode(data, declared)
        except Exception as error:  # noqa: BLE001 - decoders run user code; the error is translated
            raise self._wrong(name, value, declared, error) from None
        if wire.difference(value, back, name) is None:
            return
        if (loss := find_loss(value, declared, name)) is not None:
            raise WrongArgument(self.task, name, f"argument {loss.path!r} {loss.text}", path=loss.path, hint=loss.hint)
        self._check_change(name, value, declared, back)

    def _check_change(self, name: str, value: Any, declared: Any, back: Any) -> None:
        try:
            held = wire.convert(value, declared)
        except Exception as error:  # noqa: BLE001 - as above
            if not wire.loses_fields(value, back, name):
                raise self._wrong(name, value, declared, error) from None
            held = value  # a subclass: the error below names the lost fields
        found = wire.difference(held, back, name)
        if found is None:
            return
        path, part, came = found
        raise ArgumentNotSerializable(
            self.task,
            name,
            f"argument {path!r} is {_kind(part)} and would be read back as {_kind(came)}: {_shown(path, part, came)}",
            path=path,
            hint=wire.private_advice(value, path) or _advice(name, value),
        )

    def _wrong(self, name: str, value: Any, declared: Any, error: Exception) -> EnqueueError:
        if isinstance(error, wire.UnreadableType):
            said = f"argument {name!r} is declared as {error.shown}, which cannot be read from JSON"
            return WrongArgument(self.task, name, said, path=name, hint=error.hint)
        found = describe_mismatch(value, declared, name, error)
        said = f"argument {found.path!r} {found.text}".replace(" : ", ": ", 1)
        return WrongArgument(self.task, name, said, path=found.path, hint=found.hint)

    def _unwritable(self, name: str, value: Any, declared: Any) -> EnqueueError:
        path, part, error = wire.unwritable(value, name) or (name, value, None)
        if (key := wire.bad_key(part)) is not None:
            return ArgumentNotSerializable(
                self.task,
                name,
                f"argument {path!r} is a dict with the key {shown(key.value, 40)}; "
                f"{_kind(key.value)} cannot be a key in JSON",
                path=path,
                hint=_pairs_advice(path, part),
            )
        if isinstance(error, UnicodeEncodeError):
            return ArgumentNotSerializable(
                self.task,
                name,
                f"argument {path!r} contains a lone surrogate, which is not valid text",
                path=path,
                hint='Decode the original bytes with errors="replace", or declare the parameter as bytes.',
            )
        try:
            wire.convert(value, declared)
        except msgspec.ValidationError as wrong:
            return self._wrong(name, value, declared, wrong)
        except Exception:  # noqa: BLE001, S110 - the type has no error of its own: the value cannot be stored
            pass
        return ArgumentNotSerializable(
            self.task,
            name,
            f"argument {path!r} is {_kind(part)}, which cannot be stored",
            path=path,
            hint=wire.plain_advice(path, part, declared if part is value else Any) or _object_advice(path, part),
        )


class _Ignored(Exception):
    """The declared types do not hold all of the stored arguments."""

    def __init__(self, loss: Loss) -> None:
        super().__init__(f"argument {loss.path!r} {loss.text}")
        self.hint = "If the type was changed meanwhile, declare the key or use @task.upgrade."


def dumps_call(task: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, limit: int = PAYLOAD_LIMIT) -> bytes:
    """The call of a task that is known only by name: plain JSON values, bound when the job runs."""
    for name in _RESERVED & kwargs.keys():
        hint = "This name is reserved for positional arguments."
        raise WrongArgument(task, name, "cannot be the name of an argument", hint=hint)
    _by_name(task, limit).encode_call(args, kwargs)
    return wire.encode({"@": args, **kwargs} if args else kwargs)


@lru_cache(maxsize=256)
def _by_name(task: str, limit: int) -> Signature:
    return Signature(lambda *args, **kwargs: None, task=task, limit=limit)  # noqa: ARG005 - only its parameters are used


def _without_places(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name != "@"}


def _shown(path: str, part: Any, came: Any) -> str:
    hidden = isinstance(part, Secret) or looks_secret(path)
    return HIDDEN if hidden else shown(came, 40)


def _kind(value: Any) -> str:
    name = type(value).__name__
    if value is None:
        return "None"
    return f"{'an' if name[:1].lower() in 'aeio' else 'a'} {name}"


def _object_advice(path: str, part: Any) -> str:
    if hasattr(type(part), "id") or "id" in getattr(part, "__dict__", {}):
        return f"Pass {path}.id and load it inside the task."
    return "Pass plain values, or declare it as a dataclass, attrs, msgspec or pydantic type."


def _advice(name: str, value: Any) -> str:
    """The annotation with which this value is stored, tried here; if there is none, what to pass instead."""
    with suppress(Exception):  # the value has no annotation that can be computed
        annotation = _annotation_of(value)
        if wire.difference(value, wire.decode(wire.encode(value), annotation), name) is None:
            return f"Declare its type in the task's signature: {name.partition('[')[0]}: {wire.shown_type(annotation)}"
    return "Pass lists instead of tuples and sets, and dicts with text as keys; or declare the type as a dataclass."


def _pairs_advice(path: str, value: dict[Any, Any]) -> str:
    """What to pass instead of a dict whose keys JSON cannot write."""
    pairs, declared = list(value.items()), ""
    with suppress(Exception):  # as above
        annotation = _annotation_of(pairs)
        if wire.difference(pairs, wire.decode(wire.encode(pairs), annotation), path) is None:
            declared = f" declared as {wire.shown_type(annotation)},"
    return f"Pass pairs, list({path}.items()),{declared} or a dict with text as keys."


def _annotation_of(value: Any) -> Any:
    """The annotation that describes exactly this value."""
    kind: Any = type(value)
    if isinstance(value, dict) and value:
        return kind[_union_of(value), _union_of(value.values())]
    if isinstance(value, (list, set, frozenset)) and value:
        return kind[_union_of(value)]
    if kind is tuple:
        return kind[tuple(map(_annotation_of, value))]
    return kind


def _union_of(values: Iterable[Any]) -> Any:
    return functools.reduce(operator.or_, dict.fromkeys(map(_annotation_of, values)))
