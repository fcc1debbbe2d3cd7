"""Forks and other ways to start processes: an app that is used in the parent can be used in every child."""

from __future__ import annotations

import re

import pytest

from tests.traps.conftest import Programs

SHOP = """
    from mainspring import Mainspring

    app = Mainspring(poll="50ms")

    @app.task
    async def add(a: int, b: int) -> int:
        return a + b
"""

# What a server does that loads the application first and forks its workers then.
PRELOAD = """
    import asyncio, os, sys, threading
    from shop import add, app

    CHILDREN = 3

    def serve(n):
        async def request():
            job = await add.aenqueue(n, 100)
            return await job.aresult(timeout=60)

        jobs = [add.enqueue(n, each) for each in range(10)]
        right = [job.result(timeout=60) for job in jobs] == [n + each for each in range(10)]
        right = right and asyncio.run(request()) == n + 100
        right = right and threading.Thread(target=add.enqueue, args=(n, 0)).start() is None
        app.close()
        return 0 if right else 1

    {before}
    sys.stdout.flush()
    pids = []
    for n in range(CHILDREN):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = serve(n)
            finally:
                sys.stdout.flush()
                os._exit(code)
        pids.append(pid)
    after = add.enqueue(1, 1)
    with app.worker():
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        print(codes, after.result(timeout=60))
        {after}
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("app.open()", ""),
        ("first = add.enqueue(1, 2)", "print(first.result(timeout=60))"),
        ("first = add.enqueue(1, 2); first.info()", "print(first.result(timeout=60))"),
        ("first = asyncio.run(add.aenqueue(1, 2))", "print(first.result(timeout=60))"),
    ],
    ids=["opened", "enqueued", "with the background loop running", "after an event loop"],
)
def test_an_app_used_before_a_fork_works_in_parent_and_children(programs: Programs, before: str, after: str) -> None:
    """The parent has used the app in some way. Then parent and children enqueue and read results."""
    programs.write(shop=SHOP, main=PRELOAD.format(before=before, after=after))
    said = programs.run("main.py").split("\n")
    assert said[0] == "[0, 0, 0] 2"
    assert not after or said[1] == "3"


def test_a_fork_while_other_threads_use_the_app(programs: Programs) -> None:
    """Locks that they hold at that instant are not held in the child. Python's own locks around a first import are
    an exception, so the app is used once before.
    """
    code = """
        import os, sys, threading
        from shop import add, app

        over = threading.Event()
        add.enqueue(0, 0).info()

        def busy():
            while not over.is_set():
                add.enqueue(0, 0).info()

        threads = [threading.Thread(target=busy) for _ in range(3)]
        for thread in threads:
            thread.start()
        codes = []
        for n in range(10):
            pid = os.fork()
            if pid == 0:
                state = add.enqueue(n, n).info().state
                os._exit(0 if state == "ready" else 1)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        over.set()
        for thread in threads:
            thread.join()
        print(codes, len({job.id for job in app.jobs.iterate()}) == app.jobs.count().total)
    """
    programs.write(shop=SHOP, main=code)
    assert programs.run("main.py") == f"{[0] * 10} True\n"


def test_two_threads_can_fork_at_the_same_time(programs: Programs) -> None:
    """The store of the parent works afterwards."""
    code = """
        import os, threading, warnings
        from shop import add, app

        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of a fork beside threads
        first = add.enqueue(1, 2)
        together = threading.Barrier(4)

        def fork():
            for _ in range(10):
                together.wait()
                pid = os.fork()
                if pid == 0:
                    os._exit(0)
                os.waitpid(pid, 0)

        threads = [threading.Thread(target=fork) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(first.info().state.value, add.enqueue(1, 2).info().state.value)
    """
    programs.write(shop=SHOP, main=code)
    assert programs.run("main.py") == "ready ready\n"


@pytest.mark.stores("sqlite")
def test_a_fork_after_a_failed_fork_is_not_blocked(programs: Programs) -> None:
    """Python ignores an error of a hook. The lock of the hooks must be free for the fork of another thread."""
    code = """
        import os, sys, threading
        from mainspring.stores.sqlite.driver.database import SqliteDatabase
        from shop import add

        def fork():
            pid = os.fork()
            if not pid:
                os._exit(0)
            os.waitpid(pid, 0)

        def fail(database):
            raise OSError("a hook that fails")

        add.enqueue(1, 2)
        sys.unraisablehook = lambda _: None
        connections, SqliteDatabase.connections = SqliteDatabase.connections, fail
        fork()
        SqliteDatabase.connections = connections
        other = threading.Thread(target=fork, daemon=True)
        other.start()
        other.join(20)
        print(other.is_alive())
    """
    programs.write(shop=SHOP, main=code)
    assert programs.run("main.py") == "False\n"


def test_a_worker_belongs_to_the_process_that_started_it(programs: Programs) -> None:
    """A child of the host can enqueue. It cannot stop the parent's worker, and its exit does not disturb it."""
    code = """
        import os, sys
        from mainspring.errors import ForkedWorker
        from shop import add, app

        with app.worker() as worker:
            pid = os.fork()
            if pid == 0:
                try:
                    worker.stop()
                except ForkedWorker as error:
                    result = add.enqueue(2, 3).result(timeout=60)
                    print("Start workers after the fork" in str(error), result, flush=True)
                os._exit(0)
            os.waitpid(pid, 0)
            print(add.enqueue(1, 2).result(timeout=60))
    """
    programs.write(shop=SHOP, main=code)
    assert programs.run("main.py") == "True 5\n3\n"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_producers_can_enqueue(programs: Programs, method: str) -> None:
    """Also in a pool, and also with tasks of the script itself."""
    code = f"""
        import multiprocessing
        from shop import add, app

        @app.task
        def double(n: int) -> int:
            return 2 * n

        def produce(n):
            return str(double.enqueue(n).id), str(add.enqueue(n, n).id)

        if __name__ == "__main__":
            double.enqueue(0)
            add.enqueue(0, 0)
            with multiprocessing.get_context("{method}").Pool(3) as pool:
                made = pool.map(produce, range(1, 9))
                pool.close()
                pool.join()
            with app.worker():
                print([double.job(one).result(timeout=60) for one, _ in made])
                print([add.job(other).result(timeout=60) for _, other in made])
    """
    programs.write(shop=SHOP, main=code)
    doubled = str([2 * n for n in range(1, 9)])
    assert programs.run("main.py").split("\n")[:2] == [doubled, doubled]


FORKING = """
    import asyncio, os, sys, warnings
    from mainspring import Mainspring

    app = Mainspring(poll="50ms")
    warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of a fork beside threads

    def wait(pid):
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    @app.task(retries=0)
    def forks(how: str) -> int:
        pid = os.fork()
        if pid:
            return wait(pid)
        if how == "exits":
            sys.exit(7)
        if how == "fails":
            raise ValueError("in the child")
        return -1

    @app.task(retries=0)
    async def aforks(how: str) -> int:
        never = asyncio.get_running_loop().create_future()
        pid = os.fork()
        if pid:
            return wait(pid)
        if how == "sleeps":
            await asyncio.sleep(3600)
        if how == "waits":
            await never
        return -1

    def fork_and_wait():
        pid = os.fork()
        return wait(pid) if pid else -1

    @app.task(retries=0)
    async def forks_in_a_thread_pool() -> int:
        return await asyncio.to_thread(fork_and_wait)

    @app.bulk_task(size=2, retries=0)
    def bulk_forks(items: list[int]) -> list[int]:
        pid = os.fork()
        return [wait(pid) if pid else -1] * len(items)

    if __name__ == "__main__":
        calls = [forks.s("returns"), forks.s("exits"), forks.s("fails"), aforks.s("returns"), aforks.s("sleeps"),
                 aforks.s("waits"), bulk_forks.s(1), forks_in_a_thread_pool.s()]
        if sys.argv[1] == "embedded":
            with app.worker():
                print([job.result(timeout=60) for job in app.enqueue_many(calls)])
        elif sys.argv[1] == "enqueue":
            print(*(job.id for job in app.enqueue_many(calls)))
        else:
            print([forks.job(id).result(timeout=60) for id in sys.argv[2:]])
"""


@pytest.mark.parametrize("worker", ["embedded", "supervised"])
def test_a_process_that_a_body_forks_ends_where_the_body_ends(programs: Programs, worker: str) -> None:
    """The child never works as a worker; its exit code is that of a program. The job of the parent ends as usual."""
    programs.write(shop=FORKING)
    if worker == "embedded":
        said = programs.run("shop.py", "embedded", quiet=False)
    else:
        jobs = programs.run("shop.py", "enqueue").split()
        said = programs.run("-m", "mainspring", "worker", "shop", "--until-empty", quiet=False)
        said += programs.run("shop.py", "read", *jobs)
    print(said)  # whole, if one of these fails
    assert "[0, 7, 1, 0, 1, 0, 0, 0]" in said
    assert said.count("the function of a thread pool ended in the process") == 1
    assert re.search(
        r"body of task 'shop.forks' \(job [0-9a-f-]+\) ended in the process \d+, which it had forked", said
    )
    assert said.count("End a forked process with os._exit(0), or use subprocess or multiprocessing.") == 8
    assert "retrying: no running event loop" not in said, "a child ran the services of the worker"
    assert "could not remove its row" not in said, "the parent missed a wake-up"


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_child_of_multiprocessing_runs_at_full_speed(programs: Programs, loop: str) -> None:
    """A worker watches the frames of a forked body. A child of ``multiprocessing`` never returns to the body, so it
    must not pay for that."""
    code = f"""
        import asyncio, multiprocessing, sys, uvloop, warnings
        from mainspring import Mainspring

        app = Mainspring(poll="50ms")
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of a fork beside threads

        def report(queue):
            queue.put(sys.getprofile() is None)

        @app.task(retries=0)
        async def starts() -> bool:
            context = multiprocessing.get_context("fork")
            queue = context.SimpleQueue()
            child = context.Process(target=report, args=(queue,))
            child.start()
            await asyncio.to_thread(child.join)
            return queue.get() and child.exitcode == 0

        async def main():
            async with app.worker():
                job = await starts.aenqueue()
                print(type(asyncio.get_running_loop()).__module__.partition(".")[0], await job.aresult(timeout=60))

        with asyncio.Runner(loop_factory={loop}.new_event_loop) as runner:
            runner.run(main())
    """
    programs.write(main=code)
    assert programs.run("main.py") == f"{loop} True\n"
