"""Dependencies of tasks, through the public API: supplied in the worker, closed after the attempt, in both colours."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from mainspring import AsyncContext, Context, Depends, Mainspring
from mainspring.errors import BadSignature, HardTimeout, UnknownArgument
from mainspring.states import State

pytestmark = pytest.mark.stores("sqlite")

LIMIT = 60


class Session:
    """Stands for a database session; remembers what was done with it."""

    def __init__(self) -> None:
        self.log: list[str] = []


@pytest.mark.parametrize("colour", ["def", "async def"])
def test_each_attempt_has_its_own_dependencies_closed_in_reverse_order(app: Mainspring, colour: str) -> None:
    sessions: list[Session] = []

    def connection() -> Iterator[Session]:
        sessions.append(Session())
        try:
            yield sessions[-1]
        finally:
            sessions[-1].log.append("connection closed")

    def session(connection: Session = Depends(connection)) -> Iterator[Session]:
        try:
            yield connection
        except ValueError as error:
            connection.log.append(f"rolled back: {error}")
            raise
        else:
            connection.log.append("committed")

    def work(ctx: Context, session: Session) -> int:
        session.log.append(f"attempt {ctx.attempt}")
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return len(sessions)

    if colour == "def":

        @app.task(name="bill", retries=1, backoff="10ms")
        def bill(ctx: Context, order: int, db: Session = Depends(session), raw: Session = Depends(connection)) -> int:
            assert db is raw, "one for each attempt"
            return order + work(ctx, db)

        job = bill.enqueue(40)
    else:

        @app.task(name="bill", retries=1, backoff="10ms")
        async def abill(
            ctx: AsyncContext, order: int, db: Session = Depends(session), raw: Session = Depends(connection)
        ) -> int:
            assert db is raw, "one for each attempt"
            return order + work(ctx, db)

        job = abill.enqueue(40)
    with app.worker():
        assert job.result(timeout=LIMIT) == 42
    assert [session.log for session in sessions] == [
        ["attempt 1", "rolled back: not yet", "connection closed"],
        ["attempt 2", "committed", "connection closed"],
    ]


def test_an_async_dependency_runs_on_the_loop_and_a_sync_one_in_the_thread_of_its_task(app: Mainspring) -> None:
    async def on_loop(ctx: AsyncContext) -> AsyncIterator[tuple[str, int]]:
        await asyncio.sleep(0)
        yield ctx.task, threading.get_ident()

    def in_thread(ctx: Context) -> Iterator[tuple[str, int]]:
        yield ctx.task, threading.get_ident()

    @app.task(name="aio")
    async def aio(found: tuple[str, int] = Depends(on_loop)) -> bool:
        return found == ("aio", threading.get_ident())

    @app.task(name="thread")
    def thread(found: tuple[str, int] = Depends(in_thread)) -> bool:
        return found == ("thread", threading.get_ident())

    jobs = [aio.enqueue(), thread.enqueue()]
    with app.worker():
        assert [job.result(timeout=LIMIT) for job in jobs] == [True, True]


@pytest.mark.parametrize("colour", ["def", "async def"])
def test_a_dependency_is_closed_when_a_time_limit_ends_the_body(app: Mainspring, colour: str) -> None:
    """In a thread and on the loop. The time limit stays the cause of the failure."""
    closed: list[str] = []

    def session() -> Iterator[Session]:
        try:
            yield Session()
        finally:
            closed.append("closed")

    if colour == "def":

        @app.task(name="slow", retries=0, timeout="300ms")
        def slow(db: Session = Depends(session)) -> None:
            while True:
                time.sleep(0.01)

        job = slow.enqueue()
    else:

        @app.task(name="slow", retries=0, timeout="300ms")
        async def aslow(db: Session = Depends(session)) -> None:
            await asyncio.sleep(LIMIT)

        job = aslow.enqueue()
    with app.worker():
        info = job.join(timeout=LIMIT)
    assert info.state is State.DEAD
    assert info.error is not None
    assert info.error.type.endswith(HardTimeout.__name__)
    assert closed == ["closed"]


def test_the_time_limit_includes_the_dependencies(app: Mainspring) -> None:
    def slow() -> int:
        while True:
            time.sleep(0.01)

    @app.task(name="waits", retries=0, timeout="300ms")
    def waits(value: int = Depends(slow)) -> None:
        raise AssertionError("never begins")

    with app.worker():
        info = waits.enqueue().join(timeout=LIMIT)
    assert info.error is not None
    assert info.error.type.endswith(HardTimeout.__name__)


def test_an_exception_of_a_dependency_is_the_error_of_the_attempt(app: Mainspring) -> None:
    calls: list[int] = []

    def database() -> int:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("the database is away")
        return 7

    @app.task(name="use", retries=1, backoff="10ms")
    async def use(db: int = Depends(database)) -> int:
        return db

    with app.worker():
        job = use.enqueue()
        assert job.result(timeout=LIMIT) == 7
    [first, *_] = job.info().attempts
    assert first.error is not None
    assert first.error.type == "ConnectionError"


def test_a_dependency_cannot_be_given_as_an_argument_at_enqueue(app: Mainspring) -> None:
    def database() -> str:
        return "real"

    @app.task(name="use")
    def use(a: int, db: str = Depends(database)) -> str:
        return f"{db} {a}"

    with pytest.raises(UnknownArgument):
        use.enqueue(1, db="fake")
    with pytest.raises(UnknownArgument):
        use.enqueue(1, "fake")
    job = use.enqueue(1)
    assert job.info().args == {"a": 1}
    with app.worker():
        assert job.result(timeout=LIMIT) == "real 1"


async def test_a_plain_call_supplies_dependencies_unless_they_are_given(app: Mainspring) -> None:
    closed: list[str] = []

    def database() -> Iterator[str]:
        yield "real"
        closed.append("closed")

    @app.task(name="use")
    def use(ctx: Context, a: int, db: str = Depends(database)) -> str:
        return f"{db} {a} {ctx.task}"

    @app.task(name="ause")
    async def ause(a: int, db: str = Depends(database)) -> str:
        return f"{db} {a}"

    assert use(1) == "real 1 use"
    assert await ause(2) == "real 2"
    assert closed == ["closed", "closed"]
    assert use(1, db="fake") == "fake 1 use"
    assert use(1, "fake") == "fake 1 use"
    assert await ause(2, db="fake") == "fake 2"
    assert closed == ["closed", "closed"], "what is given is not made"


def test_a_dependency_that_cannot_be_supplied_is_refused_at_declaration(app: Mainspring) -> None:
    async def later() -> int:
        return 1

    with pytest.raises(BadSignature, match="which is async"):

        @app.task(name="wrong")
        def wrong(value: int = Depends(later)) -> None: ...
