"""L5: one leader at a time, with a term; and semaphores."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from mainspring import Mainspring
from mainspring.errors import LockBusy, UseError, WouldBlockLoop
from tests.rows.crew import LIMIT, until
from tests.rows.locked import take_away
from tests.timing import patience


def short_ttl() -> float:
    return patience(0.5)


@pytest.mark.row("L5")
class TestElection:
    def test_the_next_candidate_leads_as_soon_as_the_leader_steps_down(
        self, app: Mainspring, other: Mainspring
    ) -> None:
        """The time to live is an hour, so the second candidate cannot have waited for it."""
        said: list[tuple[str, int]] = []
        first = app.election(
            "main", elected=lambda t: said.append(("first", t)), lost=lambda t: said.append(("out", t)), ttl="1h"
        )
        second = other.election("main", elected=lambda t: said.append(("second", t)), ttl="1h")
        first.start()
        until(lambda: first.leader, "it is elected")
        second.start()
        assert (second.leader, second.term) == (False, 0)
        first.stop()
        assert not first.leader
        until(lambda: second.leader, "the other one is elected")
        until(lambda: len(said) == 3, "it was told")
        second.stop()
        assert [word for word, _ in said] == ["first", "out", "second"]
        assert said[0][1] == said[1][1] == first.term < said[2][1] == second.term

    def test_one_of_many_candidates_leads_at_a_time(self, app: Mainspring, other: Mainspring) -> None:
        """Ten candidates step down one after the other. The terms grow, and no two lead at the same time."""
        office, terms, overlaps = threading.Lock(), [], []

        def elected(term: int) -> None:
            overlaps.append(not office.acquire(blocking=False))
            terms.append(term)

        def lost(term: int) -> None:
            assert terms[-1] == term
            office.release()

        left = [(app, other)[n % 2].election("main", elected=elected, lost=lost, ttl="1h") for n in range(10)]
        for each in left:
            each.start()
        while left:
            (leader,) = until(lambda: [each for each in left if each.leader], "one of them leads")
            leader.stop()
            left.remove(leader)
        assert overlaps == [False] * 10
        assert terms == sorted(set(terms))

    def test_a_leader_that_loses_its_lock_is_informed_and_becomes_a_candidate_again(
        self, app: Mainspring, other: Mainspring
    ) -> None:
        said: list[tuple[str, int]] = []
        with app.election(
            "main",
            elected=lambda t: said.append(("elected", t)),
            lost=lambda t: said.append(("lost", t)),
            ttl=short_ttl(),
        ) as it:
            until(lambda: it.leader, "it is elected")
            first = it.term
            take_away(other)
            until(lambda: it.leader and it.term > first, "it is elected again")
            until(lambda: len(said) == 3, "it was told")
        assert [word for word, _ in said] == ["elected", "lost", "elected", "lost"]
        assert said[0][1] == said[1][1] == first
        assert said[2][1] == said[3][1] == it.term

    def test_a_leader_stays_leader_for_longer_than_its_ttl(self, app: Mainspring, other: Mainspring) -> None:
        ttl = short_ttl()
        with app.election("main", ttl=ttl) as it, other.election("main", ttl=ttl) as rival:
            until(lambda: it.leader or rival.leader, "one leads")
            leader, follower = (it, rival) if it.leader else (rival, it)
            for _ in range(20):
                assert leader.leader
                assert not follower.leader
                threading.Event().wait(ttl / 5)

    def test_a_callback_that_raises_is_logged_and_the_leader_leads_on(
        self, app: Mainspring, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail(term: int) -> None:
            raise ValueError("no office")

        with caplog.at_level(logging.ERROR, "mainspring.locks"), app.election("main", elected=fail, lost=fail) as it:
            until(lambda: it.leader, "it is elected")
            until(lambda: "no office" in caplog.text, "it is logged")
            assert it.leader
        assert caplog.text.count("ValueError: no office") == 2
        assert app.locks.list() == []

    async def test_async_callbacks_run_on_the_loop(self, app: Mainspring) -> None:
        """A callback that still runs when the term ends is cancelled before ``lost`` is called."""
        said: list[object] = []
        began = asyncio.Event()

        async def elected(term: int) -> None:
            said.append(asyncio.get_running_loop())
            began.set()
            try:
                await asyncio.sleep(LIMIT)
            except asyncio.CancelledError:
                said.append("cancelled")
                raise

        async def lost(term: int) -> None:
            said.append(term)

        async with app.election("main", elected=elected, lost=lost) as it:
            await began.wait()
            assert it.leader
        assert said == [asyncio.get_running_loop(), "cancelled", it.term]
        await app.aclose()

    def test_async_callbacks_run_without_a_loop_of_the_caller(self, app: Mainspring) -> None:
        said: list[str] = []

        async def elected(term: int) -> None:
            said.append(threading.current_thread().name)

        with app.election("main", elected=elected):
            until(lambda: said, "it was told")
        assert said == ["mainspring-election-main"]

    def test_a_sync_callback_ends_before_another_candidate_is_elected(self, app: Mainspring) -> None:
        steps: list[str] = []

        def work(term: int) -> None:
            while it.leader:
                threading.Event().wait(0.01)
            steps.append(f"done {app.lock('none').is_locked()} {len(app.locks.list())}")

        it = app.election("main", elected=work, lost=lambda _: steps.append("told"))
        with it:
            until(lambda: it.leader, "it is elected")
        assert steps == ["done False 1", "told"]
        assert app.locks.list() == []

    def test_a_sync_callback_that_does_not_end_keeps_the_lead_for_one_ttl(
        self, app: Mainspring, caplog: pytest.LogCaptureFixture
    ) -> None:
        go_on = threading.Event()
        with app.election("main", elected=lambda _: go_on.wait(LIMIT), ttl=short_ttl()) as it:
            until(lambda: it.leader, "it is elected")
        assert "has not ended" in caplog.text
        assert app.locks.list() == []
        go_on.set()

    def test_an_election_in_the_lifespan_of_a_worker(self, app: Mainspring) -> None:
        seen: list[bool] = []

        @app.lifespan
        async def lead() -> AsyncIterator[object]:
            async with app.election("main") as it:
                yield it

        @app.task(name="elections.ask")
        def ask() -> None:
            seen.append(bool(app.locks.list()))

        with app.worker():
            until(app.locks.list, "the worker leads")
            ask.enqueue().result(timeout=LIMIT)
        assert seen == [True]
        assert app.locks.list() == []

    def test_a_started_election_cannot_be_started_again(self, app: Mainspring) -> None:
        it = app.election("main")
        it.stop()
        with it:
            with pytest.raises(UseError, match="started already"):
                it.start()
            until(lambda: it.leader, "it is elected")
            first = it.term
        with it:
            until(lambda: it.leader, "it is elected again")
            assert it.term > first

    async def test_blocking_methods_of_an_election_are_refused_in_a_loop(self, app: Mainspring) -> None:
        it = app.election("main")
        with pytest.raises(WouldBlockLoop, match=r"election.start"):
            it.start()
        with pytest.raises(WouldBlockLoop):
            it.stop()
        with pytest.raises(WouldBlockLoop), it:
            pass

    def test_an_election_a_lock_and_a_semaphore_of_one_name_are_independent(self, app: Mainspring) -> None:
        with app.lock("main"), app.election("main") as it, app.semaphore("main", 1):
            until(lambda: it.leader, "it is elected")
            assert [(info.kind, info.name) for info in app.locks.list()] == [
                ("election", "main"),
                ("lock", "main"),
                ("semaphore", "main"),
            ]


@pytest.mark.row("L5")
class TestSemaphore:
    def test_a_semaphore_admits_its_size_at_once(self, app: Mainspring, other: Mainspring) -> None:
        held = [each.semaphore("gpu", 3) for each in (app, other, app)]
        assert [each.acquire() for each in held] == [True] * 3
        fourth = other.semaphore("gpu", 3)
        assert fourth.is_locked()
        with pytest.raises(LockBusy):
            fourth.acquire()
        held[1].release()
        assert not fourth.is_locked()
        assert fourth.acquire()
        assert len({each.token for each in (*held, fourth)}) == 4
        for each in (held[0], held[2], fourth):
            each.release()
        assert app.locks.list() == []

    def test_a_semaphore_admits_its_size_in_the_whole_fleet(self, app: Mainspring, other: Mainspring) -> None:
        guard, inside, most = threading.Lock(), 0, 0

        def work(n: int) -> None:
            nonlocal inside, most
            with (app, other)[n % 2].semaphore("gpu", 3, wait="60s"):
                with guard:
                    inside += 1
                    most = max(most, inside)
                threading.Event().wait(0.02)
                with guard:
                    inside -= 1

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(work, range(32)))
        assert 1 < most <= 3

    def test_one_semaphore_object_can_be_held_several_times(self, app: Mainspring) -> None:
        """Each ``with`` takes one place, also inside another ``with``."""
        gpu = app.semaphore("gpu", 2, on_busy="skip")
        with gpu:
            outer = gpu.token
            assert not gpu.is_locked()
            with gpu:
                assert gpu.token > outer
                assert gpu.is_locked()
                assert not gpu.acquire()
            assert gpu.token == outer
        assert app.locks.list() == []

    def test_the_size_in_the_last_code_applies(self, app: Mainspring, other: Mainspring) -> None:
        with app.semaphore("gpu", 1):
            assert not app.semaphore("gpu", 1, on_busy="skip").acquire()
            newer = other.semaphore("gpu", 2, on_busy="skip")
            assert newer.acquire()
            newer.release()

    def test_the_size_of_a_semaphore_is_set_at_run_time(self, app: Mainspring) -> None:
        gpu = app.semaphore("gpu", 1, on_busy="skip")
        with gpu as held:
            assert held
            app.limits.set("locks/semaphore/gpu", 2)
            with app.semaphore("gpu", 1, on_busy="skip") as second:
                assert second
