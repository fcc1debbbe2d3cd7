"""Decode the stored record of a job into the arguments of its call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from mainspring.codec import dumps, loads
from mainspring.common.redact import remember, remember_here
from mainspring.errors import Undecodable
from mainspring.jobs.records import RECORD_VERSION, JobBody

if TYPE_CHECKING:
    from mainspring.tasks.spec import TaskSpec

_decode_body = msgspec.json.Decoder(JobBody).decode


class DecodedCall(msgspec.Struct, frozen=True):
    """The arguments of a call, and the record they came from."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    body: JobBody


def decode_record(spec: TaskSpec, record: bytes) -> DecodedCall:
    """The call as today's code of the task understands it. Raises ``Undecodable``, which says what is wrong.

    Arguments that do not fit the signature go through the task's ``upgrade`` function, if it has one.
    """
    try:
        body = _decode_body(record)
    except Exception as error:
        raise Undecodable(f"job of task {spec.name!r}", str(error)) from error
    if body.v > RECORD_VERSION:
        raise Undecodable(
            f"job of task {spec.name!r}",
            f"a newer version of Mainspring wrote it (record version {body.v}; this version reads {RECORD_VERSION})",
            hint="Upgrade this worker, then retry the job.",
        )
    if body.hide or spec.hide:
        _remember_secrets(spec, body)
    try:
        args, kwargs = spec.signature.decode_call(body.args)
    except Undecodable:
        if spec.upgrade is None:
            raise
        args, kwargs = _upgrade_arguments(spec, spec.upgrade, body)
    return DecodedCall(args, kwargs, body)


def _remember_secrets(spec: TaskSpec, body: JobBody) -> None:
    """Hide the values of secret arguments in the log lines of this process and in the errors that it stores.

    The record names some of them. A producer that knew only the task's name could not name all: the task adds the rest.
    """
    given = loads(body.args)
    if isinstance(given, dict):
        by_place = given.get("@") or ()
        if by_place and isinstance(by_place, list):
            given |= zip(spec.signature.positional, by_place, strict=False)
        values = [given.get(name) for name in {*body.hide, *spec.hide}]
        remember(values)
        remember_here(values)


def _upgrade_arguments(
    spec: TaskSpec, upgrade: Callable[[dict[str, Any]], dict[str, Any]], body: JobBody
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    job = f"job of task {spec.name!r}"
    try:
        new = upgrade(loads(body.args, dict[str, Any]))
    except Exception as error:
        raise Undecodable(job, f"the task's upgrade function raised {type(error).__name__}: {error}") from error
    if not isinstance(new, dict):
        kind = type(new).__name__
        raise Undecodable(job, f"the task's upgrade function returned {kind}, not a dict of arguments by name")
    try:
        data = dumps(new)
    except Exception as error:
        raise Undecodable(job, f"the result of the task's upgrade function cannot be stored: {error}") from error
    return spec.signature.decode_call(data)
