"""Hand-made histories of flow control: good runs, and for each of its invariants several that break it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from mainspring.jobs.outcomes import Outcome
from mainspring.states import Action, Reason, State
from mainspring.testing.history import Bounds, History, JobEvent, LimitBound, Opening, Pause, Promise, Request
from tests.unit.histories import NEW, PLAIN, TWICE, claim, done, failed, h, step, taken

A, S, R = Action, State, Reason

SECOND = (
    step(10, 0.5, A.ENQUEUE, S.READY, job="i"), claim(11, 1.5, 20, "w2", job="i"), done(12, 2.5, 20, "w2", job="i")
)  # fmt: skip
NARROW = {"j": Promise(buckets=("b",)), "i": Promise(buckets=("b",))}


def later(events: tuple[JobEvent, ...], seconds: float) -> tuple[JobEvent, ...]:
    return tuple(replace(event, at=event.at + seconds) for event in events)


def renamed(events: tuple[JobEvent, ...], job: str) -> tuple[JobEvent, ...]:
    return tuple(replace(event, job=job) for event in events)


# ---- breakers: j fails at 2 and opens it until 12, i is the first probe ---------------------------------------------

OPENED = Opening(breaker="b", began=2, until=12)
BROKEN = (NEW, claim(1, 1, 10), failed(2, 2, 10, state=S.DEAD, reason=R.RETRIES_EXHAUSTED))
BEHIND = {job: Promise(breakers=("b",)) for job in "jik"}


def probe(job: str, at: float, ended: float | None, *, good: bool = True) -> tuple[JobEvent, ...]:
    """One that waited since the beginning and was claimed then."""
    new, took = step(20, 0, A.ENQUEUE, S.READY, job=job), claim(21, at, 20, job=job)
    if ended is None:
        return new, took
    end = done(22, ended, 20, job=job) if good else failed(22, ended, 20, job=job, state=S.DEAD, reason=R.BY_USER)
    return new, took, end


def behind(*events: JobEvent, openings: tuple[Opening, ...] = (OPENED,)) -> History:
    return h(*BROKEN, *events, promises=BEHIND, openings=openings, quiet=False)


# ---- requests: j is asked for at 0, i later -------------------------------------------------------------------------

ASK = Request(key="k", print="p", made="j", answer="ok", job="j", ended=0.1, keep=100)
AGAIN = replace(ASK, made="i", began=30, ended=30.1)
OTHER = replace(AGAIN, print="q", answer="refused", job="")
LATER = later(SECOND, 30)


# ---- lines: jobs of one line, each as (priority, enqueued, claimed, worker) -----------------------------------------


def line(*rows: tuple[int, float, float, str], stack: bool = False, **bounds: Any) -> History:
    events, promises = list[JobEvent](), {}
    for n, (priority, enqueued, claimed, worker) in enumerate(rows):
        events += [
            step(3 * n, enqueued, A.ENQUEUE, S.READY, job=f"j{n}"), claim(3 * n + 1, claimed, 1, worker, job=f"j{n}"),
            done(3 * n + 2, claimed + 1, 1, worker, job=f"j{n}"),
        ]  # fmt: skip
        promises[f"j{n}"] = Promise(line="l", stack=stack, priority=priority)
    return h(*events, promises=promises, bounds=Bounds(**{"slots": 2, **bounds}))


def urgent(n: int, since: float = 1.0) -> list[tuple[int, float, float, str]]:
    """So many more urgent ones, each claimed as it came."""
    return [(5, since + x, since + x + 0.5, "w1") for x in range(n)]


FLOW_GOOD = {
    "one after the other in a limit, with one key, beside a pause": h(
        *PLAIN, *later(SECOND, 1.6),
        promises={job: replace(promise, key="k") for job, promise in NARROW.items()},
        limits={"b": LimitBound(size=1), "r": LimitBound(size=2, per=10)},
        pauses=(Pause(queue="default", began=2.5, ended=3), Pause(queue="other", began=0, ended=9)),
    ),
    "a breaker that opened, was probed and closed": behind(
        *probe("i", 12, 13), *probe("k", 13, 14), openings=(OPENED, replace(OPENED, breaker="other", began=0, until=99))
    ),
    "a probe that was taken back leaves its place": behind(
        step(20, 0, A.ENQUEUE, S.READY, job="i"), claim(21, 12, 20, job="i"),
        taken(22, 30, 20, job="i", outcome=Outcome.INTERRUPTED), *probe("k", 30, 31),
    ),
    "a breaker that opened again": behind(
        *probe("i", 12, 13, good=False), *probe("k", 15, 16), openings=(OPENED, replace(OPENED, began=13, until=15))
    ),
    "a breaker that somebody opened for less": behind(
        *probe("i", 6, 7), openings=(OPENED, replace(OPENED, began=3, until=6))
    ),
    "a probe that runs on while somebody opens it anew": behind(
        *probe("i", 12, 20), *probe("k", 16, 17), openings=(OPENED, replace(OPENED, began=13, until=15))
    ),
    "one that was opened by hand and seen by nobody": replace(
        behind(*probe("i", 12, 20), *probe("k", 16, 17)), trips={OPENED.breaker: (13.0,)}
    ),
    "two probes where two may": behind(
        *probe("i", 12, 15), *probe("k", 13, 14), openings=(replace(OPENED, probes=2),)
    ),
    "a queue that was disabled for a while": h(
        *PLAIN, *LATER, pauses=(Pause(queue="default", began=2.1, ended=31.4, disabled=True),)
    ),
    "a request, its repeat, and another one in its name": h(*PLAIN, requests=(ASK, AGAIN, OTHER)),
    "a request again after it was kept": h(*PLAIN, *LATER, requests=(replace(ASK, keep=20), replace(AGAIN, job="i"))),
    "another request after the first has failed": h(
        *BROKEN, *LATER, requests=(ASK, replace(OTHER, answer="ok", job="i"))
    ),
    "a request that nobody answered": h(requests=(replace(ASK, answer="unknown", job=""),)),
    "a line, in which two claims crossed": line((0, 0, 3, "w1"), (0, 1, 2, "w2"), (0, 1.5, 2.5, "w2"), (0, 2, 4, "w1")),
    "a stack": line((0, 0, 9, "w1"), (0, 1, 5, "w1"), (0, 2, 4, "w1"), (0, 3, 3.5, "w1"), stack=True),
    "an old one among more urgent ones": line((0, 0, 70, "w1"), *urgent(63)),
    "one that is passed for five hours": line((0, 0, 17_999, "w1"), *urgent(9, since=17_980)),
}  # fmt: skip

FLOW_BAD: dict[str, list[History]] = {
    "I20": [
        h(*PLAIN, *SECOND, promises={"j": Promise(key="k"), "i": Promise(key="k")}),
        h(NEW, *SECOND, promises={"j": Promise(key="k"), "i": Promise(key="k")}),
        h(*TWICE, *SECOND, promises={"j": Promise(key="k"), "i": Promise(key="k")}),
    ],
    "I21": [
        h(*PLAIN, *LATER, requests=(ASK, replace(AGAIN, job="i"))),
        h(*PLAIN, *LATER, requests=(ASK, replace(OTHER, answer="ok", job="i"))),
        h(*PLAIN, requests=(ASK, replace(OTHER, answer="ok", job="j"))),
        h(*PLAIN, requests=(ASK, replace(OTHER, print="p"))),
        h(*PLAIN, requests=(ASK, replace(OTHER, began=300, ended=300))),
        h(*PLAIN, *LATER, requests=(replace(ASK, keep=20), OTHER)),
        h(*PLAIN, requests=(replace(ASK, keep=20), AGAIN)),
        h(requests=(ASK,)),
    ],
    "I22": [
        h(*PLAIN, *SECOND, promises=NARROW, limits={"b": LimitBound(size=1)}),
        h(NEW, claim(1, 1, 10), *SECOND, promises=NARROW, limits={"b": LimitBound(size=1)}),
        h(*TWICE, *later(SECOND, 17.5), promises=NARROW, limits={"b": LimitBound(size=1)}),
        h(*TWICE, *later(SECOND, 19), promises=NARROW, limits={"b": LimitBound(size=1)}),
    ],
    "I23": [
        h(*PLAIN, *later(SECOND, 9), promises=NARROW, limits={"b": LimitBound(size=1, per=10)}),
        h(*TWICE, promises=NARROW, limits={"b": LimitBound(size=1, per=20)}),
        h(*PLAIN, *SECOND, promises=NARROW, limits={"b": LimitBound(size=1, per=0.6)}),
    ],
    "I24": [
        behind(*probe("i", 2.1, 3)),
        behind(*probe("i", 11.9, 13)),
        behind(*probe("i", 12, 15), *probe("k", 13, 14)),
        behind(*probe("i", 12, None), *probe("k", 13, None)),
        behind(*probe("i", 13.5, 14), openings=(OPENED, replace(OPENED, began=13, until=15))),
        behind(*probe("i", 4, 5), openings=(replace(OPENED, began=2.5), OPENED, replace(OPENED, began=9, until=15))),
        h(*PLAIN, pauses=(Pause(queue="default", began=0.5, ended=5, disabled=True),)),
    ],
    "I25": [
        h(*PLAIN, pauses=(Pause(queue="default", began=0.5, ended=5),)),
        h(*TWICE, pauses=(Pause(queue="default", began=18.5, ended=30),)),
        h(*PLAIN, promises={"j": Promise(queue="q")}, pauses=(Pause(queue="q", began=0.9, ended=1.1),)),
    ],
    "I26": [
        line((0, 0, 9, "w1"), *[(0, 1 + n, 1.5 + n, "w1") for n in range(3)]),
        line((0, 0, 9, "w1"), *[(0, 1 + n, 1.5 + n, f"w{n % 2}") for n in range(5)]),
        line((0, 8, 12, "w1"), *[(0, n, 9.0 + n / 2, "w1") for n in range(3)], stack=True),
        line((0, 0, 20_000, "w1"), *urgent(3, since=18_001)),
        line((5, 10, 20, "w1"), *[(0, n, 11.0 + n, "w1") for n in range(3)]),
    ],
}  # fmt: skip
