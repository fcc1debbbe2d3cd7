"""Faults that a reviewer found by trying to break things: they must not come back."""

from __future__ import annotations

import asyncio
import ctypes
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path

import pytest

from mainspring import Mainspring
from mainspring.common import job_threads
from mainspring.errors import HardTimeout, InvalidOption
from mainspring.states import State
from tests.plugins.outside import Outside, SqlOutside

LIMIT = 60


def in_thread(work: object) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)  # type: ignore[arg-type]
    thread.start()
    return thread


def run_script(path: Path) -> subprocess.CompletedProcess[str]:
    """Run it from a directory that is not its own."""
    command = [sys.executable, str(path)]
    return subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=LIMIT, check=False)


@pytest.mark.stores("sqlite")
class TestCalls:
    def test_a_call_of_another_app_is_refused(self, app: Mainspring) -> None:
        other = Mainspring("sqlite://")

        @other.task(name="theirs")
        def theirs() -> None: ...

        with pytest.raises(InvalidOption, match="another app"):
            app.enqueue_many([theirs.s()])

    @pytest.mark.stores("sqlite", "postgres")
    def test_calls_with_different_connections_are_refused(self, app: Mainspring, outside: SqlOutside) -> None:
        @app.task(name="note")
        def note() -> None: ...

        app.open()
        mine = outside.connect()
        with pytest.raises(InvalidOption, match="the same for all calls"):
            app.enqueue_many([note.options(connection=mine).s(), note.s()])
        mine.close()

    async def test_the_warning_about_a_blocked_loop_names_the_caller(self, app: Mainspring) -> None:
        @app.task(name="note")
        def note() -> None: ...

        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            note.enqueue()
            note.s().enqueue()
        assert [Path(each.filename).name for each in said] == [Path(__file__).name] * 2


class TestBodies:
    @pytest.mark.own_server
    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it may strike in a finaliser
    def test_an_exception_thrown_into_a_body_while_it_enqueues_leaves_the_store_usable(
        self, app: Mainspring, outside: Outside
    ) -> None:
        """Exceptions from outside arrive at any bytecode. None may arrive while the store's lock is held or a
        transaction is open.
        """

        @app.task(name="note")
        def note(n: int) -> None: ...

        app.open()
        struck, stop = 0, threading.Event()

        def body() -> None:
            job_threads.enter()
            nonlocal struck
            while True:
                with suppress(HardTimeout):  # it may arrive in a line of this loop too
                    while not stop.is_set():
                        try:
                            note.enqueue(1)
                        except HardTimeout:
                            struck += 1
                    return

        def rebuild(self: BaseException) -> None:
            BaseException.__init__(self, "struck")

        kind = type("HardTimeout", (HardTimeout,), {"__init__": rebuild, "__str__": lambda _: "struck"})
        thread = in_thread(body)
        for _ in range(200):
            time.sleep(0.005)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(kind))
            note.enqueue(2)  # a neighbour is not struck
        stop.set()
        thread.join(LIMIT)
        assert struck > 0
        with outside.hold():
            """Nobody has a lock."""

    def test_a_blocking_enqueue_returns_beside_a_busy_loop(self, app: Mainspring) -> None:
        @app.task(name="note")
        def note(n: int) -> None: ...

        async def flood(over: asyncio.Event) -> None:
            async def one() -> None:
                while not over.is_set():
                    await note.aenqueue(1)

            await asyncio.gather(*(one() for _ in range(50)))

        over = asyncio.Event()
        loop = asyncio.new_event_loop()
        thread = in_thread(lambda: loop.run_until_complete(flood(over)))
        while loop.is_running() is False:
            time.sleep(0.001)
        for _ in range(20):
            note.enqueue(2)
        loop.call_soon_threadsafe(over.set)
        thread.join(LIMIT)
        assert not thread.is_alive()
        loop.run_until_complete(app.aclose())
        loop.close()


