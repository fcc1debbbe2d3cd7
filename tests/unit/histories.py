"""Hand-made histories: good runs, and for each invariant several that break it; of flow control next door."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from mainspring.jobs.outcomes import Outcome
from mainspring.states import Action, Reason, State
from mainspring.testing.history import (
    BodyRun,
    Bounds,
    ClientCall,
    Disturbance,
    History,
    JobEvent,
    Promise,
    Sample,
    Snapshot,
)

A, S, O, R = Action, State, Outcome, Reason  # noqa: E741 - histories are read by their columns


def step(seq: int, at: float, action: Action, state: State | None, job: str = "j", **more: Any) -> JobEvent:
    return JobEvent(seq=seq, at=at, action=action, job=job, state=state, **more)


def claim(seq: int, at: float, token: int, worker: str = "w1", attempt: int = 1, **more: Any) -> JobEvent:
    return step(seq, at, A.CLAIM, S.RUNNING, token=token, worker=worker, attempt=attempt, **more)


def done(seq: int, at: float, token: int, worker: str = "w1", **more: Any) -> JobEvent:
    return step(
        seq, at, A.ACK_SUCCEEDED, S.SUCCEEDED, token=token, worker=worker, outcome=O.SUCCEEDED, **more
    )  # fmt: skip


def failed(seq: int, at: float, token: int, worker: str = "w1", state: State = S.RETRYING, **more: Any) -> JobEvent:
    return step(seq, at, A.ACK_FAILED, state, token=token, worker=worker, outcome=O.FAILED, **more)


def taken(seq: int, at: float, token: int, worker: str = "w1", outcome: Outcome = O.LOST, **more: Any) -> JobEvent:
    return step(seq, at, A.RESCUE, more.pop("state", S.READY), token=token, worker=worker, outcome=outcome, **more)


NEW = step(0, 0, A.ENQUEUE, S.READY)
ASKED = ClientCall(verb="enqueue", jobs=("j",), answer="ok")
CANCEL = ClientCall(verb="cancel", jobs=("j",), answer="ok", began=3, ended=3)
SILENT = Disturbance(what="stopped", worker="w1", began=2, ended=40)
KILLED = Disturbance(what="killed", worker="w1", began=2, ended=2)
PLAIN = (NEW, claim(1, 1, 10), done(2, 2, 10))
TWICE = (NEW, claim(1, 1, 10), taken(2, 18, 10), claim(3, 19, 11, "w2"), done(4, 21, 11, "w2"))
CANCELLED = step(2, 4, A.ACK_CANCELLED, S.CANCELLED, token=10, worker="w1", outcome=O.CANCELLED, reason=R.BY_USER)


def h(*events: JobEvent, **more: Any) -> History:
    return History(events=events, **more)


GOOD = {
    "nothing": History(),
    "a plain success": h(
        *PLAIN,
        calls=(replace(ASKED, digests=("d",)),),
        runs=(BodyRun(job="j", token=10, began=1, ended=2, digest="d"),),
        listed=(("j", S.SUCCEEDED),),
        snapshots=(Snapshot(at=1.5, counts={S.RUNNING: 1}), Snapshot(at=9, counts={S.SUCCEEDED: 1})),
        durability="postgres:full", asked="full",
    ),
    "a count whose answer was long on its way": h(
        *PLAIN, snapshots=(Snapshot(asked=0.5, at=5, counts={}), Snapshot(at=9, counts={S.SUCCEEDED: 1})),
    ),
    "a count after the store was away": h(
        *PLAIN, snapshots=(Snapshot(at=5, counts={}), Snapshot(at=9, counts={S.SUCCEEDED: 1})),
        troubles=(Disturbance(what="store_away", began=0.5, ended=4.9),),
    ),
    "a failure, then success": h(
        NEW, claim(1, 1, 10), failed(2, 2, 10), step(3, 3, A.PROMOTE, S.READY),
        claim(4, 3, 11, attempt=2), done(5, 4, 11, wrote=11),
        promises={"j": Promise(retries=1, backoff=1, expires=1.5, not_before=1)},
    ),
    "stopped, lost, done by another, the first body going on": h(
        NEW, claim(1, 1, 10), taken(2, 18, 10), claim(3, 19, 11, "w2"), done(4, 21, 11, "w2", wrote=11),
        troubles=(SILENT,),
        runs=(BodyRun(job="j", token=10, began=1, ended=20), BodyRun(job="j", token=11, began=19, ended=21)),
        bounds=Bounds(fence=5),
    ),
    "its child process was killed, done by the same worker": h(
        NEW, claim(1, 1, 10), taken(2, 3, 10, outcome=O.CRASHED), claim(3, 4, 11), done(4, 5, 11),
        troubles=(replace(KILLED, what="child_killed"),),
    ),
    "out of memory": h(
        NEW, claim(1, 1, 10), taken(2, 3, 10, outcome=O.CRASHED, state=S.DEAD, reason=R.OUT_OF_MEMORY),
        promises={"j": Promise(crashes=1)}, troubles=(replace(KILLED, what="child_killed"),),
    ),
    "killed, crashed, done by another": h(
        NEW, claim(1, 1, 10), taken(2, 3, 10, outcome=O.CRASHED), claim(3, 4, 11, "w2"), done(4, 5, 11, "w2"),
        troubles=(KILLED,), runs=(BodyRun(job="j", token=10, began=1), BodyRun(job="j", token=11, began=4, ended=5)),
    ),
    "killed while the store was away": h(
        NEW, claim(1, 1, 10), taken(2, 50, 10), claim(3, 51, 11, "w2"), done(4, 52, 11, "w2"),
        troubles=(KILLED, Disturbance(what="store_away", began=3, ended=20)),
    ),
    "cancelled while it ran": h(NEW, claim(1, 1, 10), CANCELLED, calls=(ASKED, CANCEL)),
    "cancelled too late": h(*PLAIN, calls=(ASKED, replace(CANCEL, ended=5))),
    "retried by hand": h(
        NEW, claim(1, 1, 10), failed(2, 2, 10, state=S.DEAD, reason=R.RETRIES_EXHAUSTED),
        step(3, 5, A.RETRY, S.READY, epoch=2), claim(4, 6, 11, epoch=2), done(5, 7, 11, epoch=2),
        calls=(ASKED, ClientCall(verb="retry", jobs=("j",), answer="ok")),
    ),
    "expired, then retried by hand": h(
        NEW, step(1, 2, A.EXPIRE, S.CANCELLED, reason=R.EXPIRED), step(2, 5, A.RETRY, S.READY, epoch=2),
        claim(3, 6, 11, epoch=2), done(4, 7, 11, epoch=2),
        calls=(ASKED, ClientCall(verb="retry", jobs=("j",), answer="ok")), promises={"j": Promise(expires=2)},
    ),
    "an unknown enqueue that made none": h(calls=(replace(ASKED, answer="unknown"),)),
    "a rolled back enqueue": h(calls=(replace(ASKED, transaction="rolled_back"),)),
    "a committed one": h(*PLAIN, calls=(replace(ASKED, transaction="committed"),)),
    "a child that nobody asked for": h(
        *PLAIN, step(3, 2, A.ENQUEUE, S.READY, "c", parent="j"), step(4, 3, A.CANCEL, S.CANCELLED, "c"), calls=(ASKED,)
    ),
    "a deleted job": h(*PLAIN, step(3, 5, A.DELETE, None), calls=(ASKED,)),
    "undecodable": h(
        NEW, claim(1, 1, 10), failed(2, 2, 10, state=S.DEAD, reason=R.UNDECODABLE),
        promises={"j": Promise(undecodable=True)},
    ),
    "terminated in time": h(*PLAIN, troubles=(Disturbance(what="terminated", worker="w1", began=1.5, ended=9),)),
    "terminated, gone without a goodbye, lost": h(
        *TWICE, troubles=(Disturbance(what="terminated", worker="w1", began=2, ended=3),)
    ),
    "terminated while a claim lay with a frozen store": h(
        NEW, claim(1, 30, 10), taken(2, 48, 10), claim(3, 49, 11, "w2"), done(4, 50, 11, "w2"),
        troubles=(
            Disturbance(what="terminated", worker="w1", began=15, ended=17),
            Disturbance(what="store_away", began=10, ended=30),
        ),
    ),
    "not yet at rest": h(NEW, claim(1, 1, 10), calls=(ASKED,), quiet=False),
    "a little growth": History(samples=tuple(Sample(what="rss", at=n, size=100 + n) for n in range(9))),
    "few samples": History(samples=(Sample(what="rss", at=0, size=1), Sample(what="rss", at=1, size=9))),
}  # fmt: skip

BAD: dict[str, list[History]] = {
    "I1": [
        h(calls=(ASKED,)),
        h(NEW, claim(1, 1, 10), calls=(ASKED,)),
        h(NEW, claim(1, 1, 10), failed(2, 2, 10), calls=(ASKED,)),
    ],
    "I2": [
        h(NEW, step(1, 1, A.ENQUEUE, S.READY), claim(2, 1, 10), done(3, 2, 10), calls=(ASKED,)),
        h(*PLAIN, calls=(replace(ASKED, answer="failed"),)),
        h(*PLAIN, calls=(replace(ASKED, jobs=("other",), answer="unknown"),)),
    ],
    "I3": [
        h(calls=(replace(ASKED, transaction="committed"),)),
        h(*PLAIN, calls=(replace(ASKED, transaction="rolled_back"),)),
        h(NEW, calls=(replace(ASKED, answer="unknown", transaction="rolled_back"),)),
    ],
    "I4": [
        h(NEW, done(1, 1, 10)),
        h(*PLAIN, taken(3, 3, 10)),
        h(*PLAIN, step(3, 3, A.RETRY, S.READY, epoch=1), claim(4, 4, 11), done(5, 5, 11)),
        h(*PLAIN, step(3, 3, A.CANCEL, S.CANCELLED)),
    ],
    "I5": [
        h(NEW, claim(1, 1, 10), failed(2, 2, 10), step(3, 3, A.PROMOTE, S.READY), claim(4, 4, 10, attempt=2)),
        h(NEW, claim(1, 1, 10), failed(2, 2, 10), step(3, 3, A.PROMOTE, S.READY), claim(4, 4, 9, attempt=2)),
        h(NEW, claim(1, 1, 0), done(2, 2, 0)),
    ],
    "I6": [
        h(NEW, claim(1, 1, 10), claim(2, 2, 11, "w2"), done(3, 3, 11, "w2")),
        h(NEW, claim(1, 1, 10), claim(2, 2, 11), done(3, 3, 11)),
        h(NEW, claim(1, 1, 10), taken(2, 18, 10), claim(3, 17, 11, "w2"), done(4, 21, 11, "w2"), troubles=(SILENT,)),
    ],
    "I7": [
        h(NEW, claim(1, 1, 10), taken(2, 18, 10), claim(3, 19, 11, "w2"), done(4, 20, 10), troubles=(SILENT,)),
        h(NEW, claim(1, 1, 10), done(2, 2, 10, "w2")),
        h(NEW, claim(1, 1, 10), taken(2, 18, 10), done(3, 20, 10), troubles=(SILENT,)),
        h(NEW, claim(1, 1, 10), taken(2, 18, 10), claim(3, 19, 11), done(4, 20, 11, wrote=10), troubles=(SILENT,)),
    ],
    "I8": [
        h(*PLAIN, claim(3, 3, 11), done(4, 4, 11)),
        h(*PLAIN, runs=(BodyRun(job="j", token=10, began=1), BodyRun(job="j", token=12, began=3))),
        h(*PLAIN, runs=(BodyRun(job="j", token=10, began=1), BodyRun(job="j", token=10, began=1.5))),
        h(*PLAIN, runs=(BodyRun(job="other", token=10, began=1),)),
        h(
            *TWICE, troubles=(SILENT,), promises={"j": Promise(early=True)},
            runs=(BodyRun(job="j", token=10, began=1), BodyRun(job="j", token=11, began=19)),
        ),
    ],
    "I9": [
        h(NEW, claim(1, 1, 10), failed(2, 2, 10), step(3, 3, A.PROMOTE, S.READY), claim(4, 4, 11), done(5, 5, 11)),
        h(NEW, claim(1, 1, 10), taken(2, 18, 10), claim(3, 19, 11, attempt=2), done(4, 20, 11), troubles=(SILENT,)),
        h(
            NEW, claim(1, 1, 10), failed(2, 2, 10), step(3, 3, A.PROMOTE, S.READY), claim(4, 4, 11, attempt=2),
            done(5, 5, 11), promises={"j": Promise(retries=0)},
        ),
        h(
            NEW, claim(1, 1, 10), taken(2, 3, 10, outcome=O.CRASHED, state=S.DEAD, reason=R.CRASHED), troubles=(KILLED,)
        ),
        h(
            NEW, claim(1, 1, 10), taken(2, 3, 10, outcome=O.CRASHED, state=S.DEAD, reason=R.OUT_OF_MEMORY),
            troubles=(replace(KILLED, what="child_killed"),),
        ),
    ],
    "I10": [
        h(
            NEW, claim(1, 1, 10), taken(2, 3, 10, outcome=O.CRASHED), claim(3, 4, 11), done(4, 5, 11),
            troubles=(KILLED,),
            runs=(BodyRun(job="j", token=10, began=1, ended=6), BodyRun(job="j", token=11, began=4)),
        ),
        h(
            *TWICE, troubles=(SILENT,),
            runs=(BodyRun(job="j", token=10, began=1, ended=16), BodyRun(job="j", token=11, began=15)),
        ),
        h(
            *TWICE, troubles=(SILENT,), bounds=Bounds(fence=5),
            runs=(BodyRun(job="j", token=10, began=1, ended=30), BodyRun(job="j", token=11, began=19)),
        ),
    ],
    "I11": [
        h(NEW, claim(1, 1, 10), taken(2, 40, 10), claim(3, 41, 11), done(4, 42, 11), troubles=(KILLED,)),
        h(NEW, claim(1, 1, 10), troubles=(KILLED,)),
        h(
            NEW, claim(1, 1, 10), taken(2, 70, 10), claim(3, 71, 11), done(4, 72, 11),
            troubles=(KILLED, Disturbance(what="store_away", began=3, ended=20)),
        ),
    ],
    "I12": [
        h(*TWICE),
        h(*TWICE, troubles=(replace(SILENT, worker="w2"),)),
        h(*TWICE, troubles=(replace(SILENT, began=12),)),
        h(*TWICE, troubles=(replace(SILENT, ended=10),)),
        h(*TWICE, troubles=(Disturbance(what="terminated", worker="w1", began=2, ended=20),)),
        h(NEW, claim(1, 1, 10), taken(2, 3, 10, outcome=O.CRASHED), claim(3, 4, 11), done(4, 5, 11)),
        h(
            NEW, claim(1, 1, 10), taken(2, 3, 10, outcome=O.CRASHED), claim(3, 4, 11), done(4, 5, 11),
            troubles=(replace(KILLED, began=9, ended=9),),
        ),
    ],
    "I13": [
        h(
            NEW, claim(1, 9, 10), done(2, 9, 10),
            troubles=(Disturbance(what="terminated", worker="w1", began=5, ended=9),),
        ),
        h(*PLAIN, troubles=(Disturbance(what="terminated", worker="w1", began=1.5, ended=60),)),
        h(
            NEW, claim(1, 30, 10), done(2, 31, 10),
            troubles=(
                Disturbance(what="terminated", worker="w1", began=15, ended=32),
                Disturbance(what="store_away", began=16, ended=30),
            ),
        ),
        h(
            *PLAIN, step(3, 3, A.RETRY, S.READY, epoch=2), claim(4, 4, 11, epoch=2),
            done(5, 5, 11, epoch=2), troubles=(Disturbance(what="terminated", worker="w1", began=2, ended=5),),
        ),
    ],
    "I14": [
        h(*PLAIN, promises={"j": Promise(not_before=1.5)}),
        h(*GOOD["a failure, then success"].events, promises={"j": Promise(backoff=2)}),
        h(*GOOD["a failure, then success"].events, promises={"j": Promise(not_before=2)}),
    ],
    "I15": [
        h(*PLAIN, promises={"j": Promise(expires=0.5)}),
        h(*PLAIN, promises={"j": Promise(timeout=1)}, runs=(BodyRun(job="j", token=10, began=1, ended=9),)),
        h(*GOOD["a failure, then success"].events, promises={"j": Promise(expires=0.9)}),
    ],
    "I16": [
        h(NEW, claim(1, 9, 10), replace(CANCELLED, at=10), calls=(ASKED, CANCEL)),
        h(NEW, claim(1, 1, 10), done(2, 9, 10), calls=(ASKED, CANCEL)),
        h(NEW, claim(1, 1, 10), failed(2, 9, 10, state=S.DEAD, reason=R.RETRIES_EXHAUSTED), calls=(ASKED, CANCEL)),
    ],
    "I17": [
        h(*PLAIN, listed=(("j", S.SUCCEEDED), ("j", S.DEAD))),
        h(NEW, claim(1, 1, 10), failed(2, 2, 10, state=S.DEAD)),
        h(*PLAIN, calls=(ASKED, ClientCall(verb="retry", jobs=("j",), answer="ok"))),
        h(*GOOD["retried by hand"].events, calls=(ASKED,)),
    ],
    "I18": [
        h(*PLAIN, snapshots=(Snapshot(at=9, counts={S.SUCCEEDED: 2}),)),
        h(*PLAIN, snapshots=(Snapshot(at=5, counts={}), Snapshot(at=9, counts={S.SUCCEEDED: 1}))),
        h(*PLAIN, snapshots=(Snapshot(at=9, counts={S.DEAD: 1}),)),
        h(*PLAIN, snapshots=(Snapshot(asked=4, at=5, counts={}), Snapshot(at=9, counts={S.SUCCEEDED: 1}))),
        h(
            *PLAIN, snapshots=(Snapshot(at=5, counts={}), Snapshot(at=9, counts={S.SUCCEEDED: 1})),
            troubles=(Disturbance(what="store_away", began=0.5, ended=2),),
        ),
    ],
    "I19": [
        h(*PLAIN, calls=(replace(ASKED, digests=("d",)),), runs=(BodyRun(job="j", token=10, began=1, digest="x"),)),
        h(*PLAIN, promises={"j": Promise(undecodable=True)}),
        h(
            *GOOD["undecodable"].events, promises={"j": Promise(undecodable=True)},
            runs=(BodyRun(job="j", token=10, began=1),),
        ),
    ],
    "I34": [
        h(NEW, claim(1, 601, 10), done(2, 2, 10)),
        h(replace(NEW, at=600), claim(1, 1, 10), done(2, 2, 10)),
        h(NEW, claim(1, 5, 10), done(2, 4.99, 10)),
    ],
    "I35": [
        History(asked="full", durability="redis:none"),
        History(asked="full", durability="postgres:normal"),
        History(asked="full"),
        History(asked="normal", durability="redis:none"),
    ],
    "I36": [
        History(samples=tuple(Sample(what="rss", at=n, size=100 + 10 * n) for n in range(12))),
        History(samples=tuple(Sample(what="wal", at=n, size=1 if n < 9 else 9) for n in range(12))),
        History(samples=tuple(Sample(what="rss", at=-n, size=100 - 5 * n) for n in range(12))),
    ],
}  # fmt: skip
