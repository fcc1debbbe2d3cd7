"""Fence and decide_kill: when a worker must end, and which job is charged."""

from __future__ import annotations

import math
from typing import Any

import pytest

from mainspring.jobs.outcomes import Outcome
from mainspring.states import Reason, State
from mainspring.worker.lease import fencing
from mainspring.worker.lease.shared_state import (
    CALL_SHIFT,
    EARLY,
    ON_LOOP,
    STRICT,
    STUCK,
    TRIPS,
    UNTOLD,
    Phase,
    RunningBody,
)
from mainspring.worker.supervise import blame
from mainspring.worker.supervise.kill_rules import MAX_GAP, ChildSnapshot, KillCause, KillDecision, decide_kill

NOW = 1000.0


def job(token: int = 1, *, deadline: float = 0.0, flags: int = 0, retry_in: int = 5_000_000) -> RunningBody:
    return RunningBody(token, bytes(16), token, deadline, retry_in, flags, 900.0)


def look(*jobs: RunningBody, **changed: Any) -> ChildSnapshot:
    """A worker in good health, 500 s old: lease 15, grace 5, drain 25."""
    healthy = ChildSnapshot(
        now=NOW, stopped=False, watched_since=500.0, moving_since=500.0, ticking_since=500.0, heartbeats_since=500.0,
        phase=Phase.RUNNING, phase_since=500.0, ticked=NOW - 0.4, tried=NOW - 0.8, blocker=-1,
        lease_end=NOW + 12, jobs=list(jobs), lease=15.0, grace=5.0, drain=25.0,
    )  # fmt: skip
    return healthy._replace(**changed)


class TestFence:
    def test_a_lease_runs_low_a_fifth_before_its_end(self) -> None:
        assert not fencing.is_low(100.0, 103.1, 15.0)
        assert fencing.is_low(100.0, 103.0, 15.0)

    def test_before_the_first_heartbeat_a_lease_is_neither_low_nor_over(self) -> None:
        assert not fencing.is_low(100.0, 0.0, 15.0)
        assert not fencing.is_over(100.0, 0.0)

    def test_only_early_and_strict_bodies_must_end_with_the_lease(self) -> None:
        assert not fencing.must_kill(100.0, 99.0, [job()])
        assert fencing.must_kill(100.0, 99.0, [job(), job(2, flags=STRICT)])
        assert fencing.must_kill(100.0, 99.0, [job(flags=EARLY)])
        assert not fencing.must_kill(100.0, 101.0, [job(flags=EARLY)])


