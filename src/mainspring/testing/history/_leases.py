"""Invariants of leases: one owner at a time, late writes refused, live workers keep their jobs, dead workers lose
them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mainspring.jobs.outcomes import Outcome
from mainspring.states import Action, State
from mainspring.testing.history._events import (
    BodyRun,
    Disturbance,
    Found,
    History,
    JobEvent,
    by_job,
    lives,
    promise_of,
)

_ENDS = frozenset(
    {
        Action.ACK_SUCCEEDED, Action.ACK_FAILED, Action.ACK_TIMED_OUT, Action.ACK_SNOOZED, Action.ACK_CANCELLED,
        Action.ACK_INTERRUPTED, Action.RESCUE,
    }
)  # fmt: skip


def tokens_grow(history: History) -> Found:
    """I5: the tokens of a job strictly increase, and each is given to one worker."""
    for job, events in lives(history).items():
        last = 0
        for event in events:
            if event.action is Action.CLAIM:
                if event.token <= last:
                    yield job, f"token {event.token} was given after {last}"
                last = event.token


def one_lease_at_a_time(history: History) -> Found:
    """I6: a job is claimed only while no worker has it, by order and by time."""
    for job, events in lives(history).items():
        owner, free_at = None, 0.0
        for event in events:
            if event.action is Action.CLAIM:
                if owner is not None:
                    yield job, f"{event.worker} claimed it while {owner} had it"
                elif event.at < free_at:
                    yield job, f"{event.worker} claimed it {free_at - event.at:.3f} s before its last lease ended"
                owner = event.worker
            elif event.action in _ENDS:
                owner, free_at = None, event.at


def late_writes_are_refused(history: History) -> Found:
    """I7: every end of an attempt and every write of a body has the token and worker of the valid lease."""
    for job, events in lives(history).items():
        live: tuple[int, str] | None = None
        for event in events:
            if event.action is Action.CLAIM:
                live = (event.token, event.worker)
            elif event.action in _ENDS:
                if live != (event.token, event.worker):
                    yield job, f"{event.action} by {event.worker} with token {event.token} was taken, live was {live}"
                live = None
            if event.wrote is not None and event.wrote != event.token:
                yield job, f"what is stored was written with token {event.wrote}, and the last is {event.token}"


def done_is_done(history: History) -> Found:
    """I8: a job that succeeded is not claimed again; a body runs only under a given token, once for each."""
    runs = by_job(history.runs)
    for job, events in lives(history).items():
        done_in = None
        for event in events:
            if event.action is Action.CLAIM and event.epoch == done_in:
                yield job, "was claimed after it had succeeded"
            if event.state is State.SUCCEEDED:
                done_in = event.epoch
        given = {event.token for event in events if event.action is Action.CLAIM}
        tokens = [run.token for run in runs.get(job, ())]
        if strange := set(tokens) - given:
            yield job, f"ran under tokens that no claim has given: {sorted(strange)}"
        if len(set(tokens)) != len(tokens):
            yield job, "ran twice under one token"
        last = events[-1]
        watched = history.runs and promise_of(history, job).writes_down
        if watched and last.state is State.SUCCEEDED and last.token not in tokens:
            yield job, "succeeded without a run"
        if promise_of(history, job).early and len(tokens) > 1:
            yield job, "began more than once although it is acked early"


def bodies_overlap_only_after_a_lease(history: History) -> Found:
    """I10: a body runs beside its successor only if its lease was over, and only for a short time."""
    known = lives(history)
    for older, newer in overlaps(history):
        events = known.get(older.job, [])
        lost = next((e for e in events if e.token == older.token and e.outcome is Outcome.LOST), None)
        if lost is None or lost.at > newer.began + history.bounds.slack:
            yield older.job, f"token {newer.token} ran beside {older.token}, whose lease was good"
        assert older.ended is not None
        if history.bounds.fence is not None and older.ended - newer.began > history.bounds.fence:
            yield older.job, f"token {older.token} went on for {older.ended - newer.began:.1f} s beside {newer.token}"


def the_dead_are_replaced(history: History) -> Found:
    """I11: the jobs of a killed worker are rescued within the bound; time without the store does not count."""
    for claim, end, killed in _held_at_death(history):
        if end is None:
            if history.quiet:
                yield claim.job, f"was never taken back from {claim.worker}, which was killed"
        elif end.at - killed.ended - _without_store(history, killed.ended, end.at) > history.bounds.reclaim:
            yield claim.job, f"was taken back from {claim.worker} only {end.at - killed.ended:.1f} s after its death"


def the_living_are_left_alone(history: History) -> Found:
    """I12: a worker is lost only if it was silent for a lease, and crashes only after a disturbance."""
    slack, troubles = history.bounds.slack, _of_worker(history)
    for event in history.events:
        mine = troubles.get(event.worker, [])
        if event.outcome is Outcome.LOST and not any(_silenced(each, event.at, history) for each in mine):
            yield event.job, f"was taken from {event.worker} as lost, which was not silent for a lease"
        if event.outcome is Outcome.CRASHED and not any(each.began <= event.at + slack for each in mine):
            yield event.job, f"crashed on {event.worker}, although no process had been killed"


def the_terminated_take_no_more(history: History) -> Found:
    """I13: after the request to terminate a worker claims no job, and it is gone within the bound."""
    ends = [each for each in history.troubles if each.what == "terminated"]
    claims: dict[str, list[JobEvent]] = {}
    for event in history.events:
        if event.action is Action.CLAIM:
            claims.setdefault(event.worker, []).append(event)
    for each in ends:
        for event in claims.get(each.worker, ()):
            if each.began + history.bounds.slack < event.at and not _lay_with_the_store(history, each.began, event.at):
                yield event.job, f"was claimed by {each.worker} {event.at - each.began:.1f} s after the word to end"
        if each.ended - each.began > history.bounds.ending:
            yield each.worker, f"took {each.ended - each.began:.1f} s to end"


def _lay_with_the_store(history: History, asked: float, at: float) -> bool:
    """Whether the store was away from before one moment to the other: then the claim was requested before."""
    away = (each for each in history.troubles if each.what == "store_away")
    return any(each.began < asked and at <= each.ended + history.bounds.slack for each in away)


def overlaps(history: History) -> Iterator[tuple[BodyRun, BodyRun]]:
    """Runs of a job that were still active after a newer run had begun."""
    for runs in by_job(history.runs).values():
        runs.sort(key=lambda run: run.token)
        for n, newer in enumerate(runs):
            yield from ((older, newer) for older in runs[:n] if older.ended is not None and older.ended > newer.began)


def recoveries(history: History) -> list[float]:
    """How long each job of a killed worker waited until it was claimed again, in seconds.

    Jobs that wait on purpose (a second crash) do not count; nor does time without the store.
    """
    known, found = lives(history), []
    for claim, end, killed in _held_at_death(history):
        if end is None or end.state is not State.READY:
            continue
        after = (event for event in known[claim.job] if event.seq > end.seq)
        following = next(after, None)
        if following is not None and following.action is Action.CLAIM:
            away = _without_store(history, killed.ended, following.at)
            found.append(max(0.0, following.at - killed.ended - away))
    return found


def _held_at_death(history: History) -> Iterator[tuple[JobEvent, JobEvent | None, Disturbance]]:
    """Each lease that a worker held when it was killed, with its end."""
    killed = {each.worker: each for each in history.troubles if each.what == "killed"}
    for events in lives(history).values():
        for n, event in enumerate(events):
            if event.action is not Action.CLAIM or event.worker not in killed:
                continue
            end = next((later for later in events[n + 1 :] if later.action in _ENDS), None)
            death = killed[event.worker]
            if event.at <= death.ended and (end is None or end.at > death.ended):
                yield event, end, death


def _without_store(history: History, since: float, until: float) -> float:
    """Seconds without the store between two moments, plus a lease for each outage: the rescuer starts its count
    again."""
    away = (each for each in history.troubles if each.what == "store_away")
    return sum(
        each.ended - max(each.began, since) + history.bounds.lease
        for each in away
        if each.ended > since and each.began < until
    )


def _silenced(trouble: Disturbance, at: float, history: History) -> bool:
    """Whether this explains that a worker was silent for a lease. Its last beat may be a third of a lease older."""
    latest = at - history.bounds.lease * 2 / 3 + history.bounds.slack
    if trouble.what == "child_killed":
        return False
    if trouble.what in ("killed", "terminated"):
        return trouble.ended <= latest
    return trouble.began <= latest and trouble.ended >= at - history.bounds.slack


def _of_worker(history: History) -> dict[str, list[Disturbance]]:
    found: dict[str, list[Disturbance]] = {}
    for each in history.troubles:
        found.setdefault(each.worker, []).append(each)
    return found


LEASES: dict[str, Callable[[History], Found]] = {
    "I5": tokens_grow,
    "I6": one_lease_at_a_time,
    "I7": late_writes_are_refused,
    "I8": done_is_done,
    "I10": bodies_overlap_only_after_a_lease,
    "I11": the_dead_are_replaced,
    "I12": the_living_are_left_alone,
    "I13": the_terminated_take_no_more,
}
