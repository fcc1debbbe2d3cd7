"""From the stored record of a job to the call that it stands for."""

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

_body_of = msgspec.json.Decoder(JobBody).decode


class DecodedCall(msgspec.Struct, frozen=True):
    """What to call a task's function with, and what else the job says."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    body: JobBody


def open_record(spec: TaskSpec, record: bytes) -> DecodedCall:
    """The call as the code of today understands it; ``Undecodable`` says what is wrong.

    Arguments that do not fit the signature go through the task's ``upgrade``, if it has one.
    """
    try:
        body = _body_of(record)
    except Exception as error:
        raise Undecodable(f"job of task {spec.name!r}", str(error)) from error
    if body.v > RECORD_VERSION:
        raise Undecodable(
            f"job of task {spec.name!r}",
            f"it was written by a newer version of Mainspring (record {body.v}, known {RECORD_VERSION})",
            hint="Upgrade this worker, then retry the job.",
        )
    if body.hide or spec.hide:
        _keep_secret(spec, body)
    try:
        args, kwargs = spec.signature.decode_call(body.args)
    except Undecodable:
        if spec.upgrade is None:
            raise
        args, kwargs = _upgraded(spec, spec.upgrade, body)
    return DecodedCall(args, kwargs, body)


def _keep_secret(spec: TaskSpec, body: JobBody) -> None:
    """Hide the values of these arguments in what this process logs and in the errors that it stores.

    The producer named some; one that knew only the task's name did not know all.
    """
    given = loads(body.args)
    if isinstance(given, dict):
        by_place = given.get("@") or ()
        if by_place and isinstance(by_place, list):
            given |= zip(spec.signature.positional, by_place, strict=False)
        values = [given.get(name) for name in {*body.hide, *spec.hide}]
        remember(values)
        remember_here(values)


def _upgraded(
    spec: TaskSpec, upgrade: Callable[[dict[str, Any]], dict[str, Any]], body: JobBody
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    what = f"job of task {spec.name!r}"
    try:
        new = upgrade(loads(body.args, dict[str, Any]))
    except Exception as error:
        raise Undecodable(what, f"its upgrade raised {type(error).__name__}: {error}") from error
    if not isinstance(new, dict):
        raise Undecodable(what, f"its upgrade returned {type(new).__name__}, not the arguments by name")
    try:
        data = dumps(new)
    except Exception as error:
        raise Undecodable(what, f"what its upgrade returned cannot be stored: {error}") from error
    return spec.signature.decode_call(data)
