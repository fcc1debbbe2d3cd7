"""Histories of flows, good and bad, for the checker: j and i are members of the join g, and c runs after it."""

from __future__ import annotations

from msgspec.structs import replace

from mainspring.states import Action, Reason, State
from mainspring.testing.history import FlowEdge, History, JobEvent, JoinCount
from tests.unit.histories import claim, done, failed, step

A, S, R = Action, State, Reason


def end(seq: int, at: float, state: State = S.SUCCEEDED, reason: Reason | None = None, job: str = "g") -> JobEvent:
    """A blocked job ends because of its parents or members."""
    return step(seq, at, A.UNBLOCK, state, job=job, reason=reason)


def freed(seq: int, at: float, job: str = "c") -> JobEvent:
    return step(seq, at, A.UNBLOCK, S.READY, job=job)


J = (step(0, 0, A.ENQUEUE, S.READY), claim(1, 1, 10), done(2, 2, 10))
I = (  # noqa: E741 - the second member
    step(3, 0, A.ENQUEUE, S.READY, job="i"), claim(4, 1, 11, "w2", job="i"), done(5, 3, 11, "w2", job="i")
)  # fmt: skip
I_DEAD = (*I[:2], failed(5, 3, 11, "w2", state=S.DEAD, reason=R.RETRIES_EXHAUSTED, job="i"))
WAITS = step(6, 0, A.ENQUEUE, S.BLOCKED, job="g")
BEHIND = step(8, 0, A.ENQUEUE, S.BLOCKED, job="c")
C = (BEHIND, freed(9, 4), claim(10, 4, 12, job="c"), done(11, 5, 12, job="c"))

MEMBERS = (FlowEdge(parent="j", child="g", policy="member"), FlowEdge(parent="i", child="g", policy="member"))
G = JoinCount(job="g", total=2, succeeded=2)
G_BAD = JoinCount(job="g", total=2, succeeded=1, dead=1)


def flow(*events: JobEvent, join: JoinCount = G, policy: str = "fail", quiet: bool = True) -> History:
    """The chord, with the callback behind it."""
    edges = (*MEMBERS, FlowEdge(parent="g", child="c", policy=policy))
    return History(events=events, edges=edges, joins=(join,), quiet=quiet)


GRAPHS_GOOD = {
    "a chord": flow(*J, *I, WAITS, end(7, 3), *C),
    "a chord that failed": flow(
        *J,
        *I_DEAD,
        WAITS,
        end(7, 3, S.CANCELLED, R.PARENT),
        BEHIND,
        end(9, 3, S.CANCELLED, R.PARENT, job="c"),
        join=G_BAD,
    ),
    "a callback for failures": flow(
        *J, *I_DEAD, WAITS, end(7, 3, S.CANCELLED, R.PARENT), *C, join=G_BAD, policy="failed"
    ),
    "a callback for the first death": flow(
        *J, *I_DEAD, WAITS, end(7, 9, S.CANCELLED, R.PARENT), *C, join=G_BAD, policy="dead"
    ),
    "a batch that is open": flow(*J, *I, WAITS, BEHIND, join=replace(G, open=True), quiet=False),
    "a join of nothing": History(events=(replace(WAITS, seq=0), end(1, 0)), joins=(JoinCount(job="g"),)),
    "a flow that was cancelled": flow(
        *J,
        *I[:2],
        step(7, 2, A.CANCEL, S.CANCELLED, job="g", reason=R.BY_USER),
        WAITS,
        BEHIND,
        end(9, 2, S.CANCELLED, R.PARENT, job="c"),
        join=replace(G, succeeded=1),
        quiet=False,
    ),
    "a child of a dead job that may be retried": History(
        events=(*I_DEAD, BEHIND), edges=(FlowEdge(parent="i", child="c", policy="wait"),)
    ),
}

GRAPHS_BAD = {
    "I30": [
        flow(*J, *I, WAITS, end(7, 3), *C, join=replace(G, total=3, succeeded=3)),
        flow(*J, *I, WAITS, end(7, 3), *C, join=replace(G, succeeded=3)),
        flow(*J, *I, WAITS, end(7, 3), *C, join=replace(G, succeeded=1)),
        flow(*J, *I_DEAD, WAITS, end(7, 3), *C, join=G),
        flow(*J, *I, WAITS, BEHIND, join=replace(G, open=True, succeeded=1), quiet=False),
    ],
    "I31": [
        flow(*J, *I, WAITS, end(7, 2), *C, join=G),
        flow(*J, *I[:2], WAITS, end(7, 2), *C, join=replace(G, succeeded=1), quiet=False),
        flow(*J, *I, WAITS, end(7, 3), end(8, 4), *C),
        flow(*J, *I, WAITS, freed(7, 3, job="g"), claim(8, 3, 13, job="g"), done(9, 4, 13, job="g"), *C),
        flow(*J, *I, WAITS, BEHIND),
    ],
    "I32": [
        flow(*J, *I, WAITS, end(7, 3), BEHIND, freed(9, 2), claim(10, 2, 12, job="c"), done(11, 5, 12, job="c")),
        flow(*J, *I, WAITS, end(7, 3), BEHIND),
        flow(*J, *I_DEAD, WAITS, end(7, 3, S.CANCELLED, R.PARENT), *C, join=G_BAD),
        flow(*J, *I, WAITS, end(7, 3), *C, policy="failed"),
        flow(*J, *I, WAITS, end(7, 3), *C, policy="dead"),
        flow(*J, *I_DEAD, WAITS, end(7, 3, S.CANCELLED, R.PARENT), BEHIND, join=G_BAD),
    ],
}
