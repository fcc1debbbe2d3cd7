"""Runs one attempt and returns its ack. Does not use the store.

    refuse(attempt)             the ack for a claim that must not start any more
    prepare_call(attempt)       the function and its arguments, from the stored record; raises Undecodable
    begin(attempt, slot)        the body starts
    ack_success(attempt, value) the ack for a body that returned
    ack_failure(attempt, error) the ack for a body that raised, or that could not start

Encoding never raises: there is an ack for every possible end of a body.
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
from mainspring.worker.run.decode import decode_record

if TYPE_CHECKING:
    from mainspring.tasks.middleware import Middleware
    from mainspring.tasks.spec import TaskSpec


class Executor:
    """Used by both pools; safe to use from any thread.

    ``on_started`` is called for each body that starts, in the thread of the body, before the body starts.
    """

    def __init__(
        self,
        shared_state: SharedState,
        middleware: Sequence[Middleware] = (),
        on_started: Callable[[RunningAttempt], None] | None = None,
    ) -> None:
        self._shared_state = shared_state
        self._layers = wrappers.middleware_layers(middleware)
        self._on_started = on_started
        self._retry_delays: dict[tuple[str, int], int] = {}
        self.bulk = BulkExecutor(self, shared_state)
        """The executor for the calls of bulk tasks."""

    def refuse(self, attempt: RunningAttempt) -> Ack | None:
        """The ack for a claim whose body must not start: it was asked to end, or has expired since the claim."""
        if attempt.ending:
            return Ack.cancelled(attempt.lease) if attempt.ending is Ending.CANCEL else Ack.returned(attempt.lease)
        expires = attempt.claim.expires
        if expires is not None and attempt.environment.store_now() >= expires:
            return Ack.returned(attempt.lease)
        return None

    def prepare_call(self, attempt: RunningAttempt) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """The function and its arguments. Sets the attempt's time limit and retries; raises ``Undecodable``."""
        args, kwargs = self.decode_arguments(attempt)
        spec = attempt.spec
        if self._layers or spec.takes_context or spec.plan is not None:
            fn, first = self.wrap(attempt)
            return fn, (*first, *args), kwargs
        return spec.fn, args, kwargs

    def decode_arguments(self, attempt: RunningAttempt) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of the job. Sets the time limit and the retries of the attempt; raises ``Undecodable``."""
        spec = attempt.spec
        decoded = decode_record(spec, attempt.claim.record)
        attempt.body = body = decoded.body
        attempt.timeout = spec.timeout if body.timeout is None else body.timeout
        if body.retries is not None:
            attempt.retries = body.retries
        if body.schedule is not None:
            attempt.environment.schedule_runs[attempt.claim.id] = body.schedule
        return decoded.args, decoded.kwargs

    def wrap(self, attempt: RunningAttempt) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """The function with its middleware and dependencies, and the context as first argument if it takes one."""
        spec = attempt.spec
        first = (context_of(attempt),) if spec.takes_context else ()
        if self._layers or spec.plan is not None:
            return wrappers.wrap_function(spec, context_of(attempt), self._layers), first
        return spec.fn, first

    def begin(self, attempt: RunningAttempt, slot: int) -> None:
        """The body starts now, in ``slot``."""
        spec, claim = attempt.spec, attempt.claim
        now = boottime()
        attempt.slot = slot
        attempt.started = now
        attempt.begun = True
        attempt.soft_at = now + spec.soft_timeout / 1e6 if spec.soft_timeout else NEVER
        deadline, retry_in = 0.0, -1
        if attempt.timeout:
            deadline = now + attempt.timeout / 1e6
            retry_in = self._retry_after_kill(spec, attempt)
        attempt.check_at = min(attempt.soft_at, deadline or NEVER)
        flags = ((spec.strict or attempt.limited) and STRICT) | (claim.crashes and SUSPECT)
        if attempt.early:
            flags |= EARLY if claim.early else EARLY | UNTOLD
        if spec.breaker is not None and issubclass(HardTimeout, spec.breaker.trip_on or HardTimeout):
            flags |= TRIPS
        if slot >= 0:  # -1: the shared state has no line left for this item of a bulk call
            self._shared_state.start(slot, claim.id, claim.token, deadline, retry_in, flags, now)
        current.set(attempt)
        if self._on_started is not None:
            self._on_started(attempt)

    def end(self, attempt: RunningAttempt) -> None:
        """The body has ended; its slot is free."""
        self._shared_state.end(attempt.slot)

    def ack_success(self, attempt: RunningAttempt, value: Any) -> Ack:
        """The ack for a body that returned ``value``. If its hard limit passed before, the ack is a time-out."""
        run_us = attempt.run_us(boottime())
        if attempt.ending is Ending.HARD:
            return classify.ack_hard_timeout(attempt, attempt.retries, run_us)
        if type(value) in UNRUN:
            return self.ack_failure(attempt, classify.unrun_error(value))
        if not attempt.spec.keep_result:
            return Ack.succeeded(attempt.lease, run_us=run_us)
        data, note = attempt.spec.signature.encode_result(value, attempt.spec.result_limit)
        error = None if note is None else classify.encode_error(note, attempt.environment.code)
        return Ack.succeeded(attempt.lease, data, error=error, run_us=run_us)

    def ack_failure(self, attempt: RunningAttempt, error: BaseException) -> Ack:
        """The ack for a body that raised ``error``."""
        return classify.ack_error(attempt, error, attempt.retries, attempt.run_us(boottime()))

    def _retry_after_kill(self, spec: TaskSpec, attempt: RunningAttempt) -> int:
        """Microseconds until the next attempt if the supervisor must kill this one; -1 for no further attempt.

        Computed once for each task and attempt number: a backoff for every job would cost more than all else here.
        Backoff functions and ``retry_if`` of the user are not called for a kill that hardly ever happens: the default
        backoff is used.
        """
        number = attempt.claim.attempt
        if number > attempt.retries or attempt.early:
            return -1
        key = (spec.name, number)
        if key not in self._retry_delays:
            backoff = DEFAULT if spec.backoff.kind == "function" else spec.backoff
            plain = spec._replace(backoff=backoff, retry_if=None)
            error = HardTimeout(attempt.timeout / 1e6)
            allowed = classify.may_retry(plain, error)
            self._retry_delays[key] = classify.retry_delay(plain, number, error) if allowed else -1
        return self._retry_delays[key]
