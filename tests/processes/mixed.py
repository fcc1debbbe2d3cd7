"""A small load of every kind of end, and the rule by which each of its jobs must have ended.

``Mixed(app)`` declares the tasks; ``load`` enqueues one job of each kind; ``check`` says what is
wrong with how one of them ended, whatever was killed meanwhile: an empty string is a good end.
"""

from __future__ import annotations

import asyncio
import ctypes
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from mainspring import AsyncContext, Cancel, Concurrency, Context, Mainspring, Rate, Snooze
from mainspring.jobs.call import Call
from mainspring.jobs.info import JobInfo
from mainspring.jobs.job import Job
from mainspring.jobs.outcomes import Outcome
from mainspring.states import Reason, State
from tests.processes.playground import is_first, note

if TYPE_CHECKING:
    from tests.processes.fleet import Line


async def good(ctx: AsyncContext, seconds: float = 0.0) -> int:
    note("START", ctx)
    await asyncio.sleep(seconds)
    note("END", ctx)
    return ctx.token


def thread(ctx: Context, seconds: float = 0.0) -> int:
    note("START", ctx)
    time.sleep(seconds)
    note("END", ctx)
    return ctx.token


async def again(ctx: AsyncContext) -> int:
    """Fails once, then succeeds."""
    note("START", ctx)
    note("END", ctx)
    if ctx.attempt == 1:
        raise ValueError("the first attempt fails")
    return ctx.token


def snoozer(ctx: Context, path: str) -> int:
    """Asks for a nap the first time it gets here."""
    note("START", ctx)
    note("END", ctx)
    if is_first(path):
        raise Snooze(for_="50ms")
    return ctx.token


async def quitter(ctx: AsyncContext) -> None:
    note("START", ctx)
    note("END", ctx)
    raise Cancel("not wanted")


def hopeless(ctx: Context) -> None:
    note("START", ctx)
    note("END", ctx)
    raise LookupError("there is no such thing")


def tells(ctx: Context) -> int:
    note("START", ctx)
    ctx.progress(1, 1, note=f"by {ctx.token}")
    ctx.log(f"done by {ctx.token}")
    note("END", ctx)
    return ctx.token


async def endless(ctx: AsyncContext) -> None:
    """Runs until it is cancelled."""
    note("START", ctx)
    await asyncio.sleep(600)


def holds_gil(ctx: Context, seconds: float) -> int:
    """No thread of its process runs meanwhile, so no heartbeat is sent."""
    note("START", ctx)
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))
    note("END", ctx)
    return ctx.token


class End(NamedTuple):
    """How a job of a kind ends when no process is killed, and what a kill can change."""

    state: State
    reason: Reason | None = None
    attempt: int = 1
    outcomes: dict[Outcome, tuple[int, int]] = {}  # noqa: RUF012 - a constant
    """How often an ended attempt may be of this outcome: (at least, at most). Others: never."""
    also: tuple[tuple[State, Reason | None], ...] = ()
    """Other good ends."""


S, R, O = State, Reason, Outcome  # noqa: E741 - the table below is read by its columns
ENDS = {
    "good": End(S.SUCCEEDED),
    "thread": End(S.SUCCEEDED),
    "again": End(S.SUCCEEDED, attempt=2, outcomes={O.FAILED: (1, 1)}),
    "snoozer": End(S.SUCCEEDED, outcomes={O.SNOOZED: (0, 1)}),
    "quitter": End(S.CANCELLED, R.BY_USER, outcomes={O.CANCELLED: (1, 1)}),
    "hopeless": End(S.DEAD, R.FAILED, outcomes={O.FAILED: (1, 1)}),
    "tells": End(S.SUCCEEDED),
    "holds_gil": End(S.SUCCEEDED),
    "narrow": End(S.SUCCEEDED),
    "paced": End(S.SUCCEEDED),
    "early": End(S.SUCCEEDED),
    "endless": End(S.CANCELLED, R.BY_USER, attempt=-1, outcomes={O.CANCELLED: (0, 1)}),
    "expired": End(S.CANCELLED, R.EXPIRED, attempt=0),
}
CRASHES = 3
"""A job whose process died so often under it is dead."""
TAKEN = (Outcome.CRASHED, Outcome.LOST, Outcome.INTERRUPTED)
"""What a job may suffer by the end of its owner."""


