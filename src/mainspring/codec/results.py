"""Results: encoding a result never raises, because the work of the job is already done."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from mainspring.codec import wire
from mainspring.codec.failures import text_of
from mainspring.codec.fit import fit
from mainspring.codec.losses import find_loss
from mainspring.codec.mismatch import describe_mismatch
from mainspring.common.redact import HIDDEN
from mainspring.common.secret import Secret
from mainspring.errors import MainspringError, ResultNotSerializable, ResultTooLarge, Undecodable, shown

RESULT_LIMIT = 1_000_000


class EncodedResult(NamedTuple):
    """The bytes to store, or the reason why the result cannot be stored."""

    data: bytes | None
    note: MainspringError | None = None


_NOTHING = EncodedResult(b"null")


def encode_result(value: Any, annotation: Any = Any, limit: int = RESULT_LIMIT) -> EncodedResult:
    """The result as bytes, checked against its declared type. Never raises.

    Without a declared type the value must be plain JSON; a tuple may be read back as a list.
    """
    if value is None and annotation in (Any, None, type(None)):
        return _NOTHING
    try:
        return _encode_or_fit(value, annotation, limit)
    except Exception as error:  # noqa: BLE001 - encoders run user code, and the work of the job is already done
        return EncodedResult(None, _not_serializable(value, annotation, error))


def decode_result(data: bytes | memoryview, annotation: Any = Any) -> Any:
    """The result as its declared type."""
    try:
        return wire.decode(data, annotation)
    except Exception as error:
        raise Undecodable(
            "result", text_of(error), hint="Was the task's return type changed since the job ran?"
        ) from error


def _encode_or_fit(value: Any, annotation: Any, limit: int) -> EncodedResult:
    try:
        return _encode(value, annotation, limit)
    except msgspec.ValidationError:
        if (fitted := fit(value, annotation)) is value:
            raise
        return _encode(fitted, annotation, limit)


def _encode(value: Any, annotation: Any, limit: int) -> EncodedResult:
    data = wire.encode(value)
    if len(data) > limit:
        return EncodedResult(None, ResultTooLarge(len(data), limit))
    if wire.too_deep(data, wire.DEPTH_LIMIT):
        return EncodedResult(None, ResultNotSerializable(f"the result is nested deeper than {wire.DEPTH_LIMIT} levels"))
    back = wire.decode(data, annotation)
    if wire.difference(value, back, "result") is not None:
        if (loss := find_loss(value, annotation, "result")) is not None:
            return EncodedResult(None, ResultNotSerializable(f"{loss.path} {loss.text}", hint=loss.hint))
        held = value if wire.loses_fields(value, back, "result") else wire.convert(value, annotation)
        found = wire.difference(held, back, "result", tuples_as_lists=True)
        if found is not None:
            return EncodedResult(None, _would_change(*found, annotation, wire.private_advice(value, found[0])))
    if b"\\u0000" in data and (path := wire.find(value, "result", wire.has_nul)) is not None:
        return EncodedResult(None, ResultNotSerializable(f"{path} contains a NUL character, which cannot be stored"))
    return EncodedResult(data)


def _would_change(path: str, sent: Any, back: Any, annotation: Any, advice: str) -> ResultNotSerializable:
    if wire.is_unequal_number(sent):
        return _not_a_number(path, sent, annotation)
    hint = advice or "Declare the task's return type, or return plain JSON values."
    if not advice and isinstance(sent, type(back)):  # a subclass of the declared type
        hint = f"Declare {type(sent).__name__} in the task's return type, or return a plain {type(back).__name__}."
    return ResultNotSerializable(
        f"{path} is {shown(sent)} and would be read back as {HIDDEN if isinstance(sent, Secret) else shown(back)}",
        hint=hint,
    )


def _not_a_number(path: str, sent: float | Decimal, annotation: Any) -> ResultNotSerializable:
    why = f"{path} is {sent}; JSON has no NaN and no infinity"
    return ResultNotSerializable(why, hint=wire.number_advice(sent, annotation, "Return"))


def _not_serializable(value: Any, annotation: Any, error: Exception) -> ResultNotSerializable:
    if isinstance(error, msgspec.ValidationError):
        if (found := wire.find_part(value, "result", wire.is_unequal_number)) is not None:
            return _not_a_number(*found, annotation)
        return ResultNotSerializable(
            f"the result does not have the declared type: {describe_mismatch(value, annotation, 'result', error)}",
            hint="Return a value of the annotated type, or correct the annotation.",
        )
    if isinstance(error, wire.UnreadableType):
        why = f"the return type of the task is declared as {error.shown}, which cannot be read from JSON"
        return ResultNotSerializable(why, hint=f'{error.hint} Or set result="ignore".')
    try:
        path, part, _ = wire.unwritable(value, "result") or ("result", value, error)
    except Exception:  # noqa: BLE001 - the search runs user code too
        path, part = "result", value
    if (key := wire.bad_key(part)) is not None:
        return ResultNotSerializable(
            f"{path} is a dict with the key {shown(key.value, 40)}; "
            f"{'None' if key.value is None else f'a {type(key.value).__name__}'} cannot be a key in JSON",
            hint="Return pairs, list(rows.items()), or a dict with text as keys.",
        )
    name, why = type(part).__name__, text_of(error)
    article = "an" if name[:1].lower() in "aeio" else "a"
    reason = f" ({type(error).__name__}: {shown(why)})" if why else ""
    return ResultNotSerializable(
        f"{path} is {article} {name}, which cannot be stored{reason}",
        hint=wire.plain_advice(path, part).replace("Pass", "Return", 1)
        or 'Return plain values, a dataclass, attrs, msgspec or pydantic type; or set result="ignore".',
    )
