"""Several processes on one file: two apps, forks, wake-ups, fairness."""

from __future__ import annotations

import asyncio
import gc
import os
import sqlite3
import threading
import time
from pathlib import Path

import pytest

from mainspring.jobs.outcomes import Ack, Lease
from mainspring.states import State
from mainspring.stores.sqlite import SqliteStore
from mainspring.stores.sqlite.wake import _LOOK
from mainspring.worker.records import Beat

from .words import PATIENCE, Worker, batch, child, close, enqueue, finish, hear, job, jobs, run, states, succeeded, tell


class TestTwoApps:
    @pytest.mark.asyncio
    async def test_each_runs_only_what_it_knows(self, store: SqliteStore, path: Path) -> None:
        """A worker that does not know a task hands the job back; the other app's worker gets it."""
        other = child(
            """
            async def main():
                worker = await Worker(store, "theirs", ("theirs.task",)).join()
                say("joined")
                input()
                for _ in range(4):
                    for claim in await worker.take(10):
                        if claim.task == "theirs.task":
                            await worker.turn(succeeded(claim))
                            say("ran", claim.task)
                        else:
                            await worker.turn(Ack.returned(Lease(claim.id, claim.token), park=True))
                await store.close()
            asyncio.run(main())
            """,
            path,
        )
        assert hear(other) == "joined"
        ours, theirs = job(task="ours.task"), job(task="theirs.task")
        await store.enqueue(batch(ours, theirs))
        mine = await Worker(store, "mine", ("ours.task",)).join()
        for claim in await mine.take(10):
            lease = Lease(claim.id, claim.token)
            await mine.turn(Ack.succeeded(lease) if claim.task == "ours.task" else Ack.returned(lease, park=True))
        assert await mine.take(10) == ()
        tell(other)
        assert "ran theirs.task" in await asyncio.to_thread(finish, other)
        assert await states(store) == {State.SUCCEEDED: 2}


class TestOneKey:
    def test_a_hundred_producers_in_four_processes_make_one_job(self, store: SqliteStore, path: Path) -> None:
        producers = [
            child(
                """
                from concurrent.futures import ThreadPoolExecutor
                from mainspring.jobs.records import UniqueKey
                store.enqueue_now(batch(job(queue="warm")))
                say("here")
                input()
                with ThreadPoolExecutor(25) as pool:
                    made = [job(unique=UniqueKey(b"k" * 16)) for _ in range(25)]
                    said = [each[0] for each in pool.map(lambda one: enqueue(store, one), made)]
                say(sum(each.created for each in said), *{each.id.hex() for each in said})
                """,
                path,
            )
            for _ in range(4)
        ]
        assert [hear(each) for each in producers] == ["here"] * 4
        for each in producers:
            tell(each)
        said = [finish(each).split() for each in producers]
        assert sum(int(created) for created, *_ in said) == 1
        assert len({holder for _, *holders in said for holder in holders}) == 1
        assert run(states(store)) == {State.READY: 5}


