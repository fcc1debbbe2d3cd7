"""From what the scripts answer to records."""

from __future__ import annotations

from struct import Struct
from typing import Any

import msgspec

from mainspring.jobs.outcomes import Outcome
from mainspring.jobs.records import AttemptRow, JobRow
from mainspring.limits.records import Bucket
from mainspring.states import Reason, State
from mainspring.worker.records import Claim

from . import heads

_attempt = msgspec.msgpack.Decoder(tuple[int, int, int, str, int, int, Outcome, bool, bool | None])
_names = msgspec.msgpack.Decoder(tuple[str, ...])
_length = Struct(">I").unpack_from
_fixed, _FIXED_SIZE = heads.FIXED.unpack_from, heads.FIXED.size


def names(packed: bytes) -> tuple[str, ...]:
    return _names.decode(packed)


def claim(job: bytes, raw: bytes) -> Claim:
    """A claimed job; a record that lies apart stands at its end."""
    (
        _, ends, _, rest, _, priority, attempt, _, turn, _, crashes, _, epoch, _,
        enqueued, _, expires, record, more, token, worker,
    ) = _fixed(raw)  # fmt: skip
    start = _FIXED_SIZE + worker
    end = heads.end_of_names(raw, start)
    queue, task, lane = heads.names(raw[start:end])
    end += more
    return Claim(
        job, int(token), task, queue, lane, priority, attempt, epoch, crashes, rest & heads.IS_EARLY > 0, int(enqueued),
        heads.time(expires), raw[end : end + record] or raw[end:], int(turn), ends & heads.IS_OF_PART > 0,
    )  # fmt: skip


def job_row(row: list[Any]) -> JobRow:
    """From ``[id, job, record that lies apart, error, progress, result that lies apart]``."""
    job, raw, record, error, progress, result = row
    head = heads.read(raw)
    more = head.more
    return JobRow(
        id=job,
        state=head.state,
        reason=Reason(more.r) if more.r else None,
        task=head.task,
        queue=head.queue,
        lane=head.lane,
        priority=head.priority,
        attempt=head.attempt,
        epoch=head.epoch,
        crashes=head.crashes,
        crash_limit=head.crash_limit,
        early=head.rest & heads.IS_EARLY > 0,
        token=head.token,
        worker=head.worker,
        seq=head.seq,
        enqueued=head.enqueued,
        due=head.due,
        expires=head.expires,
        started=head.started,
        finished=head.ended,
        deps=head.deps,
        ordered=head.state is State.RUNNING and more.o is not None,
        progress=progress,
        result=head.result if result is None and head.rest & heads.HAS_RESULT else result,
        error=error,
        note=more.n,
        record=head.record if record is None else record,
        buckets=tuple(sorted((Bucket(*each) for each in more.b), key=lambda each: each.name)),
    )


def attempt_row(entry: bytes) -> AttemptRow:
    """From an entry in the list of a job's attempts."""
    (size,) = _length(entry)
    body = size + 4
    token, epoch, attempt, worker, started, ended, outcome, _, failed = _attempt.decode(entry[4:body])
    return AttemptRow(
        token=token,
        epoch=epoch,
        attempt=attempt,
        worker=worker,
        started=started,
        ended=ended,
        outcome=outcome,
        error=entry[body:] if failed else None,
    )
