"""Runs one attempt and says what it came to. Knows no store: it returns acks.

    refuse(attempt)           the ack for a claim that must not start any more
    open_body(attempt)        what to call, from the stored record; Undecodable if it cannot be read
    succeeded(attempt, value) the ack for a body that returned
    failed(attempt, error)    the ack for a body that raised, or that could not start

Encoding never raises: whatever a body does, there is an ack for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from mainspring.backoff import DEFAULT
from mainspring.clock import boottime
from mainspring.errors import HardTimeout, Undecodable
from mainspring.outcomes import Ack
from mainspring.records import RECORD_VERSION, Body
from mainspring.worker import verdict
from mainspring.worker.attempt import NEVER, Attempt, Ending
from mainspring.worker.board import EARLY, STRICT, SUSPECT, Board
from mainspring.worker.context import context_of, current

if TYPE_CHECKING:
    from mainspring.spec import TaskSpec

_body_of = msgspec.json.Decoder(Body).decode


class Executor:
    """What both pools need to run bodies; safe to use from any thread."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._later: dict[tuple[str, int], int] = {}

    def refuse(self, attempt: Attempt) -> Ack | None:
        """The ack for a claim whose body must not start: it was told to end, or it expired meanwhile."""
        if attempt.ending:
            return Ack.cancelled(attempt.lease) if attempt.ending is Ending.CANCEL else Ack.returned(attempt.lease)
        expires = attempt.claim.expires
        if expires is not None and attempt.home.store_now() >= expires:
            return Ack.returned(attempt.lease)
        return None

    def open_body(self, attempt: Attempt) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """The function with its arguments. Sets the attempt's limits; raises ``Undecodable``."""
        spec, claim = attempt.spec, attempt.claim
        try:
            body = _body_of(claim.record)
        except Exception as error:
            raise Undecodable(f"job of task {claim.task!r}", str(error)) from error
        if body.v > RECORD_VERSION:
            raise Undecodable(
                f"job of task {claim.task!r}",
                f"it was written by a newer version of Mainspring (record {body.v}, known {RECORD_VERSION})",
                hint="Upgrade this worker, then retry the job.",
            )
        args, kwargs = spec.signature.decode_call(body.args)
        attempt.timeout = spec.timeout if body.timeout is None else body.timeout
        if body.retries is not None:
            attempt.retries = body.retries
        if spec.takes_context:
            args = (context_of(attempt), *args)
        return spec.fn, args, kwargs

    def begin(self, attempt: Attempt, slot: int) -> None:
        """The body starts now, in ``slot``."""
        spec, claim = attempt.spec, attempt.claim
        now = boottime()
        attempt.slot = slot
        attempt.started = now
        attempt.begun = True
        attempt.soft_at = now + spec.soft_timeout / 1e6 if spec.soft_timeout else NEVER
        deadline, later = 0.0, -1
        if attempt.timeout:
            deadline = now + attempt.timeout / 1e6
            later = self._retry_in(spec, attempt)
        attempt.next_at = min(attempt.soft_at, deadline or NEVER)
        flags = (claim.early and EARLY) | ((spec.strict or attempt.limited) and STRICT) | (claim.crashes and SUSPECT)
        self._board.start(slot, claim.id, claim.token, deadline, later, flags, now)
        current.set(attempt)

    def end(self, attempt: Attempt) -> None:
        """The body is over; its slot is free."""
        self._board.end(attempt.slot)

    def succeeded(self, attempt: Attempt, value: Any) -> Ack:
        """The ack for a body that returned ``value``: a hard limit that passed before outweighs it."""
        run_us = attempt.run_us(boottime())
        if attempt.ending is Ending.HARD:
            return verdict.timed_out(attempt, attempt.retries, run_us)
        if not attempt.spec.keep_result:
            return Ack.succeeded(attempt.lease, run_us=run_us)
        data, note = attempt.spec.signature.encode_result(value)
        error = None if note is None else verdict.encoded(note)
        return Ack.succeeded(attempt.lease, data, error=error, run_us=run_us)

    def failed(self, attempt: Attempt, error: BaseException) -> Ack:
        """The ack for a body that raised ``error``."""
        return verdict.judge(attempt, error, attempt.retries, attempt.run_us(boottime()))

    def _retry_in(self, spec: TaskSpec, attempt: Attempt) -> int:
        """What the supervisor needs if it must end this attempt: when the next one is, -1 for never.

        Drawn once for each (task, attempt number): on the hot path a backoff would cost more than the rest.
        The user's own functions are not asked about an end that will hardly ever come: the default stands in.
        """
        number = attempt.claim.attempt
        if number > attempt.retries or attempt.claim.early:
            return -1
        key = (spec.name, number)
        if key not in self._later:
            backoff = DEFAULT if spec.backoff.kind == "function" else spec.backoff
            plain = spec._replace(backoff=backoff, retry_if=None)
            error = HardTimeout(attempt.timeout / 1e6)
            self._later[key] = verdict.retry_in(plain, number, error) if verdict.may_retry(plain, error) else -1
        return self._later[key]
