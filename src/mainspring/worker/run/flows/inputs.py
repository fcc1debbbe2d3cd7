"""Arguments that are results of other jobs: read from the store before the job gets a slot.

The record of a job in a flow names them (``JobBody.inputs``). The results are put into the stored arguments as they
are, so the types of the task decode and check them like any other argument.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from mainspring.common.ids import id_text
from mainspring.errors import MainspringError, StoreError, Undecodable
from mainspring.flows.results import ResultsTooLarge, read_result, rows_of
from mainspring.jobs.outcomes import Ack
from mainspring.jobs.records import JobBody, JobRow
from mainspring.states import Reason, State

if TYPE_CHECKING:
    from mainspring.stores.base import Store
    from mainspring.worker.run.attempt import RunningAttempt
    from mainspring.worker.run.slots.base import SlotPool

_MARK = b'"inputs":'
INPUTS_LIMIT = 50_000_000
"""Bytes of all results that one job gets."""

_decode_body = msgspec.json.Decoder(JobBody).decode
_decode_arguments = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


class Finish(Protocol):
    def __call__(self, attempt: RunningAttempt, ack: Ack) -> None: ...


class InputLoader:
    """Holds the attempts whose inputs are being read. They count as held by their pool."""

    def __init__(
        self, store: Store, pools: Mapping[str, SlotPool], start: Callable[[RunningAttempt], None], finish: Finish,
        ack_failure: Callable[[RunningAttempt, BaseException], Ack],
    ) -> None:  # fmt: skip
        self._store = store
        self._pools = pools
        self._start = start
        self._finish = finish
        self._ack_failure = ack_failure
        self._loading: dict[RunningAttempt, asyncio.Task[None]] = {}

    def take(self, attempts: list[RunningAttempt]) -> list[RunningAttempt]:
        """The attempts that can start. The others start when their inputs are there."""
        waiting = [attempt for attempt in attempts if _may_have_inputs(attempt.claim.record)]
        if not waiting:
            return attempts
        waiting = [attempt for attempt in waiting if _inputs_of(attempt)]
        for attempt in waiting:
            self._pools[attempt.spec.slots].held += 1
            self._loading[attempt] = asyncio.get_running_loop().create_task(self._load(attempt))
        return [attempt for attempt in attempts if attempt not in self._loading]

    def hand_back(self) -> None:
        """Hand back the jobs whose inputs are not there yet."""
        for attempt, task in list(self._loading.items()):
            task.cancel()
            self._end(attempt, Ack.returned(attempt.lease))

    async def _load(self, attempt: RunningAttempt) -> None:
        try:
            inputs = await read_inputs(self._store, attempt.claim.task, attempt.claim.record)
        except StoreError:
            self._end(attempt, Ack.returned(attempt.lease))
        except MainspringError as error:
            self._end(attempt, self._ack_failure(attempt, _undecodable(attempt, error)))
        else:
            if attempt not in self._loading:
                return
            if inputs is None:
                self._end(attempt, Ack.bypassed(attempt.lease))
                return
            del self._loading[attempt]
            self._pools[attempt.spec.slots].held -= 1
            attempt.inputs = inputs
            self._start(attempt)

    def _end(self, attempt: RunningAttempt, ack: Ack) -> None:
        if self._loading.pop(attempt, None) is not None:
            self._pools[attempt.spec.slots].held -= 1
            attempt.finished = True
            self._finish(attempt, ack)


class Inputs(dict[str, bytes]):
    """Results as JSON, by the parameter that gets them."""

    def __init__(self) -> None:
        super().__init__()
        self.sources: dict[str, str] = {}
        """The job of each result in words, by parameter."""


async def read_inputs(store: Store, task: str, record: bytes) -> Inputs | None:
    """The results as JSON, by parameter; None for a compensation of a job that has not succeeded.

    Results of jobs that did not succeed are left out: an edge lets this job run without them.
    """
    body = _decode_body(record)
    ids = {name: bytes.fromhex(source) for name, source in body.inputs.items()}
    rows = await rows_of(store, list(set(ids.values())))
    found = Inputs()
    size = 0
    for name, id in ids.items():
        row = rows.get(id)
        if body.undoes and (row is None or row.state is not State.SUCCEEDED):
            return None
        if row is None or (row.state is not State.SUCCEEDED and row.reason is not Reason.BYPASSED):
            continue
        try:
            found[name] = await read_result(store, row, INPUTS_LIMIT - size)
        except ResultsTooLarge:
            why = f"the results that argument {name!r} gets take more than {INPUTS_LIMIT:,} bytes"
            hint = "Return less from the jobs before it, for example the names of files."
            raise Undecodable(f"job of task {task!r}", why, hint=hint) from None
        size += len(found[name])
        found.sources[name] = f"job {id_text(id)} of task {row.task!r}"
    return found


def describe_misfit(error: Undecodable, inputs: Mapping[str, bytes], missing: Sequence[str]) -> Undecodable:
    """The error for arguments that do not fit, and that may be results of other jobs: it names these jobs."""
    sources = inputs.sources if isinstance(inputs, Inputs) else {}
    named = [name for name in sources if repr(name) in error.why or f"$.{name}" in error.why] or list(sources)
    said = [f"argument {name!r} is the result of {sources[name]}, of the same flow" for name in named]
    hint = "Return a value that fits the annotation of the parameter, or change the annotation." if said else error.hint
    if missing:
        hint = (
            f"The job whose result is the argument {missing[0]!r} did not succeed. Give the parameter a default, or "
            "declare that it may be None."
        )
    return Undecodable(error.subject, "; ".join([error.why, *said]), hint=hint)


def supplied_names(row: JobRow) -> tuple[str, ...]:
    """The arguments of the job that are results of other jobs."""
    if _MARK not in row.record:
        return ()
    try:
        return tuple(_decode_body(row.record).inputs)
    except (msgspec.DecodeError, TypeError, RecursionError):
        return ()


def add_inputs(arguments: bytes | msgspec.Raw, inputs: Mapping[str, bytes], missing: Iterable[str] = ()) -> bytes:
    """The stored arguments with the results; ``null`` for those that are ``missing``."""
    given = _decode_arguments(arguments)
    given.update((name, msgspec.Raw(b"null")) for name in missing)
    given.update((name, msgspec.Raw(data)) for name, data in inputs.items())
    return _encode(given)


def _may_have_inputs(record: object) -> bool:
    """Whether the record seems to name inputs. A record that is no bytes was written by another program."""
    return isinstance(record, bytes) and _MARK in record


def _inputs_of(attempt: RunningAttempt) -> JobBody | None:
    """The record, if it names inputs; None also for a record that cannot be read, which the executor reports."""
    try:
        body = _decode_body(attempt.claim.record)
    except (msgspec.DecodeError, TypeError, RecursionError):
        return None
    return body if body.inputs else None


def _undecodable(attempt: RunningAttempt, error: MainspringError) -> Undecodable:
    if isinstance(error, Undecodable):
        return error
    why = f"the result of a job before it cannot be read: {error.args[0]}"
    return Undecodable(f"job of task {attempt.claim.task!r}", why, hint=error.hint)
