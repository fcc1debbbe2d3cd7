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
from mainspring.stores.sqlite.driver.wakeups import LOOK_SECONDS
from mainspring.worker.records import Beat

from .helpers import (
    PATIENCE,
    Worker,
    batch,
    child,
    close,
    enqueue,
    job,
    jobs,
    read_line,
    read_rest,
    run,
    states,
    succeeded,
    write_line,
)


class TestTwoApps:
    @pytest.mark.asyncio
    async def test_each_app_runs_only_its_own_tasks(self, store: SqliteStore, path: Path) -> None:
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
        assert read_line(other) == "joined"
        ours, theirs = job(task="ours.task"), job(task="theirs.task")
        await store.enqueue(batch(ours, theirs))
        mine = await Worker(store, "mine", ("ours.task",)).join()
        for claim in await mine.take(10):
            lease = Lease(claim.id, claim.token)
            await mine.turn(Ack.succeeded(lease) if claim.task == "ours.task" else Ack.returned(lease, park=True))
        assert await mine.take(10) == ()
        write_line(other)
        assert "ran theirs.task" in await asyncio.to_thread(read_rest, other)
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
        assert [read_line(each) for each in producers] == ["here"] * 4
        for each in producers:
            write_line(each)
        said = [read_rest(each).split() for each in producers]
        assert sum(int(created) for created, *_ in said) == 1
        assert len({holder for _, *holders in said for holder in holders}) == 1
        assert run(states(store)) == {State.READY: 5}


class TestFork:
    """A web server loads the app and then forks."""

    def fork(self, body: object) -> int:
        """Run ``body`` in a child process and return its exit code."""
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

    def test_commits_of_a_child_survive_the_close_of_the_parent(self, path: Path) -> None:
        """With an inherited handle, SQLite in the parent would remove the log that the child uses."""
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

    def test_async_enqueue_works_in_parent_and_child(self, path: Path) -> None:
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

    def test_a_store_in_memory_is_copied_by_a_fork(self) -> None:
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


def await_next_look() -> None:
    """Wait until a writer sees the new listeners: it reads the directory every 20 ms at most."""
    time.sleep(2 * LOOK_SECONDS)


