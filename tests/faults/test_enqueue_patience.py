"""An enqueue against a store that does not answer: one deadline for the whole call, and the cause in the message."""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mainspring import Mainspring
from mainspring.errors import StoreError, StoreMisconfigured, StoreUnavailable
from mainspring.stores.connect import sqlite_path
from tests.faults.test_servers import frozen
from tests.soak.arena import Arena
from tests.timing import patience

Enqueue = Callable[[Mainspring], None]


HOLD = """
import sqlite3, sys
held = sqlite3.connect(sys.argv[1], isolation_level=None)
held.execute("begin immediate")
print("held", flush=True)
sys.stdin.read()
held.execute("rollback")
"""


@contextlib.contextmanager
def silent(ground: Arena) -> Iterator[None]:
    """The store answers no call inside the block: a server is frozen, a file is locked by another process."""
    if ground.server is not None:
        with frozen(ground):
            yield
        return
    command = [sys.executable, "-c", HOLD, sqlite_path(ground.url)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        yield
        other.communicate("")


def blocking(app: Mainspring) -> None:
    app.call("shop.mail").enqueue()


def on_a_loop(app: Mainspring) -> None:
    async def go() -> None:
        await app.call("shop.mail").aenqueue()

    asyncio.run(go())


def on_an_open_loop(app: Mainspring) -> None:
    """Many at once, so that they share the writer and the connections."""

    async def go() -> None:
        calls = [app.call("shop.mail").aenqueue() for _ in range(20)]
        failed = await asyncio.gather(*calls, return_exceptions=True)
        for error in failed:
            assert isinstance(error, StoreUnavailable)
        raise failed[0]  # type: ignore[misc]  # all of them are errors

    asyncio.run(go())


def from_many_threads(app: Mainspring) -> None:
    failed: list[StoreUnavailable] = []

    def enqueue() -> None:
        try:
            app.call("shop.mail").enqueue()
        except StoreUnavailable as error:
            failed.append(error)

    threads = [threading.Thread(target=enqueue) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(failed) == 8
    raise failed[0]


def error_of(enqueue: Enqueue, app: Mainspring, limit: float) -> BaseException:
    """The error of the enqueue, which must have ended in this time."""
    found: list[BaseException] = []

    def run() -> None:
        try:
            enqueue(app)
        except BaseException as error:  # noqa: BLE001  # returned to the test
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit)
    assert not thread.is_alive(), f"the enqueue still waits after {limit:.1f} s"
    assert found, "the enqueue succeeded"
    return found[0]


@pytest.mark.option("app.enqueue_patience")
@pytest.mark.parametrize("is_used", [True, False], ids=["used", "new"])
@pytest.mark.parametrize("enqueue", [blocking, on_a_loop, on_an_open_loop, from_many_threads])
def test_one_deadline_for_an_enqueue_against_a_store_that_does_not_answer(
    ground: Arena, enqueue: Enqueue, is_used: bool
) -> None:
    app = Mainspring(ground.url, enqueue_patience="2s")
    if is_used:
        app.call("shop.mail").enqueue()
        app.jobs.count()
    with silent(ground):
        error = error_of(enqueue, app, patience(6))
        assert isinstance(error, StoreUnavailable)
        assert re.match(r"enqueue: tried (once|\d+ times) in \d\.\d s: .+", str(error))
    app.close()


@pytest.mark.option("app.enqueue_patience")
@pytest.mark.parametrize("enqueue", [blocking, on_a_loop])
def test_patience_of_zero_is_one_try(ground: Arena, enqueue: Enqueue) -> None:
    app = Mainspring(ground.url, enqueue_patience=0)
    app.call("shop.mail").enqueue()
    with silent(ground):
        error = error_of(enqueue, app, patience(5))
    assert str(error).startswith("enqueue: tried once in")
    app.close()


@pytest.mark.option("app.enqueue_patience")
@pytest.mark.parametrize("enqueue", [blocking, on_a_loop])
def test_the_enqueue_succeeds_when_the_store_answers_again(ground: Arena, enqueue: Enqueue) -> None:
    """All tries together make one job."""
    app = Mainspring(ground.url, enqueue_patience="60s")
    thread = threading.Thread(target=enqueue, args=(app,))
    with silent(ground):
        thread.start()
        thread.join(1.0)
        assert thread.is_alive()
    thread.join()
    assert sum(app.jobs.count().values()) == 1
    app.close()


# ---- causes ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def stopped(ground: Arena) -> Iterator[None]:
    """The server is down: it refuses connections."""
    assert ground.server is not None
    ground.server.kill()
    try:
        yield
    finally:
        ground.server.start()


@pytest.mark.stores("postgres", "redis")
@pytest.mark.parametrize("enqueue", [blocking, on_a_loop])
def test_a_refused_connection_is_in_the_message(ground: Arena, enqueue: Enqueue) -> None:
    app = Mainspring(ground.url, enqueue_patience="1s")
    with stopped(ground):
        error = error_of(enqueue, app, patience(5))
    assert isinstance(error, StoreUnavailable)
    assert "refused" in str(error) or "Connect call failed" in str(error) or "No such file" in str(error)
    app.close()


def _wrong_password(ground: Arena, tmp_path: Path) -> tuple[str, str]:
    if ground.name == "sqlite":
        return f"sqlite:///{tmp_path}/missing/jobs.db", "the directory of the SQLite file does not exist"
    scheme, rest = ground.url.split("://", 1)
    return f"{scheme}://nobody:wrong@{rest.rpartition('@')[2]}", "refused the"


@pytest.mark.parametrize("enqueue", [blocking, on_a_loop])
def test_an_error_that_no_retry_can_cure_fails_at_once(ground: Arena, enqueue: Enqueue, tmp_path: Path) -> None:
    """A missing directory, an unknown user: the patience is longer than the test."""
    url, words = _wrong_password(ground, tmp_path)
    app = Mainspring(url, enqueue_patience="10m")
    error = error_of(enqueue, app, patience(10))
    assert isinstance(error, StoreMisconfigured)
    assert words in str(error)
    assert "wrong" not in str(error).replace("WRONGPASS", "")


@pytest.mark.stores("postgres", "redis")
@pytest.mark.parametrize("enqueue", [blocking, on_a_loop])
def test_an_unknown_database_fails_at_once(ground: Arena, enqueue: Enqueue) -> None:
    if ground.name == "postgres":
        url = ground.url.replace("/postgres", "/nosuch")
    else:
        url = f"{ground.url.partition('?')[0].removesuffix('/0')}{'?db=' if ground.url.startswith('unix') else '/'}9999"
    app = Mainspring(url, enqueue_patience="10m")
    error = error_of(enqueue, app, patience(10))
    assert isinstance(error, StoreError)
    assert not isinstance(error, StoreUnavailable)
    assert "does not exist" in str(error) or "out of range" in str(error)


@pytest.mark.stores("sqlite")
@pytest.mark.parametrize("enqueue", [blocking, on_a_loop])
def test_a_path_that_is_a_directory_fails_at_once(ground: Arena, enqueue: Enqueue) -> None:
    folder = Path(sqlite_path(ground.url)).parent
    app = Mainspring(f"sqlite:///{folder}", enqueue_patience="10m")
    error = error_of(enqueue, app, patience(10))
    assert isinstance(error, StoreError)
    assert "is a directory" in str(error)
