"""Any number of event loops, one after the other or side by side, and blocking code between them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest

from mainspring import Mainspring
from mainspring.client import test_guard
from mainspring.errors import WouldBlockLoop
from mainspring.testing import servers
from tests.plugins.clean import CleanSchemas
from tests.traps.conftest import Programs

Apps = dict[str, Mainspring]

SHOP = """
    from mainspring import Mainspring

    app = Mainspring(poll="50ms")

    @app.task
    async def add(a: int, b: int) -> int:
        return a + b
"""


def test_two_asyncio_runs_in_a_row(programs: Programs) -> None:
    """The app works in the second loop as in the first, and in blocking code after and between them."""
    code = """
        import asyncio
        from shop import add, app

        async def once(n):
            job = await add.aenqueue(n, 1)
            async with app.worker():
                return await job.aresult(timeout=60)

        print(asyncio.run(once(1)))
        with app.worker():
            print(add.enqueue(1, 2).result(timeout=60))
        print(asyncio.run(once(3)))
        asyncio.run(app.aclose())
        print(asyncio.run(once(4)))
        app.close()
    """
    programs.write(shop=SHOP, main=code)
    assert programs.run("main.py").split() == ["2", "3", "4", "5"]


def test_two_loops_in_two_threads_share_an_app(programs: Programs) -> None:
    code = """
        import asyncio, threading
        from shop import add, app

        results = []

        async def many(n):
            jobs = await asyncio.gather(*(add.aenqueue(n, each) for each in range(20)))
            return [await job.aresult(timeout=60) for job in jobs]

        def one(n):
            results.append(asyncio.run(many(n)))

        with app.worker():
            threads = [threading.Thread(target=one, args=(n,)) for n in (0, 100, 200)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        print(sorted(results) == [[n + each for each in range(20)] for n in (0, 100, 200)])
    """
    programs.write(shop=SHOP, main=code)
    assert programs.run("main.py") == "True\n"


def test_uvloop_and_asyncio_loops_share_an_app(programs: Programs) -> None:
    code = """
        import asyncio, uvloop
        from shop import add, app

        async def once(n):
            async with app.worker():
                return await (await add.aenqueue(n, 1)).aresult(timeout=60)

        print(uvloop.run(once(1)), asyncio.run(once(2)), uvloop.run(once(3)))
    """
    programs.write(shop=SHOP, main=code)
    assert programs.run("main.py") == "2 3 4\n"


# ---- a new loop per test, in this very process -----------------------------------------------------


@pytest.fixture(scope="module")
def apps(tmp_path_factory: pytest.TempPathFactory, clean_schemas: CleanSchemas, postgres_url: str) -> Iterator[Apps]:
    with servers.valkey(own=True, settings={"appendonly": "yes"}) as valkey:
        urls = {"sqlite": f"sqlite:///{tmp_path_factory.mktemp('loops') / 'jobs.db'}", "postgres": postgres_url}
        clean_schemas.clean("loops")
        urls["redis"] = valkey.url
        made = {name: Mainspring(url, namespace="loops", poll="50ms") for name, url in urls.items()}
        yield made
        for app in made.values():
            app.close()


@pytest.fixture
def shared(apps: Apps, store_name: str) -> Mainspring:
    """One app for all tests of the module, as in a user's suite; each test has a loop of its own."""
    apps[store_name].task(name="add")(_add)
    return apps[store_name]


async def _add(a: int, b: int) -> int:
    return a + b


@pytest.mark.parametrize("n", range(3))
async def test_a_new_loop_per_test_can_use_the_app(shared: Mainspring, n: int) -> None:
    async with shared.worker():
        job = await shared.call("add", n, 1).aenqueue()
        assert await job.aresult(timeout=60) == n + 1


@pytest.mark.parametrize("n", range(2))
async def test_many_tasks_of_a_new_loop_open_the_store_once(shared: Mainspring, n: int) -> None:
    jobs = await asyncio.gather(*(shared.call("add", n, each).aenqueue() for each in range(20)))
    assert len({job.id for job in jobs}) == 20


def test_many_threads_open_the_store_once(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread opens the store, and the others wait for it."""
    app = Mainspring(store_url)
    app.task(name="add")(_add)
    barrier = threading.Barrier(8)
    opened: list[str] = []

    def slow(url: str) -> None:
        opened.append(url)
        time.sleep(0.1)

    monkeypatch.setattr(test_guard, "opening", [slow])

    def first(_: int) -> UUID:
        barrier.wait()
        return app.call("add", 1, 2).enqueue().id

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(first, range(8)))) == 8
    assert len(opened) == 1
    assert app.jobs.count().total == 8
    app.close()


async def test_a_blocking_wait_in_a_loop_names_the_async_method(shared: Mainspring) -> None:
    job = await shared.call("add", 1, 2).aenqueue()
    with pytest.raises(WouldBlockLoop, match=r"job\.result\(\) would block .*\n  Use: await job\.aresult"):
        job.result()
    with pytest.warns(UserWarning, match=r"enqueue\(\) blocks the running event loop; use: await aenqueue"):
        shared.call("add", 1, 2).enqueue()
    with pytest.warns(UserWarning, match=r"enqueue_many\(\) blocks the running event loop; use: await aenqueue_many"):
        shared.enqueue_many([shared.call("add", 1, 2)])
