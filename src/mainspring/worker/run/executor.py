"""Runs one attempt and says what it came to. Knows no store: it returns acks.

    refuse(attempt)           the ack for a claim that must not start any more
    open_body(attempt)        what to call, from the stored record; Undecodable if it cannot be read
    begin(attempt, slot)      the body starts
    succeeded(attempt, value) the ack for a body that returned
    failed(attempt, error)    the ack for a body that raised, or that could not start

Encoding never raises: whatever a body does, there is an ack for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mainspring.common.backoff import DEFAULT
from mainspring.common.callables import UNRUN
from mainspring.common.clock import boottime
from mainspring.errors import HardTimeout
from mainspring.jobs.outcomes import Ack
from mainspring.worker.lease.shared_state import EARLY, STRICT, SUSPECT, TRIPS, UNTOLD, SharedState
from mainspring.worker.run import classify, wrappers
from mainspring.worker.run.attempt import NEVER, Ending, RunningAttempt
from mainspring.worker.run.bulk.executor import BulkExecutor
from mainspring.worker.run.context import context_of, current
from mainspring.worker.run.decode import open_record

if TYPE_CHECKING:
    from mainspring.tasks.middleware import Middleware
    from mainspring.tasks.spec import TaskSpec


class Executor:
    """What both pools need to run bodies; safe to use from any thread.

    ``started`` is told of each body that starts, in its own thread, before it does.
    """

    def __init__(
        self,
        board: SharedState,
        middleware: Sequence[Middleware] = (),
        started: Callable[[RunningAttempt], None] | None = None,
    ) -> None:
        self._board = board
        self._layers = wrappers.layers(middleware)
        self._started = started
        self._later: dict[tuple[str, int], int] = {}
        self.bulk = BulkExecutor(self, board)
        """The same for the calls of bulk tasks."""

    def refuse(self, attempt: RunningAttempt) -> Ack | None:
        """The ack for a claim whose body must not start: it was told to end, or it expired meanwhile."""
        if attempt.ending:
            return Ack.cancelled(attempt.lease) if attempt.ending is Ending.CANCEL else Ack.returned(attempt.lease)
        expires = attempt.claim.expires
        if expires is not None and attempt.home.store_now() >= expires:
            return Ack.returned(attempt.lease)
        return None

    def open_body(self, attempt: RunningAttempt) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """The function with its arguments. Sets the attempt's limits; raises ``Undecodable``."""
        args, kwargs = self.open_arguments(attempt)
        spec = attempt.spec
        if self._layers or spec.takes_context or spec.plan is not None:
            fn, first = self.around(attempt)
            return fn, (*first, *args), kwargs
        return spec.fn, args, kwargs

    def open_arguments(self, attempt: RunningAttempt) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of the job. Sets the attempt's limits; raises ``Undecodable``."""
        spec = attempt.spec
        opened = open_record(spec, attempt.claim.record)
        attempt.body = body = opened.body
        attempt.timeout = spec.timeout if body.timeout is None else body.timeout
        if body.retries is not None:
            attempt.retries = body.retries
        if body.schedule is not None:
            attempt.home.runs[attempt.claim.id] = body.schedule
        return opened.args, opened.kwargs

    def around(self, attempt: RunningAttempt) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """The function with everything around it, and the context if it takes one."""
        spec = attempt.spec
        first = (context_of(attempt),) if spec.takes_context else ()
        if self._layers or spec.plan is not None:
            return wrappers.body(spec, context_of(attempt), self._layers), first
        return spec.fn, first

    def begin(self, attempt: RunningAttempt, slot: int) -> None:
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
        flags = ((spec.strict or attempt.limited) and STRICT) | (claim.crashes and SUSPECT)
        if attempt.early:
            flags |= EARLY if claim.early else EARLY | UNTOLD
        if spec.breaker is not None and issubclass(HardTimeout, spec.breaker.trip_on or HardTimeout):
            flags |= TRIPS
        if slot >= 0:  # there may be none left on the board for an item of a bulk call
            self._board.start(slot, claim.id, claim.token, deadline, later, flags, now)
        current.set(attempt)
        if self._started is not None:
            self._started(attempt)

    def end(self, attempt: RunningAttempt) -> None:
        """The body is over; its slot is free."""
        self._board.end(attempt.slot)

    def succeeded(self, attempt: RunningAttempt, value: Any) -> Ack:
        """The ack for a body that returned ``value``: a hard limit that passed before outweighs it."""
        run_us = attempt.run_us(boottime())
        if attempt.ending is Ending.HARD:
            return classify.timed_out(attempt, attempt.retries, run_us)
        if type(value) in UNRUN:
            return self.failed(attempt, classify.never_ran(value))
        if not attempt.spec.keep_result:
            return Ack.succeeded(attempt.lease, run_us=run_us)
        data, note = attempt.spec.signature.encode_result(value, attempt.spec.result_limit)
        error = None if note is None else classify.encoded(note, attempt.home.code)
        return Ack.succeeded(attempt.lease, data, error=error, run_us=run_us)

    def failed(self, attempt: RunningAttempt, error: BaseException) -> Ack:
        """The ack for a body that raised ``error``."""
        return classify.judge(attempt, error, attempt.retries, attempt.run_us(boottime()))

    def _retry_in(self, spec: TaskSpec, attempt: RunningAttempt) -> int:
        """What the supervisor needs if it must end this attempt: when the next one is, -1 for never.

        Drawn once for each (task, attempt number): on the hot path a backoff would cost more than the rest.
        The user's own functions are not asked about an end that will hardly ever come: the default stands in.
        """
        number = attempt.claim.attempt
        if number > attempt.retries or attempt.early:
            return -1
        key = (spec.name, number)
        if key not in self._later:
            backoff = DEFAULT if spec.backoff.kind == "function" else spec.backoff
            plain = spec._replace(backoff=backoff, retry_if=None)
            error = HardTimeout(attempt.timeout / 1e6)
            self._later[key] = classify.retry_in(plain, number, error) if classify.may_retry(plain, error) else -1
        return self._later[key]