class Mixed:
    """The tasks, declared on ``app``."""

    def __init__(self, app: Mainspring) -> None:
        self.app = app
        self.good = app.task(name="good", retries=0)(good)
        self.thread = app.task(name="thread", retries=0)(thread)
        self.again = app.task(name="again", retries=1, backoff="50ms")(again)
        self.snoozer = app.task(name="snoozer", retries=0)(snoozer)
        self.quitter = app.task(name="quitter", retries=5)(quitter)
        self.hopeless = app.task(name="hopeless", retries=0)(hopeless)
        self.tells = app.task(name="tells", retries=0)(tells)
        self.holds_gil = app.task(name="holds_gil", retries=0)(holds_gil)
        self.early = app.task(name="early", ack="early")(good)
        self.endless = app.task(name="endless", retries=0)(endless)
        self.narrow = app.task(name="narrow", retries=0, limit=Concurrency(1))(good)
        self.paced = app.task(
            name="paced", retries=0, limit=[Rate(20, per="1s"), Concurrency(1, by="seconds")]
        )(thread)  # fmt: skip
        self.expired = app.task(name="expired", retries=0)(good)

    def load(self, marker: str, seconds: float = 0.1) -> list[Job[Any]]:
        """One job of each kind, some that come later, some that must not overlap; ``marker`` is a path of this load."""
        return self.app.enqueue_many(self.calls(marker, seconds))

    def calls(self, marker: str, seconds: float = 0.1) -> list[Call[Any]]:
        """What ``load`` enqueues."""
        return [
            self.endless.s(),
            self.expired.s().options(queue="unserved", expires="1ms"),
            self.good.s(seconds),
            self.thread.s(seconds),
            self.good.s().options(delay="200ms"),
            self.thread.s().options(delay="400ms"),
            self.again.s(),
            self.snoozer.s(marker),
            self.quitter.s(),
            self.hopeless.s(),
            self.tells.s(),
            self.early.s(seconds),
            *[task.s(seconds) for task in (self.narrow, self.paced) for _ in range(2)],
        ]


def check(info: JobInfo, lines: Iterable[Line], *, kills: int, ends: Mapping[str, End] = ENDS) -> str:
    """What is wrong with the end of this job, if ``kills`` processes were killed meanwhile."""
    end = ends[info.task]
    starts = [line.token for line in lines if line.word == "START" and line.job == str(info.id)]
    outcomes = Counter(attempt.outcome for attempt in info.attempts)
    taken = sum(outcomes[outcome] for outcome in TAKEN)
    ended = (info.state, info.reason)
    good_ends: set[tuple[State, Reason | None]]
    if info.task == "early" and taken:
        good_ends = {(State.DEAD, Reason.CRASHED), (State.DEAD, Reason.NOT_RETRYABLE)}
        if outcomes[Outcome.INTERRUPTED]:
            good_ends.add((State.SUCCEEDED, None))  # it was handed back before its body began
    else:
        good_ends = {(end.state, end.reason), *end.also}
    if outcomes[Outcome.CRASHED] >= CRASHES:
        good_ends.add((State.DEAD, Reason.CRASHED))
    wrong = {
        "state": ended not in good_ends,
        "attempt": end.attempt >= 0 and info.attempt != end.attempt and ended == (end.state, end.reason),
        "crashes": info.crashes > kills or outcomes[Outcome.CRASHED] > kills,
        "outcomes": any(
            not low <= outcomes[outcome] <= high
            for outcome in Outcome
            if outcome not in TAKEN
            for low, high in [end.outcomes.get(outcome, (0, 0))]
        ),
        "started twice under one token": len(set(starts)) != len(starts),
        "started by nobody": not set(starts) <= {attempt.token for attempt in info.attempts} | {info.token},
        "more than once although early": info.task == "early" and len(starts) > 1,
        "ran although expired": info.task == "expired" and bool(starts),
        "succeeded without a run": info.state is State.SUCCEEDED and info.token not in starts,
    }
    said = ", ".join(name for name, is_wrong in wrong.items() if is_wrong)
    return f"{info.task}: {said}: {info} started by {starts}" if said else ""


app = Mainspring()
tasks = Mixed(app)