class TestEmbedded:
    def test_stopping_a_worker_has_a_limit_whatever_jobs_left_on_the_loop(self, app: Mainspring) -> None:
        @app.task(name="leak")
        async def leak() -> None:
            async def stubborn() -> None:
                while not over.is_set():
                    try:
                        await asyncio.sleep(0.1)
                    except asyncio.CancelledError:
                        continue

            kept.append(asyncio.create_task(stubborn()))

        kept: list[asyncio.Task[None]] = []
        over = threading.Event()
        worker = app.worker(grace="200ms", drain="200ms")
        with worker:
            leak.enqueue().join(timeout=LIMIT)
        assert worker.exit_code == 0
        assert not kept[0].done()
        over.set()
        kept[0].get_loop().run_until_complete(kept[0])  # tidy up for the interpreter
        kept[0].get_loop().close()

    @pytest.mark.stores("sqlite")
    def test_a_replaced_database_file_is_noticed(self, app: Mainspring) -> None:
        @app.task(name="echo")
        async def echo(n: int) -> int:
            return n

        path = Path(app.settings.url.removeprefix("sqlite:///"))
        with app.worker():
            assert echo.enqueue(1).result(timeout=LIMIT) == 1
            for file in path.parent.glob(path.name + "*"):
                if file.is_file():
                    file.unlink()
            fresh = Mainspring(app.settings.url)
            again = fresh.task(name="echo")(echo.fn)
            assert again.enqueue(2).result(timeout=LIMIT) == 2
            fresh.close()

    def test_a_snoozing_job_keeps_a_bounded_history(self, app: Mainspring) -> None:
        from mainspring import Snooze

        seen = 0

        @app.task(name="sleepy")
        async def sleepy() -> None:
            nonlocal seen
            seen += 1
            if seen <= 130:
                raise Snooze(for_="1ms")

        with app.worker():
            info = sleepy.enqueue().join(timeout=LIMIT)
        assert info.state is State.SUCCEEDED
        assert len(info.attempts) == 100


@pytest.mark.stores("sqlite")
class TestRun:
    def test_run_works_from_another_directory_with_every_kind_of_duration(self, store_url: str, tmp_path: Path) -> None:
        package = tmp_path / "shop"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "tasks.py").write_text(
            textwrap.dedent(f"""
                import os
                from mainspring import Mainspring

                app = Mainspring({store_url!r})

                @app.task
                def path() -> str:
                    return os.environ.get("PYTHONPATH", "unset")
            """)
        )
        (tmp_path / "main.py").write_text(
            textwrap.dedent("""
                import sys
                from datetime import timedelta
                from shop.tasks import app, path

                if __name__ == "__main__":
                    job = path.enqueue()
                    code = app.run(until_empty=True, drain=timedelta(seconds=5), lease=3.0, queues={"default"})
                    print(job.result(timeout=60))
                    sys.exit(code)
            """)
        )
        shown = run_script(tmp_path / "main.py")
        assert (shown.returncode, shown.stdout.strip()) == (0, "unset"), shown.stderr

    def test_run_finds_an_app_made_by_a_factory(self, store_url: str, tmp_path: Path) -> None:
        (tmp_path / "making.py").write_text(
            textwrap.dedent("""
                from mainspring import Mainspring

                class Own(Mainspring):
                    def __init__(self, url: str) -> None:
                        super().__init__(url, version="7")

                def make(url: str) -> Own:
                    return Own(url)
            """)
        )
        (tmp_path / "main.py").write_text(
            textwrap.dedent(f"""
                import sys
                from making import make

                app = make({store_url!r})

                @app.task
                def two() -> int:
                    return 2

                if __name__ == "__main__":
                    job = two.enqueue()
                    code = app.run(until_empty=True)
                    print(job.result(timeout=60))
                    sys.exit(code)
            """)
        )
        shown = run_script(tmp_path / "main.py")
        assert (shown.returncode, shown.stdout.strip()) == (0, "2"), shown.stderr

    def test_a_lifespan_that_exits_is_a_failed_start(self, store_url: str, tmp_path: Path) -> None:
        (tmp_path / "main.py").write_text(
            textwrap.dedent(f"""
                import sys
                from mainspring import Mainspring

                app = Mainspring({store_url!r})

                @app.lifespan
                def database():
                    sys.exit(0)
                    yield

                @app.task
                def two() -> int:
                    return 2

                if __name__ == "__main__":
                    sys.exit(app.run(until_empty=True))
            """)
        )
        shown = run_script(tmp_path / "main.py")
        assert shown.returncode == 1
        assert "SystemExit" in shown.stderr
