"""The secret arguments of a job: declared by ``sensitive=`` or ``Secret``, or with a name that looks secret.

Declared values are hidden in all texts of this process from the moment that the job is decoded. Values under names
that look secret are hidden in the texts of their own job only: such a name may be a guess, and the value an innocent
word. They are searched when a job logs or raises, so a job that does neither costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from mainspring.codec import loads
from mainspring.common.redact import SHORTEST_WORD, hide, remember, secrets_in
from mainspring.jobs.records import JobBody

if TYPE_CHECKING:
    from mainspring.tasks.spec import TaskSpec

_decode_body = msgspec.json.Decoder(JobBody).decode


def remember_declared(spec: TaskSpec, body: JobBody) -> None:
    """Hide the values of declared arguments in the log lines of this process and in the errors that it stores.

    The record names some of them. A producer that knew only the task's name could not name all: the task adds the rest.
    """
    given = _by_name(spec, body)
    remember([given.get(name) for name in {*body.hide, *spec.hide}])


def remember_all(spec: TaskSpec, record: bytes, inputs: Mapping[str, bytes] | None = None) -> None:
    """Hide the values of all secret arguments in the rest of this process, which runs one job only."""
    remember(find_secrets(spec, record, inputs), shortest=SHORTEST_WORD)


def find_secrets(spec: TaskSpec, record: bytes, inputs: Mapping[str, bytes] | None = None) -> tuple[str, ...]:
    """The texts to hide in the errors and log lines of a job; empty if its record cannot be read.

    ``inputs``: arguments that are results of other jobs, as JSON.
    """
    try:
        body = _decode_body(record)
        given = _by_name(spec, body)
        given.update((name, loads(data)) for name, data in (inputs or {}).items())
        return secrets_in(given, {*body.hide, *spec.hide})
    except Exception:  # noqa: BLE001 - the job is dead as undecodable, and says why
        return ()


def shown_arguments(spec: TaskSpec | None, record: bytes) -> dict[str, Any]:
    """The arguments of a job as ``job.info().args`` shows them; empty if its record cannot be read."""
    try:
        body = _decode_body(record)
        if spec is None:
            given = loads(body.args)
            return hide(given if isinstance(given, dict) else {}, body.hide)
        given = _by_name(spec, body)
        if by_place := given.pop("@", ()):
            given |= {"*": rest} if (rest := by_place[len(spec.signature.positional) :]) else {}
        return hide(given, {*body.hide, *spec.hide})
    except Exception:  # noqa: BLE001 - as above
        return {}


def _by_name(spec: TaskSpec, body: JobBody) -> dict[str, Any]:
    """The arguments by name, also arguments that a producer gave by position to a task it knew only by name."""
    given = loads(body.args)
    if not isinstance(given, dict):
        return {}
    by_place = given.get("@") or ()
    if by_place and isinstance(by_place, list):
        given |= zip(spec.signature.positional, by_place, strict=False)
    return given
