"""Invariants of jobs: no job is lost, no job is made twice, every step is in the transition table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from mainspring.states import FINAL, Action, Reason, State, allows
from mainspring.testing.history._events import Answer, Found, History, Snapshot, by_job, lives, promise_of


def nothing_is_lost(history: History) -> Found:
    """I1: a job whose enqueue was answered ok exists, and at the end of the run it has ended."""
    known = lives(history)
    for job in _jobs(history, "enqueue", "ok"):
        if job not in known:
            yield job, "was enqueued and is nowhere"
        elif history.quiet and (state := known[job][-1].state) not in (*FINAL, None):
            yield job, f"was enqueued and is still {state} at rest"


def one_call_makes_one_job(history: History) -> Found:
    """I2: no enqueue makes a job twice, a failed enqueue makes none, and no job exists without an enqueue."""
    asked, failed = set(_jobs(history, "enqueue", "ok", "unknown")), set(_jobs(history, "enqueue", "failed"))
    for job, events in lives(history).items():
        there = False
        for event in events:
            if event.action is Action.ENQUEUE and there:
                yield job, "was made twice"
            there = event.state is not None
        if job in failed - asked:
            yield job, "was made by an enqueue that failed"
        elif history.calls and job not in asked and not events[0].parent and not _in_transaction(history, job):
            yield job, "was made without an enqueue"


def a_transaction_decides(history: History) -> Found:
    """I3: a job that was enqueued in its caller's transaction exists if that committed, and only then."""
    known = lives(history)
    for call in history.calls:
        for job in call.jobs if call.verb == "enqueue" else ():
            if call.transaction == "committed" and call.answer == "ok" and job not in known:
                yield job, "is nowhere although its caller's transaction committed"
            if call.transaction == "rolled_back" and job in known:
                yield job, "is there although its caller's transaction was rolled back"


def every_step_is_in_the_table(history: History) -> Found:
    """I4: every step is in the transition table; only a retry by hand leaves a final state, in a new epoch."""
    for job, events in lives(history).items():
        state, epoch = None, events[0].epoch
        for event in events:
            if not allows(event.action, state, event.state):
                yield job, f"{event.action} took it from {state} to {event.state}"
            expected = epoch + (event.action is Action.RETRY)
            if event.epoch != expected:
                yield job, f"{event.action} is of epoch {event.epoch}, not {expected}"
            state, epoch = event.state, event.epoch


def cancelled_is_final(history: History) -> Found:
    """I16: after a cancel was answered ok the job is not claimed, and ends as cancelled unless it had ended."""
    slack, known = history.bounds.slack, lives(history)
    for call in history.calls:
        for job in call.jobs if (call.verb, call.answer) == ("cancel", "ok") else ():
            later = [event for event in known.get(job, ()) if event.at > call.ended + slack]
            if any(event.action is Action.RETRY for event in later):
                continue
            if any(event.action is Action.CLAIM for event in later):
                yield job, "was claimed after it had been cancelled"
            if later and later[-1].state in (State.SUCCEEDED, State.DEAD):
                yield job, f"is {later[-1].state} although it was cancelled before"


def the_dead_are_kept_once(history: History) -> Found:
    """I17: each job is listed once; a dead job has a reason; each retry by hand makes one epoch."""
    for job, places in Counter(job for job, _ in history.listed).items():
        if places > 1:
            yield job, f"is in {places} places"
    certain, possible = Counter(_jobs(history, "retry", "ok")), Counter(_jobs(history, "retry", "ok", "unknown"))
    for job, events in lives(history).items():
        if events[-1].state is State.DEAD and events[-1].reason is None:
            yield job, "is dead and does not say why"
        opened = sum(event.action is Action.RETRY for event in events)
        if history.calls and not certain[job] <= opened <= possible[job]:
            yield job, f"was retried by hand {certain[job]} to {possible[job]} times and has {opened} new epochs"


def counts_are_exact(history: History) -> Found:
    """I18: each count of the store has every existing job once; at the end of the run, state by state."""
    slack = history.bounds.slack
    born = [event.at for event in history.events if event.action is Action.ENQUEUE]
    gone = [event.at for event in history.events if event.state is None]
    for shot in history.snapshots:
        total, since = sum(shot.counts.values()), _taken_after(shot, history)
        least = sum(at < since - slack for at in born) - sum(at <= shot.at + slack for at in gone)
        most = sum(at <= shot.at + slack for at in born) - sum(at < since - slack for at in gone)
        if not least <= total <= most:
            yield f"count at {shot.at:.1f}", f"{total} jobs, and there were {least} to {most}"
    if history.quiet and history.snapshots:
        ends = Counter(events[-1].state for events in lives(history).values())
        for state in State:
            if (counted := history.snapshots[-1].counts.get(state, 0)) != ends[state]:
                yield f"count of {state}", f"{counted} at rest, and there are {ends[state]}"


def _taken_after(shot: Snapshot, history: History) -> float:
    """A count may be as old as its request. A store that was away may have finished earlier calls only afterwards."""
    since = shot.at if shot.asked is None else shot.asked
    store = [each for each in history.troubles if each.what == "store_away"]
    lately = [each.began for each in store if each.began <= shot.at and each.ended >= since - history.bounds.slack]
    return min((since, *lately))


def payloads_arrive_whole(history: History) -> Found:
    """I19: a body gets the payload that was enqueued; a job that cannot be decoded is dead and never runs."""
    sent = {job: digest for call in history.calls for job, digest in zip(call.jobs, call.digests, strict=False)}
    for run in history.runs:
        if run.digest and run.job in sent and run.digest != sent[run.job]:
            yield run.job, "saw another payload than was enqueued"
    runs, known = by_job(history.runs), lives(history)
    for job, events in known.items():
        if promise_of(history, job).undecodable:
            if job in runs:
                yield job, "ran although it cannot be read"
            if history.quiet and (events[-1].state, events[-1].reason) != (State.DEAD, Reason.UNDECODABLE):
                yield job, f"cannot be read and is {events[-1].state} ({events[-1].reason})"


def _jobs(history: History, verb: str, *answers: Answer) -> list[str]:
    """The jobs of calls with this verb and one of these answers, outside of callers' transactions."""
    calls = (call for call in history.calls if call.verb == verb and call.answer in answers and not call.transaction)
    return [job for call in calls for job in call.jobs]


def _in_transaction(history: History, job: str) -> bool:
    return any(call.transaction and job in call.jobs for call in history.calls)


JOBS: dict[str, Callable[[History], Found]] = {
    "I1": nothing_is_lost,
    "I2": one_call_makes_one_job,
    "I3": a_transaction_decides,
    "I4": every_step_is_in_the_table,
    "I16": cancelled_is_final,
    "I17": the_dead_are_kept_once,
    "I18": counts_are_exact,
    "I19": payloads_arrive_whole,
}