class TestDecideKill:
    def test_a_healthy_worker_is_not_killed(self) -> None:
        assert decide_kill(look(job(deadline=NOW + 1), job(2, flags=STRICT))) is None

    def test_a_worker_that_cannot_report_its_stuck_body_is_killed_after_the_grace(self) -> None:
        """C code that holds the GIL stops the event loop and the heartbeat thread of the worker."""
        silent = {"ticked": NOW - 60, "ticking_since": NOW}
        assert decide_kill(look(job(deadline=NOW - 4.9), **silent)) is None
        late = job(deadline=NOW - 5.1)
        assert decide_kill(look(late, job(2, deadline=NOW + 9), **silent)) == KillDecision(KillCause.OVERDUE, (late,))

    def test_a_worker_whose_event_loop_runs_gets_a_second_grace_to_report_its_stuck_body(self) -> None:
        """It reports at the end of the first grace: a supervisor that looks in that moment must not kill it."""
        assert decide_kill(look(job(deadline=NOW - 9.9), job(2))) is None
        late = job(deadline=NOW - 10.1)
        assert decide_kill(look(late, job(2))) == KillDecision(KillCause.OVERDUE, (late,))

    def test_a_machine_that_stood_still_for_a_moment_is_no_event_loop_that_does_not_run(self) -> None:
        stalled = {"ticked": NOW - MAX_GAP + 0.1}
        assert decide_kill(look(job(deadline=NOW - 5.1), **stalled)) is None
        after_a_gap = {"ticked": NOW - MAX_GAP - 0.1, "moving_since": NOW, "watched_since": NOW}
        assert decide_kill(look(job(deadline=NOW - 5.1), **after_a_gap)) is None

    def test_a_body_past_its_grace_is_charged_whatever_the_worker_is_killed_for(self) -> None:
        late = job(deadline=NOW - 5.1)
        lingering = look(late, job(2), phase=Phase.DRAINING, phase_since=NOW - 36)
        assert decide_kill(lingering) == KillDecision(KillCause.LINGERING, (late,))

    def test_a_worker_with_a_stuck_body_is_killed_after_the_drain_limit(self) -> None:
        stuck = job(deadline=NOW - 20, flags=STUCK)
        assert decide_kill(look(stuck, job(2), phase=Phase.REPLACE, phase_since=NOW - 29)) is None
        sentence = decide_kill(look(stuck, job(2), phase=Phase.REPLACE, phase_since=NOW - 31))
        assert sentence == KillDecision(KillCause.REPLACED, (stuck,))

    def test_a_worker_that_is_done_but_for_its_stuck_body_ends_at_once(self) -> None:
        stuck = job(deadline=NOW - 1, flags=STUCK)
        sentence = decide_kill(look(stuck, phase=Phase.DONE, phase_since=NOW))
        assert sentence == KillDecision(KillCause.REPLACED, (stuck,))

    def test_a_worker_without_jobs_whose_loop_is_blocked_is_killed(self) -> None:
        assert decide_kill(look(ticked=NOW - 29)) is None
        sentence = decide_kill(look(ticked=NOW - 31, ticking_since=NOW))
        assert sentence is not None
        assert sentence.cause is KillCause.WEDGED_LOOP

    def test_a_job_may_block_the_loop_as_long_as_its_limit_allows(self) -> None:
        blocked = look(job(deadline=NOW + 100), ticked=NOW - 60, tried=NOW - 60, ticking_since=NOW)
        assert decide_kill(blocked) is None

    def test_only_the_body_that_blocks_the_loop_is_charged(self) -> None:
        """The other bodies of the loop cannot end while it is blocked. A thread body can."""
        waiting = job(2, deadline=NOW - 50, flags=ON_LOOP)
        blocking = job(3, deadline=NOW - 5.1, flags=ON_LOOP)
        blocked = {"ticked": NOW - 60, "ticking_since": NOW, "blocker": 3}
        assert decide_kill(look(waiting, job(3, flags=ON_LOOP), **blocked)) is None
        assert decide_kill(look(waiting, blocking, **blocked)) == KillDecision(KillCause.OVERDUE, (blocking,))
        thread = job(4, deadline=NOW - 5.1)
        assert decide_kill(look(waiting, thread, **blocked)) == KillDecision(KillCause.OVERDUE, (thread,))
        assert decide_kill(look(waiting, blocker=3)) == KillDecision(KillCause.OVERDUE, (waiting,)), "it ticks again"

    def test_a_worker_with_a_blocked_loop_is_killed_when_it_says_that_its_threads_have_ended(self) -> None:
        waiting = job(2, deadline=NOW - 50, flags=ON_LOOP)
        blocking = job(3, deadline=NOW - 0.1, flags=ON_LOOP)
        further_item = job(9, deadline=NOW - 0.1, flags=ON_LOOP | 4 << CALL_SHIFT)
        blocked = {"ticked": NOW - 60, "ticking_since": NOW, "blocker": 3, "phase_since": NOW}
        jobs = (waiting, blocking, further_item)
        assert decide_kill(look(*jobs, phase=Phase.REPLACE, **blocked)) is None
        sentence = decide_kill(look(*jobs, phase=Phase.DONE, **blocked))
        assert sentence == KillDecision(KillCause.REPLACED, (blocking, further_item))

    def test_after_a_blocked_loop_the_worker_gets_time_for_a_turn(self) -> None:
        assert decide_kill(look(ticked=NOW, tried=NOW - 60, ticking_since=NOW - 0.5)) is None

    def test_a_worker_that_sends_no_turns_while_loop_and_store_work_is_killed(self) -> None:
        sentence = decide_kill(look(job(), tried=NOW - 46))
        assert sentence is not None
        assert sentence.cause is KillCause.WEDGED_TURNS
        assert sentence.guilty == ()

    @pytest.mark.parametrize("since", [math.inf, NOW - 40])
    def test_a_worker_without_turns_is_not_killed_while_the_store_is_away(self, since: float) -> None:
        assert decide_kill(look(job(), tried=NOW - 400, heartbeats_since=since)) is None

    def test_a_stopped_worker_is_not_killed_for_lost_time(self) -> None:
        stopped = look(job(deadline=NOW - 100), ticked=NOW - 100, stopped=True, moving_since=NOW)
        assert decide_kill(stopped) is None

    def test_a_resumed_worker_gets_its_time_again(self) -> None:
        resumed = look(job(deadline=NOW - 100), ticked=NOW - 100, ticking_since=NOW, moving_since=NOW - 1)
        assert decide_kill(resumed) is None

    def test_a_guarded_body_is_killed_with_its_lease_even_when_stopped(self) -> None:
        sentence = decide_kill(look(job(flags=STRICT), lease_end=NOW - 0.1, stopped=True))
        assert sentence == KillDecision(KillCause.FENCED)

    def test_after_a_stop_of_both_the_worker_may_fence_itself_first(self) -> None:
        assert decide_kill(look(job(flags=STRICT), lease_end=NOW - 10, watched_since=NOW - 0.1)) is None

    def test_an_ordinary_body_outlives_the_lease(self) -> None:
        assert decide_kill(look(job(), lease_end=NOW - 60)) is None

    @pytest.mark.parametrize(("phase", "limit"), [(Phase.DRAINING, 35), (Phase.DONE, 10)])
    def test_a_worker_that_does_not_leave_in_time_is_killed(self, phase: Phase, limit: int) -> None:
        assert decide_kill(look(phase=phase, phase_since=NOW - limit + 1)) is None
        sentence = decide_kill(look(phase=phase, phase_since=NOW - limit - 1))
        assert sentence is not None
        assert sentence.cause is KillCause.LINGERING