class TestFork:
    """As a web server does that loads the app and then forks."""

    def fork(self, body: object) -> int:
        """Run ``body`` in a child; its exit code."""
        pid = os.fork()
        if pid == 0:
            try:
                body()  # type: ignore[operator]
            except BaseException:  # noqa: BLE001  # the parent reads the code
                os._exit(1)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def test_parent_and_child_both_enqueue(self, path: Path) -> None:
        store = SqliteStore(str(path))
        enqueue(store, job())
        assert self.fork(lambda: [enqueue(store, job()) for _ in range(5)]) == 0
        enqueue(store, job())
        assert run(states(store)) == {State.READY: 7}
        run(close(store))

    def test_what_the_child_commits_survives_the_parents_close(self, path: Path) -> None:
        """With an inherited handle in the child, SQLite would remove the log under its feet."""
        store = SqliteStore(str(path))
        run(store.open())
        enqueue(store, job())
        (opened, said), (go, told) = os.pipe(), os.pipe()

        def body() -> None:
            enqueue(store, job())
            os.write(said, b"x")
            os.read(go, 1)
            enqueue(store, *jobs(10))

        pid = os.fork()
        if pid == 0:
            body()
            os._exit(0)
        os.read(opened, 1)
        run(close(store))
        os.write(told, b"x")
        assert os.waitpid(pid, 0)[1] == 0
        again = SqliteStore(str(path))
        assert run(states(again)) == {State.READY: 12}
        run(close(again))

    def test_async_use_on_both_sides(self, path: Path) -> None:
        """The child has none of its parent's threads."""
        store = SqliteStore(str(path))
        run(store.enqueue(batch(job())))
        assert run(states(store)) == {State.READY: 1}

        def body() -> None:
            run(store.enqueue(batch(job())))
            assert run(states(store)) == {State.READY: 2}

        assert self.fork(body) == 0
        assert run(states(store)) == {State.READY: 2}
        run(close(store))

    def test_a_store_in_memory_is_copied(self) -> None:
        store = SqliteStore(":memory:")
        enqueue(store, job())

        def body() -> None:
            enqueue(store, job())
            assert run(states(store)) == {State.READY: 2}

        assert self.fork(body) == 0
        assert run(states(store)) == {State.READY: 1}
        run(close(store))

    def test_no_handle_of_the_file_is_inherited(self, path: Path) -> None:
        store = SqliteStore(str(path))
        run(states(store))
        enqueue(store, job())

        def body() -> None:
            held = [each.resolve() for each in Path("/proc/self/fd").iterdir()]
            assert not [each for each in held if str(each).startswith(f"{path}")]

        assert self.fork(body) == 0
        run(close(store))


LISTEN = """
async def main():
    listener = await store.listen("theirs", arguments)
    say("listening")
    async with asyncio.timeout(PATIENCE):
        while not await listener.wait(PATIENCE):
            pass
    say("woken")
    listener.close()
    await store.close()
asyncio.run(main())
"""


def look_again() -> None:
    """From now on a writer sees who has begun to listen: it looks each 20 ms at most, and the poll covers the rest."""
    time.sleep(2 * _LOOK)


class TestWaking:
    @pytest.mark.parametrize("deep", [False, True])
    def test_an_enqueue_wakes_another_process(self, tmp_path: Path, deep: bool) -> None:
        """Also where the path is longer than a socket's address may be."""
        folder = tmp_path / ("d" * 120 if deep else "d")
        folder.mkdir()
        path = folder / "jobs.db"
        store = SqliteStore(str(path))
        enqueue(store, job(queue="other"))
        listener = child(LISTEN, path, "q", "z")
        assert hear(listener) == "listening"
        look_again()
        enqueue(store, job())
        assert hear(listener) == "woken"
        finish(listener)
        run(close(store))

    def test_what_a_dead_process_left_is_removed(self, path: Path) -> None:
        store = SqliteStore(str(path))
        enqueue(store, job())
        listener = child(LISTEN, path, "q")
        assert hear(listener) == "listening"
        listener.kill()
        listener.communicate()
        folder = Path(f"{path}-wake")
        assert [each for each in folder.iterdir() if each.suffix == ".sock"]
        look_again()
        run(store.notify(["q"]))
        assert [each.name for each in folder.iterdir()] == ["gate"]
        run(close(store))

    @pytest.mark.asyncio
    async def test_who_began_to_listen_within_a_tick_of_the_file_systems_clock_is_seen(
        self, store: SqliteStore, path: Path
    ) -> None:
        """The directory was read, somebody joined right after, and its time is still the same."""
        folder = Path(f"{path}-wake")
        tick = time.time_ns() + 3_600_000_000_000
        os.utime(folder, ns=(tick, tick))
        await store.enqueue(batch(job()))
        elsewhere = SqliteStore(str(path))
        listener = await elsewhere.listen("w", ["q"])
        os.utime(folder, ns=(tick, tick))
        look_again()
        await store.enqueue(batch(job()))
        assert await listener.wait(PATIENCE)
        await elsewhere.close()

    @pytest.mark.asyncio
    async def test_commits_at_the_end_wake_others_and_leave_no_socket_open(self, path: Path) -> None:
        """``close`` waits for what is pending; a wake-up then must not open the socket again after it was closed."""
        store, elsewhere = SqliteStore(str(path)), SqliteStore(str(path))
        await store.open()
        listener = await elsewhere.listen("w", ["q"])
        look_again()
        go_on = threading.Event()
        held = store._writer.send(lambda _: go_on.wait(PATIENCE))
        last = asyncio.create_task(store.enqueue(batch(job())))
        await asyncio.sleep(0)
        closing = asyncio.create_task(store.close())
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(held, last, closing)
        assert await listener.wait(PATIENCE)
        assert store._wake._socket is None
        await elsewhere.close()

    @pytest.mark.asyncio
    async def test_a_socket_that_cannot_be_bound_is_closed(
        self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
    ) -> None:
        gc.collect()  # the garbage of other tests
        recwarn.clear()
        monkeypatch.setattr(store._wake, "_base", "/nowhere/at/all")
        listener = await store.listen("w", ["q"])
        gc.collect()
        assert not [each for each in recwarn if each.category is ResourceWarning]
        await store.enqueue(batch(job()))
        assert await listener.wait(PATIENCE), "inside the process it is woken"

    @pytest.mark.asyncio
    async def test_only_the_queues_that_were_asked_for(self, store: SqliteStore) -> None:
        mine, other = await store.listen("w", ["q"]), await store.listen("w", ["other"])
        await store.enqueue(batch(job()))
        assert await mine.wait(PATIENCE)
        assert not await other.wait(0)

    @pytest.mark.asyncio
    async def test_a_scheduled_job_wakes_nobody_until_it_is_promoted(self, store: SqliteStore) -> None:
        listener = await store.listen("w", ["q"])
        await store.enqueue(batch(job(delay=1)))
        while not (await store.promote()).promoted:
            pass
        assert await listener.wait(PATIENCE)