class TestWakeups:
    @pytest.mark.parametrize("deep", [False, True])
    def test_an_enqueue_wakes_another_process(self, tmp_path: Path, deep: bool) -> None:
        """Also if the path is longer than the address of a socket may be."""
        folder = tmp_path / ("d" * 120 if deep else "d")
        folder.mkdir()
        path = folder / "jobs.db"
        store = SqliteStore(str(path))
        enqueue(store, job(queue="other"))
        listener = child(LISTEN, path, "q", "z")
        assert read_line(listener) == "listening"
        await_next_look()
        enqueue(store, job())
        assert read_line(listener) == "woken"
        read_rest(listener)
        run(close(store))

    def test_sockets_of_dead_processes_are_removed(self, path: Path) -> None:
        store = SqliteStore(str(path))
        enqueue(store, job())
        listener = child(LISTEN, path, "q")
        assert read_line(listener) == "listening"
        listener.kill()
        listener.communicate()
        folder = Path(f"{path}-wake")
        assert [each for each in folder.iterdir() if each.suffix == ".sock"]
        await_next_look()
        run(store.notify(["q"]))
        assert [each.name for each in folder.iterdir() if ".sock" in each.name] == []
        run(close(store))

    @pytest.mark.asyncio
    async def test_a_listener_is_found_if_the_time_of_the_directory_is_unchanged(
        self, store: SqliteStore, path: Path
    ) -> None:
        """The directory was read, a listener joined right after, and the directory still has the same time."""
        folder = Path(f"{path}-wake")
        tick = time.time_ns() + 3_600_000_000_000
        os.utime(folder, ns=(tick, tick))
        await store.enqueue(batch(job()))
        elsewhere = SqliteStore(str(path))
        listener = await elsewhere.listen("w", ["q"])
        os.utime(folder, ns=(tick, tick))
        await_next_look()
        await store.enqueue(batch(job()))
        assert await listener.wait(PATIENCE)
        await elsewhere.close()

    @pytest.mark.asyncio
    async def test_commits_at_the_end_wake_others_and_leave_no_socket_open(self, path: Path) -> None:
        """``close`` waits for what is pending; a wake-up then must not open the socket again after it was closed."""
        store, elsewhere = SqliteStore(str(path)), SqliteStore(str(path))
        await store.open()
        listener = await elsewhere.listen("w", ["q"])
        await_next_look()
        go_on = threading.Event()
        held = store.database.writer.send(lambda _: go_on.wait(PATIENCE))
        last = asyncio.create_task(store.enqueue(batch(job())))
        await asyncio.sleep(0)
        closing = asyncio.create_task(store.close())
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(held, last, closing)
        assert await listener.wait(PATIENCE)
        assert store.database._wakeups._socket is None
        await elsewhere.close()

    @pytest.mark.asyncio
    async def test_a_socket_that_cannot_be_bound_is_closed(
        self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
    ) -> None:
        gc.collect()  # the garbage of other tests
        recwarn.clear()
        monkeypatch.setattr(store.database._wakeups, "_base", "/nowhere/at/all")
        listener = await store.listen("w", ["q"])
        gc.collect()
        assert not [each for each in recwarn if each.category is ResourceWarning]
        await store.enqueue(batch(job()))
        assert await listener.wait(PATIENCE), "inside the process it is woken"

    @pytest.mark.asyncio
    async def test_only_listeners_of_the_queue_are_woken(self, store: SqliteStore) -> None:
        mine, other = await store.listen("w", ["q"]), await store.listen("w", ["other"])
        await store.enqueue(batch(job()))
        assert await mine.wait(PATIENCE)
        assert not await other.wait(0)

    @pytest.mark.asyncio
    async def test_a_scheduled_job_wakes_listeners_when_it_is_promoted(self, store: SqliteStore) -> None:
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
    def test_a_beat_gets_the_lock_while_others_write_all_the_time(self, path: Path, tmp_path: Path) -> None:
        """SQLite's lock is not fair: other processes get it because a writer pauses after its commit."""
        store = SqliteStore(str(path), durability="normal")
        run(store.open())
        stop = tmp_path / "stop"
        writers = [child(HAMMER, path, str(stop)) for _ in range(2)]
        assert [read_line(each) for each in writers] == ["writing"] * 2

        async def beats() -> None:
            worker = await Worker(store).join()
            for _ in range(30):
                (beaten,) = await store.beat([Beat(worker.name)])
                assert beaten.alive

        run(beats())
        stop.touch()
        for each in writers:
            read_rest(each)
        run(close(store))

    def test_a_writer_pauses_for_a_waiting_process(self, path: Path) -> None:
        """A process that waits for the lock shows it, and the process with the lock pauses after its commit."""
        store = SqliteStore(str(path))
        run(store.open())
        mine = sqlite3.connect(path, isolation_level=None)
        mine.execute("begin immediate")
        waiting = child('enqueue(store, job()); say("done")', path)
        lock = store.database.write_lock
        file = lock._opened()
        assert file is not None
        import fcntl  # POSIX only

        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                break
            fcntl.flock(file, fcntl.LOCK_UN)
        mine.execute("commit")
        assert read_line(waiting) == "done"
        read_rest(waiting)
        mine.close()
        run(close(store))


def test_a_killed_writer_loses_no_confirmed_job(path: Path) -> None:
    """After SIGKILL in the middle of writing every confirmed job exists, and the file is sound."""
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
        heard = int(read_line(process))
    process.kill()
    said, _ = process.communicate()
    heard = max([heard, *(int(line) for line in said.split() if line)])
    store = SqliteStore(str(path))
    assert run(states(store))[State.READY] >= heard
    assert store.database.writer.do(lambda tx: tx.cursor.execute("pragma integrity_check").fetchall()) == [("ok",)]
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
