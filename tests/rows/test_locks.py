"""L1, L4: locks are taken, given back, asked about; by with, async with, decorator; skip, wait or raise."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import pairwise

import pytest

from mainspring import Mainspring
from mainspring.errors import InvalidOption, LockBusy, LockLost, NotFound, UseError, WouldBlockLoop
from mainspring.locks.lock import Lock, new_poll_pause
from tests.rows.crew import LIMIT, until
from tests.rows.locked import take_away


@pytest.mark.row("L1")
class TestVerbs:
    def test_a_lock_has_one_holder_at_a_time(self, app: Mainspring, other: Mainspring) -> None:
        mine, theirs = app.lock("nightly"), other.lock("nightly")
        assert mine.acquire()
        with pytest.raises(LockBusy):
            theirs.acquire()
        mine.release()
        assert theirs.acquire()
        with pytest.raises(LockBusy):
            mine.acquire()
        theirs.release()

    def test_locks_of_other_names_are_independent(self, app: Mainspring) -> None:
        with app.lock("a"), app.lock("ab"), app.lock("a=b"), app.lock("A"), app.lock("été"):
            assert {info.name for info in app.locks.list()} == {"a", "ab", "a=b", "A", "été"}

    def test_is_locked_answers_for_any_process(self, app: Mainspring, other: Mainspring) -> None:
        mine, theirs = app.lock("nightly", ttl="1m"), other.lock("nightly", ttl="5s")
        assert not theirs.is_locked()
        assert theirs.remaining() == timedelta(0)
        with mine:
            assert theirs.is_locked()
            assert timedelta(seconds=30) < theirs.remaining() <= timedelta(minutes=1)
        assert not theirs.is_locked()

    def test_extend_sets_a_new_ttl(self, app: Mainspring, other: Mainspring) -> None:
        lock = app.lock("nightly", ttl="10s")
        with lock:
            lock.extend("10m")
            assert timedelta(minutes=9) < other.lock("nightly").remaining() <= timedelta(minutes=10)
            lock.extend("1s")
            assert other.lock("nightly").remaining() > timedelta(minutes=9), "never shorter"

    async def test_the_async_methods_of_a_lock(self, app: Mainspring, other: Mainspring) -> None:
        lock = app.lock("nightly")
        assert await lock.aacquire()
        assert await other.lock("nightly").ais_locked()
        await lock.aextend("10m")
        assert await lock.aremaining() > timedelta(minutes=9)
        with pytest.raises(LockBusy):
            await other.lock("nightly").aacquire()
        assert [info.name for info in await app.locks.alist()] == ["nightly"]
        await lock.arelease()
        assert not await lock.ais_locked()
        await app.aclose()
        await other.aclose()

    def test_one_of_many_concurrent_callers_gets_the_lock(self, app: Mainspring, other: Mainspring) -> None:
        barrier = threading.Barrier(8)

        locks = [(app, other)[n % 2].lock("race", on_busy="skip") for n in range(8)]

        def race(lock: Lock) -> bool:
            barrier.wait(LIMIT)
            return lock.acquire()

        with ThreadPoolExecutor(8) as threads:
            got = list(threads.map(race, locks))
        assert sorted(got) == [False] * 7 + [True]
        locks[got.index(True)].release()

    def test_a_late_release_leaves_the_next_holder_alone(self, app: Mainspring, other: Mainspring) -> None:
        """Each holder has its own token: a release with an old token has no effect."""
        mine, theirs = app.lock("nightly"), other.lock("nightly")
        mine.acquire()
        take_away(other)
        theirs.acquire()
        with pytest.raises(LockLost):
            mine.release()
        assert theirs.is_locked()
        assert not theirs.lost
        assert theirs.token > mine.token
        theirs.release()

    def test_release_of_a_lock_that_is_not_held_is_refused(self, app: Mainspring) -> None:
        lock = app.lock("nightly")
        for verb in (lock.release, lock.check, lambda: lock.extend("1s"), lambda: lock.token):
            with pytest.raises(UseError, match="not held here"):
                verb()
        with lock:
            pass
        with pytest.raises(UseError, match="not held here"):
            lock.release()

    async def test_blocking_methods_are_refused_in_a_loop(self, app: Mainspring) -> None:
        lock = app.lock("nightly")
        for verb, name in (
            (lock.acquire, "aacquire"), (lock.is_locked, "ais_locked"), (lock.remaining, "aremaining"),
            (lock.__enter__, "async with"), (app.locks.list, "alist"),
        ):  # fmt: skip
            with pytest.raises(WouldBlockLoop) as caught:
                verb()
            assert name in str(caught.value)
        assert not await lock.ais_locked()
        await app.aclose()

    def test_a_lock_is_listed_with_its_holder(self, app: Mainspring) -> None:
        with app.lock("nightly") as lock, app.semaphore("gpu", 2) as gpu:
            first, second = app.locks.list()
            assert (first.kind, first.name, first.token, first.holder.is_here) == ("lock", "nightly", lock.token, True)
            assert (second.kind, second.name, second.token) == ("semaphore", "gpu", gpu.token)
            assert first.since < first.until
            assert timedelta(0) < first.remaining <= timedelta(seconds=30)
            assert len(app.locks.list(limit=1)) == 1
        assert app.locks.list() == []
        with pytest.raises(InvalidOption, match="limit"):
            app.locks.list(limit=0)

    def test_locks_cannot_be_changed_as_limits(self, app: Mainspring) -> None:
        with app.lock("nightly"), app.semaphore("gpu", 2):
            assert [limit.name for limit in app.limits.list()] == ["locks/semaphore/gpu"]
            with pytest.raises(NotFound, match="not in the store"):
                app.limits.set("locks/lock", 2)
            with pytest.raises(NotFound, match="not in the store"):
                app.limits.delete("locks/lock")

    def test_the_holder_of_a_lock_names_its_job(self, app: Mainspring) -> None:
        seen = []

        @app.task(name="locks.work")
        def work() -> None:
            with app.lock("nightly"):
                seen.extend(app.locks.list())

        job = work.enqueue()
        with app.worker():
            job.result(timeout=LIMIT)
        assert seen[0].holder.who == f"locks.work {job.id}"


@pytest.mark.row("L4")
class TestBusy:
    def test_lock_busy_names_the_holder(self, app: Mainspring, other: Mainspring) -> None:
        with app.lock("nightly") as held:
            holder = app.locks.list()[0].holder
            with pytest.raises(LockBusy) as caught, other.lock("nightly"):
                pass
        assert (caught.value.lock, held.name) == ("lock 'nightly'", "nightly")
        assert caught.value.holder == f"{holder}, which is this process"
        assert 'wait="10s"' in str(caught.value)

    def test_with_skips_when_the_lock_is_busy(self, app: Mainspring, other: Mainspring) -> None:
        lock = other.lock("nightly", on_busy="skip")
        with app.lock("nightly"), lock as held:
            assert not held
            with pytest.raises(UseError, match="not held here"):
                held.check()
        with lock as held:
            assert held
        assert not lock

    async def test_async_with_skips_when_the_lock_is_busy(self, app: Mainspring, other: Mainspring) -> None:
        async with app.lock("nightly"), other.lock("nightly", on_busy="skip") as held:
            assert not held
        await app.aclose()
        await other.aclose()

    def test_a_skipped_block_that_did_not_check_raises(self, app: Mainspring, other: Mainspring) -> None:
        with app.lock("nightly"):
            with pytest.raises(UseError, match="did not check"), other.lock("nightly", on_busy="skip"):
                pass
            with pytest.raises(ZeroDivisionError), other.lock("nightly", on_busy="skip"):
                1 / 0  # noqa: B018 - what the block raises wins

    def test_acquire_skips_when_the_lock_is_busy(self, app: Mainspring, other: Mainspring) -> None:
        with app.lock("nightly"):
            assert not other.lock("nightly", on_busy="skip").acquire()
            assert not other.lock("nightly", on_busy="skip", wait="1h").acquire(wait=0)

    def test_a_waiting_caller_gets_the_lock_when_it_is_released(self, app: Mainspring, other: Mainspring) -> None:
        got = threading.Event()

        def wait() -> None:
            with other.lock("nightly", wait="60s"):
                got.set()

        lock = app.lock("nightly")
        lock.acquire()
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert not got.wait(0.3)
        lock.release()
        assert got.wait(LIMIT)
        waiting.join(LIMIT)

    def test_a_caller_that_waits_too_long_gets_lock_busy(self, app: Mainspring, other: Mainspring) -> None:
        with app.lock("nightly"):
            with pytest.raises(LockBusy) as caught:
                other.lock("nightly", wait="200ms").acquire()
            assert caught.value.waited >= 0.2
            with pytest.raises(LockBusy) as caught:
                other.lock("nightly").acquire(wait=0.2)
            assert caught.value.waited >= 0.2
            assert not other.lock("nightly", wait="50ms", on_busy="skip").acquire()

    def test_waiting_threads_hold_the_lock_one_after_the_other(self, app: Mainspring, other: Mainspring) -> None:
        """Two objects, shared by eight threads: each ``with`` holds the lock alone."""
        locks = app.lock("nightly", wait="60s"), other.lock("nightly", wait="60s")
        inside, most, tokens = 0, 0, []

        def work(n: int) -> None:
            nonlocal inside, most
            lock = locks[n % 2]
            with lock:
                inside += 1
                most = max(most, inside)
                tokens.append(lock.token)
                inside -= 1

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(work, range(24)))
        assert most == 1
        assert tokens == sorted(set(tokens)), "numbers are in the order of the holders"

    def test_waiting_callers_pause_for_different_times(self) -> None:
        first, second = ([pause.next() for _ in range(30)] for pause in (new_poll_pause(), new_poll_pause()))
        assert first != second
        assert max(first) <= 1
        assert sum(first[20:]) > sum(first[:10])
        assert all(after <= 3 * before for before, after in pairwise(first))

    def test_a_thread_cannot_take_its_lock_twice(self, app: Mainspring) -> None:
        """The error comes at once. Waiting would never end."""
        lock = app.lock("nightly", wait="1h")
        with lock:
            with pytest.raises(LockBusy, match="the same thread or task") as caught, lock:
                pass
            assert "This object holds" in caught.value.hint
            assert lock.is_locked()
        assert not lock.is_locked()

    async def test_a_task_cannot_take_its_lock_twice(self, app: Mainspring) -> None:
        lock = app.lock("nightly", wait="1h")
        async with lock:
            with pytest.raises(LockBusy, match="the same thread or task"):
                await lock.aacquire()
        await app.aclose()

    async def test_tasks_that_share_a_lock_object_wait_for_each_other(self, app: Mainspring) -> None:
        lock, inside, most, tokens = app.lock("nightly", wait="60s"), 0, 0, []

        async def work() -> None:
            nonlocal inside, most
            async with lock:
                inside += 1
                most = max(most, inside)
                tokens.append(lock.token)
                await asyncio.sleep(0)
                inside -= 1

        await asyncio.gather(*(work() for _ in range(10)))
        assert (most, len(set(tokens))) == (1, 10)
        assert tokens == sorted(tokens)
        await app.aclose()

    def test_a_block_can_release_its_lock_early(self, app: Mainspring, other: Mainspring) -> None:
        """A thread that shares the object keeps the lock it took meanwhile."""
        lock = app.lock("nightly")
        with lock:
            lock.release()
            thread = threading.Thread(target=lock.acquire)
            thread.start()
            thread.join(LIMIT)
            assert lock.is_locked()
        assert other.lock("nightly").is_locked(), "the block gave back its own, not that of the thread"
        lock.release()


@pytest.mark.row("L4")
class TestDecorator:
    def test_a_lock_decorates_a_function(self, app: Mainspring, other: Mainspring) -> None:
        lock = app.lock("nightly")

        @lock
        def report(day: str, *, copies: int = 1) -> str:
            """Docstring."""
            assert other.lock("nightly").is_locked()
            return f"{day} {copies} {lock.token > 0}"

        assert report("today", copies=2) == "today 2 True"
        assert (report.__name__, report.__doc__) == ("report", "Docstring.")
        with other.lock("nightly"), pytest.raises(LockBusy):
            report("today")
        assert not lock.is_locked()

    async def test_a_lock_decorates_an_async_function(self, app: Mainspring, other: Mainspring) -> None:
        @app.lock("nightly")
        async def report(day: str) -> str:
            assert await other.lock("nightly").ais_locked()
            return day

        assert await report("today") == "today"
        async with other.lock("nightly"):
            with pytest.raises(LockBusy):
                await report("today")
        await app.aclose()
        await other.aclose()

    def test_a_decorated_function_is_not_called_when_it_skips(self, app: Mainspring, other: Mainspring) -> None:
        called = []

        @app.lock("nightly", on_busy="skip")
        def report(day: str) -> str:
            called.append(day)
            return day

        @app.lock("nightly", on_busy="skip")
        async def areport(day: str) -> str:
            called.append(day)
            return day

        with other.lock("nightly"):
            assert report("today") is None
            assert asyncio.run(areport("today")) is None
        assert report("later") == "later"
        assert called == ["later"]

    def test_a_decorated_function_waits_for_the_lock(self, app: Mainspring, other: Mainspring) -> None:
        @app.lock("nightly", wait="60s")
        def report() -> str:
            return "done"

        theirs = other.lock("nightly")
        theirs.acquire()
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(report)
            until(waiting.running, "it waits")
            theirs.release()
            assert waiting.result(LIMIT) == "done"

    def test_an_exception_of_a_decorated_function_releases_the_lock(self, app: Mainspring) -> None:
        @app.lock("nightly")
        def report() -> None:
            raise ValueError("no paper")

        for _ in range(2):
            with pytest.raises(ValueError, match="no paper"):
                report()
        assert not app.lock("nightly").is_locked()

    def test_a_lock_below_the_task_decorator_guards_the_task(self, app: Mainspring) -> None:
        @app.task(name="locks.report")
        @app.lock("nightly")
        def report(day: str) -> str:
            return f"{day} {app.lock('nightly').is_locked()}"

        job = report.enqueue("today")
        with app.worker():
            assert job.result(timeout=LIMIT) == "today True"

    @pytest.mark.stores("sqlite")
    def test_objects_that_a_lock_cannot_decorate_are_refused(self, app: Mainspring) -> None:
        @app.task(name="locks.task")
        def task() -> None: ...

        def pages() -> Iterator[int]:
            yield 1

        for wrong in (task, pages, int, 7, staticmethod(pages), staticmethod(len)):
            with pytest.raises(InvalidOption, match="cannot be guarded") as caught:
                app.lock("nightly")(wrong)  # type: ignore[type-var]  # that is the point
            assert "below @app.task" in str(caught.value)


@pytest.mark.stores("sqlite")
@pytest.mark.row("L1")
class TestBadInput:
    @pytest.mark.parametrize("ttl", ["-5s", 0, "99ms", "soon", None, True])
    def test_a_bad_ttl_is_refused(self, app: Mainspring, ttl: object) -> None:
        for declare in (
            lambda: app.lock("nightly", ttl=ttl),  # type: ignore[arg-type]  # that is the point, here and below
            lambda: app.semaphore("gpu", 2, ttl=ttl),  # type: ignore[arg-type]
            lambda: app.election("main", ttl=ttl),  # type: ignore[arg-type]
        ):
            with pytest.raises(InvalidOption, match="ttl=") as caught:
                declare()
            assert caught.value.hint

    def test_bad_names_are_refused(self, app: Mainspring) -> None:
        for name in ("", "a b", "x" * 201, "\ud800", "a\0", 7, None):
            for declare in (app.lock, app.election, lambda name: app.semaphore(name, 2)):
                with pytest.raises(InvalidOption, match="is not a valid name for a"):
                    declare(name)  # type: ignore[arg-type]  # that is the point
        with pytest.raises(InvalidOption, match="contains a ="):
            app.semaphore("gpu=1", 2)

    def test_bad_waits_and_modes_are_refused(self, app: Mainspring) -> None:
        with pytest.raises(InvalidOption, match="negative") as caught:
            app.lock("nightly", wait="-1s")
        assert 'wait="10s"' in caught.value.hint
        with pytest.raises(InvalidOption, match="'raise' or 'skip'"):
            app.lock("nightly", on_busy="wait")  # type: ignore[arg-type]
        lock = app.lock("nightly")
        with pytest.raises(InvalidOption, match="negative"):
            lock.acquire(wait=-1)
        with lock, pytest.raises(InvalidOption, match="by="):
            lock.extend("-1s")

    @pytest.mark.parametrize("size", [0, -1, 1.5, "2", None, True, 10**7])
    def test_bad_sizes_are_refused(self, app: Mainspring, size: object) -> None:
        with pytest.raises(InvalidOption, match="size=") as caught:
            app.semaphore("gpu", size)  # type: ignore[arg-type]
        assert "app.lock(name)" in caught.value.hint

    def test_two_sizes_of_one_semaphore_are_refused(self, app: Mainspring) -> None:
        app.semaphore("gpu", 2)
        app.semaphore("gpu", 2, ttl="1m")
        with pytest.raises(InvalidOption, match="semaphore of size 2"):
            app.semaphore("gpu", 3)

    def test_bad_callbacks_are_refused(self, app: Mainspring) -> None:
        for wrong, why in ((7, "not a function"), (lambda: None, "must accept one argument, the term")):
            with pytest.raises(InvalidOption, match=why) as caught:
                app.election("main", elected=wrong)  # type: ignore[arg-type]
            assert "def elected(term" in caught.value.hint
