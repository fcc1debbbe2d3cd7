"""What a dead worker's jobs are told: the acks of those known to be guilty, and the cause for the rest."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mainspring.errors import Fenced, HardTimeout, JobCancelled, MainspringError, WorkerCrashed
from mainspring.jobs.outcomes import Ack, Lease, Outcome
from mainspring.states import Reason
from mainspring.worker.lease.shared_state import EARLY, ORDERED, STUCK, TRIPS, UNTOLD, RunningBody
from mainspring.worker.supervise.kill_rules import KillCause, KillDecision


def verdict(
    sentence: KillDecision | None,
    jobs: Sequence[RunningBody],
    now: float,
    *,
    orderly: bool,
    worker: str = "",
    code: str = "",
) -> tuple[Outcome, list[Ack]]:
    """The cause of retirement and the acks to send with it.

    ``jobs`` is what the board showed after every process of the worker was gone. Only what is proven is
    charged: a job past its hard limit. A worker that died by itself is a crash: which of its jobs
    did it, the store finds out by running suspects one at a time. ``worker`` is its name,
    ``code`` the version of the code it ran.
    """
    guilty = _guilty(sentence, jobs)
    if sentence is None and not guilty and not orderly:
        return Outcome.CRASHED, begun(jobs, worker, code)
    acks = [_ended(job, now, code) for job in guilty]
    charged = {job.token for job in guilty}
    acks += [_begun(job, sentence, code) for job in jobs if job.flags & EARLY and job.token not in charged]
    return Outcome.INTERRUPTED, acks


def begun(jobs: Sequence[RunningBody], worker: str, code: str) -> list[Ack]:
    """The acks for the early jobs of a worker that crashed which the store would run again: it was not told."""
    untold = [job for job in jobs if job.flags & UNTOLD]
    if not untold:
        return []
    error, label = _record(WorkerCrashed(worker), code)
    return [Ack.lost_early(Lease(job.job, job.token), error, label=label) for job in untold]


def _guilty(sentence: KillDecision | None, jobs: Sequence[RunningBody]) -> list[RunningBody]:
    """Those of the sentence that were still there at the end, and the stuck ones of a worker that left by itself."""
    named = {job.token for job in sentence.guilty} if sentence else set()
    return [job for job in jobs if job.token in named or job.flags & STUCK]


def _ended(job: RunningBody, now: float, code: str) -> Ack:
    run_us = int((now - job.started) * 1e6) if job.started else 0
    lease = Lease(job.job, job.token)
    if job.flags & ORDERED:
        return Ack.cancelled(lease, _record(JobCancelled(), code)[0], run_us=run_us)
    limit = job.deadline - job.started if job.started else 0.0
    late = HardTimeout(round(limit, 3))
    error, label = _record(late, code)
    fault = f"{label}: {late.args[0]}" if job.flags & TRIPS else ""
    if job.retry_in < 0:
        return Ack.dead(lease, error, Reason.TIMED_OUT, label=label, timed_out=True, run_us=run_us, fault=fault)
    return Ack.failed(lease, error, retry_in=job.retry_in, timed_out=True, run_us=run_us, fault=fault)


def _begun(job: RunningBody, sentence: KillDecision | None, code: str) -> Ack:
    why = sentence.cause.value if sentence else "it stopped"
    fenced = sentence is not None and sentence.cause is KillCause.FENCED
    hint = "" if fenced else 'With ack="early" a job that began is never begun again.'
    error, label = _record(Fenced(f"the worker was ended: {why}", hint=hint), code)
    return Ack.lost_early(Lease(job.job, job.token), error, label=label)


def _record(error: MainspringError, code: str) -> tuple[bytes, str]:
    """The encoded error, and its type."""
    from mainspring.codec import describe_error  # heavy, and seldom needed in a supervisor

    record = describe_error(error, code=code)
    return msgspec.json.encode(record), record.type