HAMMER = """
say("writing")
while not os.path.exists(arguments[0]):
    enqueue(store, *jobs(200))
"""


class TestFairness:
    def test_a_beat_gets_through_while_others_write_all_the_time(self, path: Path, tmp_path: Path) -> None:
        """SQLite's lock is not fair; the pause of those who write is what lets the others in."""
        store = SqliteStore(str(path), durability="normal")
        run(store.open())
        stop = tmp_path / "stop"
        writers = [child(HAMMER, path, str(stop)) for _ in range(2)]
        assert [hear(each) for each in writers] == ["writing"] * 2

        async def beats() -> None:
            worker = await Worker(store).join()
            for _ in range(30):
                (beaten,) = await store.beat([Beat(worker.name)])
                assert beaten.alive

        run(beats())
        stop.touch()
        for each in writers:
            finish(each)
        run(close(store))

    def test_a_waiting_writer_is_seen(self, path: Path) -> None:
        """Whoever waits for the lock shows it, and the one who has it pauses after its commit."""
        store = SqliteStore(str(path))
        run(store.open())
        mine = sqlite3.connect(path, isolation_level=None)
        mine.execute("begin immediate")
        waiting = child('enqueue(store, job()); say("done")', path)
        gate = store._gate
        file = gate._opened()
        assert file is not None
        import fcntl  # POSIX only

        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                break
            fcntl.flock(file, fcntl.LOCK_UN)
        mine.execute("commit")
        assert hear(waiting) == "done"
        finish(waiting)
        mine.close()
        run(close(store))


def test_a_killed_writer_loses_nothing_it_was_told(path: Path) -> None:
    """SIGKILL in the middle of writing: what was answered is there, and the file is sound."""
    process = child(
        """
        n = 0
        while True:
            enqueue(store, job())
            n += 1
            say(n)
        """,
        path,
    )
    for _ in range(50):
        heard = int(hear(process))
    process.kill()
    said, _ = process.communicate()
    heard = max([heard, *(int(line) for line in said.split() if line)])
    store = SqliteStore(str(path))
    assert run(states(store))[State.READY] >= heard
    assert store._writer.do(lambda tx: tx.cursor.execute("pragma integrity_check").fetchall()) == [("ok",)]
    run(close(store))


@pytest.mark.asyncio
async def test_two_stores_of_one_process_share_a_file(store: SqliteStore, path: Path) -> None:
    other = SqliteStore(str(path))
    await other.enqueue(batch(*jobs(4)))
    here, there = await Worker(store, "here").join(), await Worker(other, "there").join()
    mine, theirs = await here.take(2), await there.take(4)
    assert {claim.id for claim in mine}.isdisjoint(claim.id for claim in theirs)
    await here.turn(*map(succeeded, mine))
    await there.turn(*map(succeeded, theirs))
    assert await states(store) == {State.SUCCEEDED: 4}
    await close(other)
