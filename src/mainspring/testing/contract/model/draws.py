"""The next step of a random walk: jobs with all their options, and every kind of ack."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from hypothesis import strategies as st

from mainspring.jobs.outcomes import CRASH_DELAYS, Ack, Lease
from mainspring.jobs.records import Edge, FollowUp, NewJob, UniqueKey
from mainspring.limits.records import Bucket
from mainspring.states import Reason, State
from mainspring.worker.records import Want

SECOND = 1_000_000
ERROR = b'{"type":"ValueError"}'
TASK = "shop.tasks.send"
QUEUES = ("a", "b")
LANES = tuple(f"{queue}/any" for queue in QUEUES)
BUCKETS = (Bucket("gate"), Bucket("pair"), Bucket("key", "a"), Bucket("key", "b"))
SIZES = {"gate": 1, "pair": 2, "key": 1}
SETS = ((), BUCKETS[:1], BUCKETS[1:2], BUCKETS[:2], BUCKETS[2:3], BUCKETS[3:], BUCKETS[1:3])
KEYS = (b"a" * 16, b"b" * 16)
CRASHES = (CRASH_DELAYS, (0,), (SECOND, 30 * SECOND), ())
"""Delays after crashes."""
ENDS = (State.SUCCEEDED, State.DEAD, State.CANCELLED)

wants = st.lists(
    st.builds(Want, st.sampled_from((LANES[:1], LANES[1:], LANES)), st.integers(1, 4)),
    max_size=2,
)


def one_in(draw: st.DrawFn, n: int) -> bool:
    """Now and then."""
    return draw(st.integers(1, n)) == n


@st.composite
def acks(draw: st.DrawFn, lease: Lease) -> Ack:
    """Any way to report the end of an attempt."""
    delay = draw(st.sampled_from((0, SECOND, 30 * SECOND)))
    ways = (
        Ack.succeeded(lease, b"1"),
        Ack.failed(lease, ERROR, retry_in=delay),
        Ack.failed(lease, ERROR, retry_in=delay, timed_out=True),
        Ack.dead(lease, ERROR, Reason.RETRIES_EXHAUSTED),
        Ack.snoozed(lease, delay=delay),
        Ack.cancelled(lease),
        Ack.interrupted(lease),
        Ack.crashed(lease, ERROR, delays=draw(st.sampled_from(CRASHES)), out_of_memory=draw(st.booleans())),
        Ack.crashed(lease, ERROR, early=True),
        Ack.returned(lease),
        Ack.returned(lease, buckets=draw(st.sampled_from(SETS[1:]))),
    )
    return draw(st.sampled_from(ways))


def _id(number: int, nth: int = 0) -> bytes:
    """Ends in two zero bytes, as the id of a follow-up does."""
    return UUID(int=(number << 80) | (7 << 76) | (2 << 62) | (nth << 16)).bytes


def ends(lease: Lease) -> st.SearchStrategy[Ack]:
    """Ways to end for good, and one to come again."""
    return st.sampled_from((
        Ack.succeeded(lease, b"1"),
        Ack.dead(lease, ERROR, Reason.RETRIES_EXHAUSTED),
        Ack.cancelled(lease),
        Ack.failed(lease, ERROR, retry_in=0),
        Ack.crashed(lease, ERROR),
    ))  # fmt: skip


@st.composite
def uniques(draw: st.DrawFn) -> UniqueKey:
    return UniqueKey(
        draw(st.sampled_from(KEYS)),
        draw(st.sampled_from((0, 9 * SECOND))),
        draw(st.sampled_from(("return", "replace", "error"))),
    )


@st.composite
def follows(draw: st.DrawFn, number: int) -> FollowUp:
    end = draw(st.sampled_from(ENDS))
    return FollowUp(
        end,
        NewJob(
            id=_id(number, 1 + ENDS.index(end)),
            task=TASK,
            queue=draw(st.sampled_from(QUEUES)),
            priority=draw(st.sampled_from((0, 1))),
            delay=5 * SECOND if one_in(draw, 3) else 0,
            expires_in=12 * SECOND + 1 if one_in(draw, 4) else None,
            record=b"%d after" % number,
        ),
    )


@st.composite
def keyed_jobs(draw: st.DrawFn, number: int, parents: Sequence[bytes]) -> NewJob:
    """Plain but for keys and follow-up jobs."""
    chosen = [draw(st.sampled_from(parents))] if parents and one_in(draw, 5) else []
    return NewJob(
        id=_id(number),
        task=TASK,
        queue=draw(st.sampled_from(QUEUES)),
        delay=5 * SECOND if one_in(draw, 6) else 0,
        expires_in=12 * SECOND + 1 if one_in(draw, 6) else None,
        crashes=draw(st.sampled_from((3, 1))),
        early=one_in(draw, 6),
        record=b"%d" % number,
        after=tuple(Edge(id, draw(st.sampled_from(("fail", "ignore")))) for id in chosen),
        unique=draw(uniques()) if one_in(draw, 2) else None,
        follows=tuple(draw(st.lists(follows(number), min_size=1, max_size=2, unique_by=lambda each: each.on)))
        if one_in(draw, 2)
        else (),
    )


@st.composite
def new_jobs(draw: st.DrawFn, number: int, parents: Sequence[bytes]) -> NewJob:
    """Most jobs are plain in most ways."""
    chosen = draw(st.lists(st.sampled_from(parents), max_size=2, unique=True)) if parents and one_in(draw, 2) else []
    return NewJob(
        id=_id(number),
        task=TASK,
        queue=draw(st.sampled_from(QUEUES)),
        priority=draw(st.sampled_from((0, 1, -1))),
        delay=5 * SECOND if one_in(draw, 3) else 0,
        expires_in=12 * SECOND + 1 if one_in(draw, 4) else None,
        crashes=draw(st.sampled_from((3, 2, 1))),
        early=one_in(draw, 6),
        record=b"%d" % number,
        after=tuple(Edge(id, draw(st.sampled_from(("fail", "ignore")))) for id in chosen),
        buckets=draw(st.sampled_from(SETS)) if one_in(draw, 2) else (),
    )
