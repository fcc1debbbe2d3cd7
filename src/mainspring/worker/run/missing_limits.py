"""Jobs that do not name the limits of their task are handed back with them before they start, and come through them.

Such a job was enqueued by name, by a program that does not have the task, or before the task got a limit. The lane of a
claim tells which limits its job names. Whichever key it has of a limit that it names is right: so a job is handed back
once for each limit at most, also when workers of several versions disagree on the limits of a task.

The same holds for the part that a schedule makes of its task's jobs. One that was tried before is left as it is: what
has started does not wait for others again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from mainspring.jobs.lanes import limit_label, limits_in
from mainspring.jobs.outcomes import Ack
from mainspring.limits.declare import BoundLimit, buckets_of
from mainspring.worker.run.decode import open_record

if TYPE_CHECKING:
    import asyncio

    from mainspring.limits.records import Bucket, Limit
    from mainspring.tasks.spec import TaskSpec
    from mainspring.worker.run.attempt import RunningAttempt

Done = Callable[["RunningAttempt", Ack], None]
Failed = Callable[["RunningAttempt", BaseException], Ack]
Declare = Callable[["tuple[Limit, ...]"], "asyncio.Future[None]"]


class MissingLimits:
    """Sifts out the claims of one worker that must not start. ``needed`` once a task of its has limits or a part."""

    def __init__(self, specs: Iterable[TaskSpec], done: Done, failed: Failed, declare: Declare) -> None:
        self._done = done
        self._failed = failed
        self._declare = declare
        self._declaring: dict[str, asyncio.Future[None]] = {}
        self._labels: dict[str, frozenset[str]] = {}
        """What lanes call the limits of a task, by task; of those that have limits or a part."""
        self.needed = False
        for spec in specs:
            self._know(spec)

    def learn(self, spec: TaskSpec) -> None:
        """A task that was declared after the worker had started: nobody has told the store of its limits."""
        self._know(spec)
        if spec.bounds:
            self._declaring[spec.name] = self._declare(spec.limits)

    def sift(self, attempts: Iterable[RunningAttempt]) -> list[RunningAttempt]:
        """Those that may start; the others are handed back."""
        good = []
        for attempt in attempts:
            labels = self._labels.get(attempt.spec.name)
            if labels is None or (labels <= limits_in(attempt.claim.lane) and not _lacks_part(attempt)):
                good.append(attempt)
            else:
                self._hand_back(attempt)
        return good

    def _know(self, spec: TaskSpec) -> None:
        if spec.bounds or spec.part:
            self._labels[spec.name] = frozenset(limit_label(bound.limit.name) for bound in spec.bounds)
            self.needed = True

    def _hand_back(self, attempt: RunningAttempt) -> None:
        attempt.over = True
        spec, known = attempt.spec, limits_in(attempt.claim.lane)
        lacking = [bound for bound in spec.bounds if limit_label(bound.limit.name) not in known]
        try:
            part = spec.part if _lacks_part(attempt) else ""
            ack = Ack.returned(attempt.lease, buckets=_buckets(attempt, lacking), part=part)
        except Exception as error:  # noqa: BLE001 - the user's own function, or arguments that cannot be read
            ack = self._failed(attempt, error)
        declaring = self._declaring.get(spec.name)
        if declaring is None or declaring.done():
            self._done(attempt, ack)
        else:
            declaring.add_done_callback(lambda _: self._done(attempt, ack))


def _lacks_part(attempt: RunningAttempt) -> bool:
    claim = attempt.claim
    first = claim.attempt == claim.epoch == 1 and not claim.crashes
    return bool(attempt.spec.part) and not claim.of_part and first


def _buckets(attempt: RunningAttempt, bounds: Iterable[BoundLimit]) -> tuple[Bucket, ...]:
    signature = attempt.spec.signature

    def arguments() -> dict[str, Any]:
        """By name: whoever wrote them may not have known the names."""
        opened = open_record(attempt.spec, attempt.claim.record)
        return signature.arguments(signature.encode_call(opened.args, opened.kwargs))

    return buckets_of(bounds, arguments, f"task {attempt.spec.name!r}")
