"""Runs one attempt and returns its ack. Does not use the store.

    refuse(attempt)             the ack for a claim that must not start any more
    prepare_call(attempt)       the function and its arguments, from the stored record; raises Undecodable
    seconds_until_start(...)    how long a body with rate limits waits: see rate_slots.py
    begin(attempt, slot)        the body starts
    ack_success(attempt, value) the ack for a body that returned
    ack_failure(attempt, error) the ack for a body that raised, or that could not start
    end(attempt)                the body has ended

``run_async`` does all of this for an ``async def`` task. The threads of ``slots/thread_slots.py`` take the steps one by
one, because an exception can be thrown into them between two steps.

Encoding never raises: there is an ack for every possible end of a body. A result that is too large is dropped, and the
job succeeds; a result that cannot be stored for another reason makes the job dead. ``decode_record``, at the end of
this file, decodes the stored record of a job into the arguments of its call.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from mainspring.codec import dumps, loads
from mainspring.common.backoff import DEFAULT
from mainspring.common.callables import UNRUN
from mainspring.common.clock import boottime
from mainspring.errors import HardTimeout, Undecodable
from mainspring.flows.results import ReplacedBy
from mainspring.jobs.outcomes import Ack
from mainspring.jobs.records import RECORD_VERSION, JobBody
from mainspring.worker.lease.shared_state import EARLY, ON_LOOP, STRICT, SUSPECT, TRIPS, UNTOLD, SharedState
from mainspring.worker.run import classify, wrappers
from mainspring.worker.run.attempt import NEVER, Ending, RunningAttempt
from mainspring.worker.run.bulk.executor import BulkExecutor
from mainspring.worker.run.context import context_of, current, warn_of_unawaited
from mainspring.worker.run.flows.inputs import add_inputs, describe_misfit
from mainspring.worker.run.flows.replaced import areplace, is_flow
from mainspring.worker.run.forked import end_forked_child, refuse_forked_child
from mainspring.worker.run.timeouts import AttemptTimeouts, WithSoftTimeout
from mainspring.worker.secret_arguments import remember_declared

if TYPE_CHECKING:
    from mainspring.tasks.middleware import Middleware
    from mainspring.tasks.spec import TaskSpec
    from mainspring.worker.run.rate_slots import RateSlots

LOOK_AGAIN = 0.05
"""Seconds after which a body that waits for its rate limit looks whether it was asked to end."""

_decode_body = msgspec.json.Decoder(JobBody).decode


class Executor:
    """Used by both pools; safe to use from any thread.

    ``on_started`` is called for each body that starts, in the thread of the body, before the body starts.
    """

    in_child = False
    """Whether this process is a pool child, whose bodies do not run on the event loop of a worker."""

    def __init__(
        self,
        shared_state: SharedState,
        middleware: Sequence[Middleware] = (),
        on_started: Callable[[RunningAttempt], None] | None = None,
        rate_slots: RateSlots | None = None,
    ) -> None:
        self._shared_state = shared_state
        self._layers = wrappers.middleware_layers(middleware)
        self._on_started = on_started
        self._rate_slots = rate_slots
        self._retry_delays: dict[tuple[str, int], int] = {}
        self.bulk = BulkExecutor(self, shared_state)
        """The executor for the calls of bulk tasks."""

    def refuse(self, attempt: RunningAttempt) -> Ack | None:
        """The ack for a claim whose body must not start: it was asked to end, or has expired since the claim."""
        refuse_forked_child(attempt)
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
        current.set(attempt)  # before any code of the user runs: an upgrade function may log and raise too
        decoded = decode_record(spec, attempt.claim.record, attempt.inputs)
        attempt.body = body = decoded.body
        attempt.timeout = spec.timeout
        if body.options:
            self._apply_own_options(attempt, body)
        if body.schedule is not None:
            attempt.environment.schedule_runs[attempt.claim.id] = body.schedule
        return decoded.args, decoded.kwargs

    def read_own_options(self, attempt: RunningAttempt) -> None:
        """The time limit, the retries and the schedule of an attempt whose body runs in a child. What cannot be read
        is reported by the child."""
        attempt.timeout = attempt.spec.timeout
        with contextlib.suppress(Exception):
            attempt.body = body = _decode_body(attempt.claim.record)
            if body.options:
                self._apply_own_options(attempt, body)
            if body.schedule is not None:
                attempt.environment.schedule_runs[attempt.claim.id] = body.schedule

    def _apply_own_options(self, attempt: RunningAttempt, body: JobBody) -> None:
        """The time limit and the retries that were given for this job."""
        if body.timeout is not None:
            attempt.timeout = body.timeout
        if body.retries is not None:
            attempt.retries = body.retries

    def wrap(self, attempt: RunningAttempt) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """The function with its middleware and dependencies, and the context as first argument if it takes one."""
        spec = attempt.spec
        first = (context_of(attempt),) if spec.takes_context else ()
        if self._layers or spec.plan is not None:
            return wrappers.wrap_function(spec, context_of(attempt), self._layers), first
        return spec.fn, first

    def seconds_until_start(self, attempt: RunningAttempt) -> float:
        """How long the body must wait because of its rate limits. 0.0 means that it starts now, and is recorded."""
        if not attempt.limited or self._rate_slots is None or attempt.ending:
            return 0.0
        return self._rate_slots.seconds_until_start(attempt.jobs)

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
        if spec.kind == "async" and not self.in_child:
            flags |= ON_LOOP
        if slot >= 0:  # -1: the shared state has no line left for this item of a bulk call
            self._shared_state.start(slot, claim.id, claim.token, deadline, retry_in, flags, now)
        if self._on_started is not None:
            self._on_started(attempt)

    def note_started(self, attempt: RunningAttempt) -> None:
        """A body has started in a child process."""
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
        if isinstance(value, ReplacedBy):
            return Ack.succeeded(attempt.lease, value.encode(), run_us=run_us)
        if type(value) in UNRUN:
            return classify.ack_unstored_result(attempt, classify.unrun_error(value), run_us)
        unraised = classify.unraised_error(value) if isinstance(value, (BaseException, type)) else None
        if not attempt.spec.keep_result:
            if unraised is not None:
                return classify.ack_unstored_result(attempt, unraised, run_us)
            return Ack.succeeded(attempt.lease, run_us=run_us)
        data, note = attempt.spec.signature.encode_result(value, attempt.spec.result_limit)
        if note is not None:
            return classify.ack_unstored_result(attempt, unraised or note, run_us)
        return Ack.succeeded(attempt.lease, data, run_us=run_us)

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


async def run_async(
    executor: Executor | BulkExecutor,
    attempt: RunningAttempt,
    slot: int,
    timeouts: AttemptTimeouts,
    on_end: Callable[[RunningAttempt, int, Ack], None],
) -> None:
    """Run the attempt of an ``async def`` task in ``slot``, from the stored record to its ack, and pass both on.

    It calls ``on_end`` instead of returning the ack, so that a body has one coroutine less around it.
    """
    try:
        ack = executor.refuse(attempt)
        if ack is None:
            fn, args, kwargs = executor.prepare_call(attempt)
            if attempt.limited:
                while (pause := executor.seconds_until_start(attempt)) > 0:  # noqa: ASYNC110 - it waits for a time
                    await asyncio.sleep(min(pause, LOOK_AGAIN))
            executor.begin(attempt, slot)
            if attempt.check_at < timeouts.check_at:
                timeouts.arm(attempt.check_at)
            if attempt.spec.soft_timeout:
                value = await WithSoftTimeout(attempt, fn(*args, **kwargs))
            else:
                value = await fn(*args, **kwargs)
            end_forked_child(attempt)
            if attempt.context is not None:
                warn_of_unawaited(attempt)
            if value is not None and is_flow(value):
                value = await areplace(attempt, value)
            ack = executor.ack_success(attempt, value)
    except BaseException as error:  # SystemExit in a handler ends its attempt, not the worker
        if timeouts.loop.is_closed():  # the interpreter discards this coroutine; there is no loop to report to
            raise
        end_forked_child(attempt, error)
        ack = executor.ack_failure(attempt, error)
    attempt.finished = True
    if attempt.begun:
        executor.end(attempt)
    on_end(attempt, slot, ack)


class DecodedCall(msgspec.Struct, frozen=True):
    """The arguments of a call, and the record they came from."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    body: JobBody


def decode_record(spec: TaskSpec, record: bytes, inputs: Mapping[str, bytes] | None = None) -> DecodedCall:
    """The call as today's code of the task understands it. Raises ``Undecodable``, which says what is wrong.

    ``inputs``: arguments that are results of other jobs, as JSON. An argument whose job did not succeed is not among
    them: it has its default, or is None.

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
    missing: list[str] = []
    if inputs is not None:
        missing = [name for name in body.inputs if name not in inputs and name not in spec.signature.optional]
        body = msgspec.structs.replace(body, args=msgspec.Raw(add_inputs(body.args, inputs, missing)))
    if body.hide or spec.hide:
        remember_declared(spec, body)
    try:
        # A task with an upgrade function decides itself what an old `true` means where a number is declared now.
        args, kwargs = spec.signature.decode_call(body.args, as_numbers=spec.upgrade is None)
    except Undecodable as error:
        if spec.upgrade is None:
            if inputs is not None:
                raise describe_misfit(error, inputs, missing) from error.__cause__
            raise
        args, kwargs = _upgrade_arguments(spec, spec.upgrade, body)
    return DecodedCall(args, kwargs, body)


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
