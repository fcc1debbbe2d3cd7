"""Forks and other ways to start processes: an app that is used in the parent can be used in every child."""

from __future__ import annotations

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