class TestBlame:
    def test_a_worker_that_died_by_itself_is_a_crash(self) -> None:
        assert blame.decide_blame(None, [job()], NOW, orderly=False) == (Outcome.CRASHED, [])

    def test_an_orderly_exit_charges_no_job(self) -> None:
        assert blame.decide_blame(None, [job()], NOW, orderly=True) == (Outcome.INTERRUPTED, [])

    def test_only_the_job_past_its_limit_is_charged(self) -> None:
        late = job(1, deadline=NOW - 9)
        cause, (ack,) = blame.decide_blame(KillDecision(KillCause.OVERDUE, (late,)), [late, job(2)], NOW, orderly=False)
        assert cause is Outcome.INTERRUPTED
        assert (ack.token, ack.outcome, ack.to, ack.delay, ack.run_us) == (
            1, Outcome.TIMED_OUT, State.RETRYING, 5_000_000, 100_000_000,
        )  # fmt: skip
        assert b"HardTimeout" in (ack.error or b"")
        assert b"91 s" in (ack.error or b"")

    def test_a_job_with_the_token_of_the_guilty_job_is_not_charged(self) -> None:
        """Jobs that are claimed in one turn can have equal tokens."""
        late, other = job(deadline=NOW - 9), job()._replace(job=b"x" * 16)
        _, acks = blame.decide_blame(KillDecision(KillCause.OVERDUE, (late,)), [late, other], NOW, orderly=False)
        assert [ack.id for ack in acks] == [late.job]

    def test_a_job_past_its_limit_without_a_retry_left_is_dead(self) -> None:
        late = job(1, deadline=NOW - 9, retry_in=-1)
        _, (ack,) = blame.decide_blame(KillDecision(KillCause.OVERDUE, (late,)), [late], NOW, orderly=False)
        assert (ack.to, ack.reason) == (State.DEAD, Reason.TIMED_OUT)

    @pytest.mark.parametrize("flags", [0, TRIPS])
    def test_a_breaker_that_counts_time_outs_gets_the_fault(self, flags: int) -> None:
        late = job(1, deadline=NOW - 9, flags=flags)
        _, (ack,) = blame.decide_blame(KillDecision(KillCause.OVERDUE, (late,)), [late], NOW, orderly=False)
        assert ("HardTimeout" in ack.fault) == bool(flags)

    def test_a_job_that_ended_after_the_kill_decision_is_not_charged(self) -> None:
        said = blame.decide_blame(KillDecision(KillCause.OVERDUE, (job(1),)), [job(2)], NOW, orderly=False)
        assert said == (Outcome.INTERRUPTED, [])

    def test_a_worker_that_left_its_stuck_body_behind_charges_it(self) -> None:
        _, (ack,) = blame.decide_blame(None, [job(1, deadline=NOW - 9, flags=STUCK), job(2)], NOW, orderly=True)
        assert (ack.token, ack.outcome) == (1, Outcome.TIMED_OUT)

    def test_an_early_job_that_began_is_dead(self) -> None:
        _, (ack,) = blame.decide_blame(
            KillDecision(KillCause.FENCED), [job(1, flags=EARLY), job(2)], NOW, orderly=False
        )
        assert (ack.token, ack.to, ack.reason) == (1, State.DEAD, Reason.NOT_RETRYABLE)

    def test_a_crash_ends_early_jobs_that_the_store_does_not_know_as_early(self) -> None:
        told, untold = job(1, flags=EARLY), job(2, flags=EARLY | UNTOLD)
        cause, (ack,) = blame.decide_blame(None, [told, untold, job(3)], NOW, orderly=False, worker="w1")
        assert cause is Outcome.CRASHED
        assert (ack.token, ack.to, ack.label) == (2, State.DEAD, "mainspring.errors.WorkerCrashed")
        assert b"w1" in (ack.error or b"")
