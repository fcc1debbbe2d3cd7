"""What a user does wrong: each time an error that names the subject and the fix; nothing is lost, nothing loops."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from mainspring import Mainspring
from mainspring.client.blocking import run as blocking
from mainspring.codec import PAYLOAD_LIMIT, RESULT_LIMIT
from mainspring.common.ids import new_id
from mainspring.errors import (
    ArgumentNotSerializable,
    BadUrl,
    ConfigError,
    InCallerTransaction,
    InvalidOption,
    JobDead,
    JobNotFound,
    MissingArgument,
    NotBuilt,
    PayloadTooDeep,
    PayloadTooLarge,
    ResultTooLarge,
    UnknownArgument,
    UnknownOption,
    WouldBlockLoop,
    WrongArgument,
    WrongConnection,
)
from mainspring.jobs.records import JobBatch, NewJob
from mainspring.states import Reason, State
from tests.rows.test_queue import total
from tests.rows.test_store import file_of

LIMIT = 60


class Invoice:
    """Not a type that can be stored."""


@pytest.fixture
def add(app: Mainspring) -> Any:
    @app.task(name="add")
    def add(a: int, note: str = "") -> int:
        return a

    return add


def anything(app: Mainspring) -> Any:
    """``Mainspring``, past the type checker: it would refuse what is refused here."""
    return type(app)


def itself() -> list[Any]:
    """A list that contains itself."""
    loop: list[Any] = []
    loop.append(loop)
    return loop


# ---- arguments ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        (((), {}), MissingArgument, r"add\(\.\.\.\): argument 'a' missing\n  The task needs 'a'"),
        ((("one",), {}), WrongArgument, r"add\(a=\.\.\.\): argument 'a' expected int, got str"),
        (((1,), {"note": 2}), WrongArgument, r"argument 'note' expected str, got int"),
        (((1,), {"nots": "x"}), UnknownArgument, r"no argument 'nots'; did you mean 'note'\?\n  Arguments: a, note"),
        (((1, "x", 3), {}), UnknownArgument, r"add"),
        (((1, "x" * PAYLOAD_LIMIT), {}), PayloadTooLarge, r"limit is 1,000,000\n  Store the data elsewhere .* its key"),
        (((float("nan"),), {}), ArgumentNotSerializable, r"argument 'a' is nan; JSON has no NaN"),
    ],
)
@pytest.mark.stores("sqlite")
def test_arguments_are_refused_when_the_job_is_made(
    app: Mainspring, add: Any, arguments: tuple[tuple[Any, ...], dict[str, Any]], error: type[Exception], says: str
) -> None:
    args, kwargs = arguments
    with pytest.raises(error, match=says):
        add.enqueue(*args, **kwargs)
    assert total(app) == 0


@pytest.mark.parametrize(
    ("value", "error", "says"),
    [
        (Invoice(), ArgumentNotSerializable, r"'invoice' is an Invoice, which cannot be stored\n  Pass plain values"),
        ({"lines": [Invoice()]}, ArgumentNotSerializable, r"Invoice"),
        (itself(), PayloadTooDeep, r"'invoice' is nested deeper than 64 levels, or contains itself"),
    ],
    ids=["object", "inside", "itself"],
)
@pytest.mark.stores("sqlite")
def test_a_value_that_cannot_be_stored_is_refused_with_its_path(
    app: Mainspring, value: Any, error: type[Exception], says: str
) -> None:
    @app.task(name="post")
    def post(invoice: Any) -> None: ...

    with pytest.raises(error, match=says):
        post.enqueue(value)
    with pytest.raises(error, match=says.replace("'invoice'", ".*")):
        app.call("unknown.here", value)
    assert total(app) == 0


# ---- options -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("use", "error", "says"),
    [
        (lambda app, add: app.task(retrys=3)(add.fn), UnknownOption, "'retrys' does not exist; did you mean 'retries'"),
        (lambda app, add: add.options(prioritty=1), UnknownOption, "task 'add'.*did you mean 'priority'"),
        (lambda app, add: add.s(1).options(delai=1), UnknownOption, "did you mean 'delay'"),
        (lambda app, add: add.options(ack="early"), UnknownOption, r"is an option of @app.task"),
        (lambda app, add: anything(app)(leese="1s"), UnknownOption, "Mainspring: .*did you mean 'lease'"),
        (lambda app, add: app.worker(slots=1), UnknownOption, "'slots' does not exist"),
        (lambda app, add: add.options(delay="soon"), InvalidOption, "delay='soon': cannot be read .*\n  Write \"90s\""),
        (lambda app, add: add.options(run_at=datetime(2030, 1, 1)), InvalidOption, "no time zone"),  # noqa: DTZ001
        (lambda app, add: add.options(priority="urgent"), InvalidOption, "priority='urgent'.*\n  Names: "),
        (lambda app, add: add.options(queue="a b"), InvalidOption, "not a queue name"),
        (lambda app, add: Mainspring(namespace="A-1"), InvalidOption, "namespace='A-1'"),
        (lambda app, add: app.task(executor="async")(add.fn), InvalidOption, "does not fit a plain function"),
        (lambda app, add: app.task(limit=3)(add.fn), InvalidOption, "limit=3: is not a limit"),
        (lambda app, add: app.task(memory_limit="1G")(add.fn), NotBuilt, "'memory_limit' is not built yet"),
        (lambda app, add: add.options(key=7), InvalidOption, "task 'add': key=7: must be text or a Key"),
        (lambda app, add: add.options(tags="one"), InvalidOption, r"tags='one': must be a list.*\n  tags=\["),
        (lambda app, add: app.pipeline("etl"), NotBuilt, "'pipeline' is not built yet"),
        (lambda app, add: add.job("01a1e142-c0dc-7248-9e5f-e502c01970de").why(), JobNotFound, "does not exist"),
        (lambda app, add: add.s(1) | add.fn, InvalidOption, "is not a task"),
        (lambda app, add: add.s(1).then(3), InvalidOption, "is not a task"),
        (lambda app, add: app.enqueue_mny, AttributeError, "did you mean 'enqueue_many'"),
        (lambda app, add: add.s(1).enqeue(), AttributeError, "did you mean 'enqueue'"),
        (lambda app, add: add.job("not an id"), ValueError, "not an id"),
        (lambda app, add: Mainspring("mysql://host/db"), BadUrl, "mysql.*\n  Use sqlite:///"),
        (lambda app, add: Mainspring("jobs.db"), BadUrl, "'jobs.db'.*\n  Use sqlite:///"),
        (lambda app, add: Mainspring("sqlite://jobs.db").open(), BadUrl, "three or four slashes"),
        (lambda app, add: Mainspring(include="shop.tasks"), InvalidOption, r'Write include=\["shop.tasks"\]'),
        (lambda app, add: anything(app)("sqlite://", durability="high"), InvalidOption, "durability='high'"),
    ],
)
@pytest.mark.stores("sqlite")
def test_options_are_refused_with_the_fix(
    app: Mainspring, add: Any, use: Callable[[Mainspring, Any], Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=f"(?s){says}"):
        use(app, add)


def test_a_password_in_a_bad_url_is_not_shown() -> None:
    with pytest.raises(BadUrl) as refused:
        Mainspring("mysql://shop:s3cret@db/shop")
    assert "s3cret" not in str(refused.value)


@pytest.mark.stores("sqlite")
def test_two_tasks_cannot_have_one_name(app: Mainspring, add: Any) -> None:
    where = r"add \(.*test_bad_input\.py:\d+\)"
    with pytest.raises(ConfigError, match=rf"name='add': is already the name of .*{where}\n  Give one of"):

        @app.task(name="add")
        def other(a: int) -> int:
            return -a


# ---- results -----------------------------------------------------------------------------------------


def test_a_result_that_is_too_large_is_dropped_and_the_job_succeeded(app: Mainspring) -> None:
    runs: list[int] = []

    @app.task(name="large")
    def large() -> str:
        runs.append(1)
        return "x" * RESULT_LIMIT

    with app.worker():
        job = large.enqueue()
        with pytest.raises(ResultTooLarge, match=r"takes 1,000,002 bytes, the limit is 1,000,000; it was dropped"):
            job.result(timeout=LIMIT)
    assert job.info().state is State.SUCCEEDED
    assert runs == [1]


def test_a_result_that_cannot_be_stored_makes_the_job_dead_and_the_job_says_why(app: Mainspring) -> None:
    runs: list[int] = []

    @app.task(name="strange", retries=3)
    def strange() -> Any:
        runs.append(1)
        return Invoice()

    with app.worker():
        job = strange.enqueue()
        with pytest.raises(JobDead, match=r"Invoice, which cannot be stored.*\n  Return plain values"):
            job.result(timeout=LIMIT)
    assert (job.info().state, job.info().reason) == (State.DEAD, Reason.NOT_RETRYABLE), "another try gives the same"
    assert runs == [1]


# ---- what lies in the store --------------------------------------------------------------------------

GARBAGE = [
    b"\xff\x00 not json", b"", b"[]", b"42", b'{"v": 99, "args": {}}', b'{"args": {"a": "one"}}', b'{"args": {}}',
    b'{"args": {"nobody": 1}}', b"{" * 100_000, b'{"args": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
]  # fmt: skip


def test_malformed_records_make_jobs_dead_with_the_reason_and_other_jobs_run(app: Mainspring, add: Any) -> None:
    jobs = [add.job(plant(app, add.name, record)) for record in GARBAGE]
    are_dead_of_it(add, jobs, app)


@pytest.mark.stores("sqlite")
def test_records_of_a_wrong_column_type_make_jobs_dead_too(app: Mainspring, add: Any) -> None:
    """SQLite stores a value of any type in any column."""
    jobs = [add.enqueue(1) for _ in range(3)]
    with sqlite3.connect(file_of(app)) as file:
        for job, record in zip(jobs, ("text", 42, 1.5), strict=True):
            file.execute("update mainspring_jobs set record = ? where id = ?", (record, job.id.bytes))
    are_dead_of_it(add, jobs, app)


def plant(app: Mainspring, task: str, record: bytes) -> UUID:
    """A job with such a record, as a broken program would enqueue it."""
    made = new_id()

    async def enqueue() -> None:
        store = await app.client.store()
        await store.enqueue(
            JobBatch(id=made.bytes, jobs=(NewJob(id=made.bytes, task=task, queue="default", record=record),))
        )

    blocking("plant", enqueue())
    return made


def are_dead_of_it(add: Any, jobs: list[Any], app: Mainspring) -> None:
    good = add.enqueue(7)
    with app.worker():
        assert good.result(timeout=LIMIT) == 7
        infos = [job.join(timeout=LIMIT) for job in jobs]
        assert add.enqueue(8).result(timeout=LIMIT) == 8
    assert [(info.state, info.reason) for info in infos] == [(State.DEAD, Reason.UNDECODABLE)] * len(jobs)
    assert {info.attempt for info in infos} == {1}, "once, not in a loop"
    assert all(info.error and "cannot be decoded" in info.error.message for info in infos)


# ---- the wrong place ---------------------------------------------------------------------------------


async def test_a_blocking_wait_inside_a_loop_names_the_async_method(app: Mainspring, add: Any) -> None:
    job = await add.aenqueue(1)
    for wait, twin in (
        (job.result, "await job.aresult"),
        (job.join, "await job.ajoin"),
        (job.info, "await job.ainfo"),
        (job.cancel, "await job.acancel"),
        (app.open, "await app.aopen"),
    ):
        with pytest.raises(WouldBlockLoop, match=twin):
            wait()
    await app.aclose()


async def test_a_blocking_enqueue_inside_a_loop_works_and_warns(app: Mainspring, add: Any) -> None:
    with pytest.warns(UserWarning, match=r"enqueue\(\) blocks the running event loop; use: await aenqueue"):
        job = add.enqueue(1)
    assert (await job.ainfo()).state is State.READY
    await asyncio.sleep(0)
    await app.aclose()


@pytest.mark.stores("sqlite")
class TestTransactions:
    """What only a store with one writer at a time must refuse."""

    def test_an_enqueue_inside_the_callers_open_transaction_is_refused_with_the_fix(
        self, app: Mainspring, add: Any
    ) -> None:
        app.open()
        mine = sqlite3.connect(file_of(app), isolation_level=None)
        mine.execute("create table orders (n integer)")
        mine.execute("begin immediate")
        mine.execute("insert into orders values (1)")
        with pytest.raises(InCallerTransaction, match=r"this same process holds open.*\n  Pass connection="):
            add.enqueue(1)
        add.options(connection=mine).enqueue(2)
        mine.execute("commit")
        mine.close()
        assert total(app) == 1, "what was refused is not there, what was right is"

    def test_an_async_enqueue_inside_the_callers_open_transaction_is_refused(self, app: Mainspring, add: Any) -> None:
        async def inside() -> None:
            await app.aopen()
            mine = sqlite3.connect(file_of(app), isolation_level=None)
            mine.execute("begin immediate")
            try:
                with pytest.raises(InCallerTransaction, match=r"\n  Pass connection="):
                    await add.aenqueue(1)
            finally:
                mine.execute("rollback")
                mine.close()
                await app.aclose()

        asyncio.run(inside())

    def test_a_wrong_connection_is_refused(self, app: Mainspring, add: Any, tmp_path: Path) -> None:
        app.open()
        other = sqlite3.connect(tmp_path / "other.db", isolation_level=None)
        other.execute("begin")
        memory = sqlite3.connect(":memory:")
        idle = sqlite3.connect(file_of(app), isolation_level=None)
        for connection, says in (
            (object(), "builtins.object, not a sqlite3.Connection\n  With an ORM"),
            (other, r"open on .*other\.db, the jobs are in"),
            (memory, "a database in memory"),
            (idle, 'no open transaction.*\n  Execute "BEGIN IMMEDIATE" first'),
        ):
            with pytest.raises(WrongConnection, match=says):
                add.options(connection=connection).enqueue(1)
        for open_one in (other, memory, idle):
            open_one.close()
        assert total(app) == 0
