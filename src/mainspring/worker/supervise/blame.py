"""Which jobs of a dead worker are to blame: the acks of guilty jobs, and the outcome of all others. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from mainspring.errors import Fenced, HardTimeout, JobCancelled, MainspringError, WorkerCrashed
from mainspring.jobs.outcomes import Ack, Lease, Outcome
from mainspring.states import Reason
from mainspring.worker.lease.shared_state import EARLY, ORDERED, STUCK, TRIPS, UNTOLD, RunningBody
from mainspring.worker.supervise.kill_rules import KillCause, KillDecision


def decide_blame(
    decision: KillDecision | None,
    jobs: Sequence[RunningBody],
    now: float,
    *,
    orderly: bool,
    worker: str = "",
    code: str = "",
    places: Mapping[tuple[bytes, int], str] = MappingProxyType({}),
) -> tuple[Outcome, list[Ack]]:
    """The outcome for the jobs of a dead worker, and the acks to send with its retirement.

    ``jobs`` are the running bodies in the shared state after every process of the worker had ended. A job is charged
    only with proof: it ran past its hard limit. If the worker died by itself, that is a crash: the store finds out
    which of the jobs is guilty by running suspects one at a time. ``worker`` is the id of the worker, ``code`` the
    version of the code that it ran; ``places`` are the places of bodies that did not end, by job and token.
    """
    guilty = _find_guilty(decision, jobs)
    if decision is None and not guilty and not orderly:
        return Outcome.CRASHED, ack_early_jobs_of_crash(jobs, worker, code)
    acks = [_ack_guilty(job, now, code, places.get((job.job, job.token), "")) for job in guilty]
    charged = {(job.job, job.token) for job in guilty}
    acks += [
        _ack_early(job, decision, code) for job in jobs if job.flags & EARLY and (job.job, job.token) not in charged
    ]
    return Outcome.INTERRUPTED, acks


def ack_early_jobs_of_crash(jobs: Sequence[RunningBody], worker: str, code: str) -> list[Ack]:
    """The acks for jobs of a crashed worker that have ``ack="early"`` by their task alone. The store does not know
    this, and would run them again."""
    unknown = [job for job in jobs if job.flags & UNTOLD]
    if not unknown:
        return []
    error, label = _encode(WorkerCrashed(worker), code)
    return [Ack.lost_early(Lease(job.job, job.token), error, label=label) for job in unknown]


def _find_guilty(decision: KillDecision | None, jobs: Sequence[RunningBody]) -> list[RunningBody]:
    """The jobs of the kill decision that still ran at the end, and the stuck jobs of a worker that left by itself."""
    named = {(job.job, job.token) for job in decision.guilty} if decision else set()  # jobs of one turn share a token
    return [job for job in jobs if (job.job, job.token) in named or job.flags & STUCK]


def _ack_guilty(job: RunningBody, now: float, code: str, place: str) -> Ack:
    run_us = int((now - job.started) * 1e6) if job.started else 0
    lease = Lease(job.job, job.token)
    if job.flags & ORDERED:
        return Ack.cancelled(lease, _encode(JobCancelled(), code)[0], run_us=run_us)
    limit = job.deadline - job.started if job.started else 0.0
    timeout = HardTimeout(round(limit, 3), place)
    error, label = _encode(timeout, code)
    fault = f"{label}: {timeout.args[0]}" if job.flags & TRIPS else ""
    if job.retry_in < 0:
        return Ack.dead(lease, error, Reason.TIMED_OUT, label=label, timed_out=True, run_us=run_us, fault=fault)
    return Ack.failed(lease, error, retry_in=job.retry_in, timed_out=True, run_us=run_us, fault=fault)


def _ack_early(job: RunningBody, decision: KillDecision | None, code: str) -> Ack:
    why = decision.cause.value if decision else "it stopped"
    fenced = decision is not None and decision.cause is KillCause.FENCED
    hint = "" if fenced else 'With ack="early" a job that has begun is never run again.'
    error, label = _encode(Fenced(f"the worker was ended: {why}", hint=hint), code)
    return Ack.lost_early(Lease(job.job, job.token), error, label=label)


def _encode(error: MainspringError, code: str) -> tuple[bytes, str]:
    """The encoded error, and its type."""
    from mainspring.codec import describe_error  # heavy, and rarely needed in a supervisor

    record = describe_error(error, code=code)
    return msgspec.json.encode(record), record.type
