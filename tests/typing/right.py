"""Programs that both type checkers must accept, one function each. Never run: only checked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type
from uuid import UUID

from mainspring import (
    AsyncContext,
    AsyncTask,
    Backoff,
    Call,
    Chain,
    Context,
    Dag,
    Depends,
    Event,
    Group,
    Job,
    JobInfo,
    Key,
    Mainspring,
    Middleware,
    Query,
    ScheduleEvent,
    Secret,
    Task,
    Tasks,
    chain,
    chord,
    group,
)

app = Mainspring(
    "sqlite:///typing.db",
    include=["shop.tasks"],
    version="7",
    durability="normal",
    lease="5s",
    routes={"shop.*": "shop"},
)
JOB_ID = "0190c0de-0000-7000-8000-000000000000"


class Session:
    def close(self) -> None: ...


@app.task
def add(a: int, b: int = 1) -> int:
    return a + b


@app.task
async def send(to: str, *, subject: str) -> str:
    return to + subject


@app.task
def alert(job: UUID) -> None: ...


@app.task
async def aalert(job: UUID, *, loud: bool = False) -> None: ...


# ---- tasks and calls -------------------------------------------------------------------------------


def a_plain_call_is_a_plain_call() -> None:
    assert_type(add(1, 2), int)
    assert_type(add.fn(1), Any)


async def a_plain_call_of_an_async_task_is_awaited() -> None:
    assert_type(await send("a", subject="b"), str)


def enqueue_gives_a_job_of_the_result() -> None:
    assert_type(add.enqueue(1), Job[int])
    assert_type(add.enqueue(1, b=2).result(timeout=5), int)
    assert_type(send.enqueue("a", subject="b").result("5s"), str)


async def the_twin_is_awaited() -> None:
    job = await send.aenqueue("a", subject="b")
    assert_type(job, Job[str])
    assert_type(await job.aresult(timedelta(seconds=5)), str)


def a_task_with_options() -> None:
    @app.task(queue="email", retries=3, timeout="30s", priority="high", retry_on=(ConnectionError, TimeoutError))
    async def mail(to: str) -> str:
        return to

    assert_type(mail.enqueue("a@b.c").result(), str)
    assert_type(mail.name, str)


def more_options_of_a_task() -> None:
    @app.task(
        name="shop.pay", aliases=["pay"], executor="thread", backoff=Backoff.fixed("5s"), soft_timeout=1.5,
        timeout=timedelta(minutes=1), ack="late", fence="strict", result="ignore", crashes=1, expires=60,
        never_retry_on=KeyError, retry_if=lambda error: isinstance(error, OSError), retention="1d",
        tags=["shop"], meta={"team": {"id": 7}}, sensitive=["card"],
    )  # fmt: skip
    def pay(card: str) -> bool:
        return True

    assert_type(pay.enqueue("1").result(), bool)


def a_context_is_no_argument() -> None:
    @app.task
    def with_context(ctx: Context, name: str) -> str:
        ctx.progress(1, 2, "half", colour="blue")
        return f"{name} {ctx.attempt} {ctx.token} {ctx.deadline}"

    assert_type(with_context("x"), str)
    assert_type(with_context.enqueue("x"), Job[str])


async def an_async_context_neither() -> None:
    @app.task(retries=1)
    async def with_context(ctx: AsyncContext, n: int) -> list[int]:
        ctx.check()
        async for item in ctx.track([n]):
            ctx.send(item)
        return [n]

    job = await with_context.aenqueue(3)
    assert_type(job, Job[list[int]])
    assert_type(await with_context(3), list[int])


def a_call_is_complete() -> None:
    assert_type(add.s(1), Call[int])
    assert_type(add.s(1).options(delay="5m", tags=["x"]).enqueue(), Job[int])
    assert_type(add.s(1).arguments, dict[str, Any])


def options_of_a_job() -> None:
    assert_type(add.options(priority=10, queue="slow").enqueue(1), Job[int])
    add.options(run_at=datetime(2030, 1, 1, tzinfo=UTC), expires=60, timeout=None, meta={"a": [1]}).enqueue(3)
    add.options(delay=timedelta(hours=1), retries=0, connection=object()).s(1)


def many_calls_of_one_task() -> None:
    assert_type(add.enqueue_many([add.s(1), add.s(2)]), list[Job[int]])
    assert_type(app.enqueue_many(add.s(n) for n in range(3)), list[Job[int]])


async def many_calls_of_several_tasks() -> None:
    calls: list[Call[int | str]] = [add.s(1), send.s("a", subject="b")]
    assert_type(await app.aenqueue_many(calls), list[Job[int | str]])


def a_call_by_name() -> None:
    call = app.call("elsewhere.task", 1, "two", three=3.0).options(queue="other")
    assert_type(call, Call[Any])
    assert_type(call.enqueue(), Job[Any])


def a_known_job() -> None:
    assert_type(add.job(JOB_ID), Job[int])
    assert_type(add.job(UUID(JOB_ID)).info(), JobInfo)


def jobs_and_calls_are_covariant() -> None:
    def waits(job: Job[object]) -> object:
        return job.result()

    def enqueues(call: Call[float]) -> Job[float]:
        return call.enqueue()

    waits(add.enqueue(1))
    enqueues(add.s(1))


def a_function_takes_tasks() -> None:
    def ten_times(task: Task[[int], int] | AsyncTask[[int], int]) -> list[Job[int]]:
        return [task.enqueue(n) for n in range(10)]

    @app.task
    def double(n: int) -> int:
        return 2 * n

    assert_type(ten_times(double), list[Job[int]])


def old_payloads() -> None:
    @send.upgrade
    def from_v1(old: dict[str, Any]) -> dict[str, Any]:
        return {"to": old["address"]}

    assert_type(from_v1({}), dict[str, Any])


# ---- libraries -------------------------------------------------------------------------------------


def tasks_of_a_library() -> None:
    tasks = Tasks()

    @tasks.task
    def plain(n: int) -> str:
        return str(n)

    @tasks.task(queue="lib", on_dead=alert)
    async def other(ctx: AsyncContext, n: int) -> int:
        return n

    app.include(tasks, "shop.more")
    assert_type(plain.enqueue(1), Job[str])
    assert_type(other.s(1), Call[int])


# ---- bulk tasks ------------------------------------------------------------------------------------


@app.bulk_task(size=100, wait="50ms", by="tenant", retries=3)
def price(items: Sequence[str]) -> Sequence[int | Exception]:
    return [len(item) for item in items]


@app.bulk_task()
async def aprice(items: list[str]) -> list[int | Exception]:
    return [ValueError(item) for item in items]


@app.bulk_task
def bare_price(items: list[str]) -> list[int | Exception]:
    return [len(item) for item in items]


@app.bulk_task
async def abare_price(items: list[str]) -> list[int | Exception]:
    return [len(item) for item in items]


def a_bulk_task_needs_no_options() -> None:
    assert_type(bare_price, Task[[str], int])
    assert_type(abare_price, AsyncTask[[str], int])


def a_job_of_a_bulk_task_has_one_item() -> None:
    assert_type(price, Task[[str], int])
    assert_type(price.enqueue("a").result(timeout=5), int)
    assert_type(price.s("a"), Call[int])
    assert_type(price.enqueue_many(price.s(each) for each in ("a", "b")), list[Job[int]])
    assert_type(price("a"), int)


async def an_async_bulk_task_is_an_async_task() -> None:
    assert_type(aprice, AsyncTask[[str], int])
    assert_type(await (await aprice.aenqueue("a")).aresult(), int)
    assert_type(await aprice("a"), int)


def a_bulk_handler_may_take_the_context_and_dependencies() -> None:
    def session() -> Session:
        return Session()

    @app.bulk_task(size=5, by=len)
    def store(ctx: Context, items: Sequence[str], db: Session = Depends(session)) -> list[UUID]:
        return [each.job_id for each in ctx.jobs]

    @Tasks().bulk_task(size=5, by=lambda item: item)
    async def astore(ctx: AsyncContext, items: list[str]) -> Sequence[Exception | None]:
        return [None for _ in items]

    assert_type(store, Task[[str], UUID])
    assert_type(astore, AsyncTask[[str], None])


# ---- keys ------------------------------------------------------------------------------------------


def keys_of_a_job() -> None:
    add.options(key="once").enqueue(1)
    add.options(key=Key("once", window="1h", on_conflict="replace")).enqueue(1)
    add.s(1).options(key=Key.arguments("a", "b", keep=timedelta(days=1), on_conflict="error"))
    add.options(key=Key("index", mode="debounce", window="10s", max_wait=60)).enqueue(1)
    add.options(key=Key.arguments("a", mode="throttle", window=timedelta(seconds=5))).enqueue(1)
    add.options(key=Key("sync", mode="keep_last")).enqueue(1)
    add.options(key=Key("request-7", keep="1d")).enqueue(1)
    add.options(key=None)


def the_key_of_a_task() -> None:
    @app.task(key=Key.arguments("user"))
    def sync_user(user: int, reason: str = "") -> None: ...

    job = sync_user.enqueue(1)
    assert_type(job.created, bool)


# ---- follow-ups ------------------------------------------------------------------------------------


def follow_ups_take_the_id_of_the_job() -> None:
    @app.task(on_success=alert, on_dead=aalert, on_cancel="elsewhere.alert")
    def work() -> None: ...

    @app.task(on_dead=aalert.options(priority="high"), on_success=None)
    async def more() -> None: ...

    work.enqueue()
    more.enqueue()


def or_are_complete_calls() -> None:
    @app.task(on_success=add.s(1, 2), on_dead=app.call("elsewhere", 1))
    def work() -> None: ...

    work.enqueue()


# ---- dependencies and secrets ----------------------------------------------------------------------


def a_dependency_that_returns() -> None:
    def get_db() -> Session:
        return Session()

    @app.task
    def bill(order: int, db: Session = Depends(get_db)) -> int:
        db.close()
        return order

    bill.enqueue(7)
    assert_type(bill(7, db=Session()), int)


def a_dependency_that_yields() -> None:
    def get_db(ctx: Context) -> Iterator[Session]:
        yield Session()

    @app.task(retries=1)
    def bill(ctx: Context, order: int, *, db: Session = Depends(get_db)) -> int:
        return order

    assert_type(bill.enqueue(7), Job[int])


async def async_dependencies() -> None:
    async def get_name() -> str:
        return "x"

    async def get_db(name: str = Depends(get_name)) -> AsyncIterator[Session]:
        yield Session()

    @app.task
    async def bill(order: int, db: Session = Depends(get_db), name: str = Depends(get_name, cache=False)) -> int:
        return order

    assert_type(await bill(7), int)


def secrets() -> None:
    @app.task
    def login(token: Secret[str]) -> Secret[int]:
        return Secret(len(token.reveal()))

    job = login.enqueue(Secret("t0ken"))
    assert_type(job.result(), Secret[int])
    assert_type(job.result().reveal(), int)


# ---- around jobs -----------------------------------------------------------------------------------


def hooks_of_both_colours() -> None:
    @app.on("dead", "cancelled")
    def tell(event: Event) -> None:
        print(event.job, event.task, event.reason)

    @app.on("started", task="shop.*")
    async def atell(event: Event) -> None: ...

    print(tell, atell)


def middleware() -> None:
    class Audit(Middleware):
        def enqueue(self, call: Call[Any]) -> Call[Any]:
            return call.options(tags=[call.task])

        async def arun(self, ctx: AsyncContext, body: Any) -> Any:
            return await body()

        run = Middleware.run

    app.middleware(Audit())


async def lifespans() -> None:
    @app.lifespan
    async def database() -> AsyncIterator[Session]:
        yield Session()

    async for session in database():
        assert_type(session, Session)


def spawned_jobs() -> None:
    @app.task
    def parent(ctx: Context) -> int:
        return ctx.spawn(add.s(1)).result()

    @app.task
    async def aparent(ctx: AsyncContext) -> int:
        job = await ctx.spawn(add.s(1))
        assert_type(job, Job[int])
        return await job.aresult()

    parent.enqueue()
    aparent.enqueue()


# ---- jobs, queues, workers -------------------------------------------------------------------------


def what_a_job_tells() -> None:
    job = add.enqueue(1)
    for info in job.watch(timeout="1m"):
        assert_type(info, JobInfo)
    assert_type(list(job.stream()), list[Any])
    assert_type([entry.text for entry in job.logs(after=3)], list[str])
    assert_type((job.cancel("no"), job.run_now()), tuple[bool, bool])


async def and_its_twins() -> None:
    job = await add.aenqueue(1)
    async for info in job.awatch():
        assert_type(info.tags, tuple[str, ...])
    assert_type(await job.ajoin(), JobInfo)
    assert_type(await job.acancel("not needed"), bool)
    await job.aretry()
    await job.adelete()


def many_jobs() -> None:
    query = Query.where(
        states=["dead"], queues=["email"], tags=["x"], since=datetime(2030, 1, 1, tzinfo=UTC), parent=JOB_ID
    )
    assert_type(app.jobs.list(query, limit=10).jobs, tuple[JobInfo, ...])
    assert_type(app.jobs.list(state="dead", task=add, since="1h")[0], JobInfo)
    assert_type([info.task for info in app.jobs.list(queue=["email", "sms"])], list[str])
    assert_type(app.jobs.cancel(queue="email", reason="no"), int)
    assert_type(app.jobs.count(query).total, int)
    assert_type(app.jobs.cancel(Query.of(JOB_ID), "no"), int)
    assert_type(app.jobs.retry(add.enqueue(1), rate=None), int)
    assert_type(app.jobs.get(JOB_ID), Job[Any])
    assert_type([info.id for info in app.jobs.iterate()], list[UUID])


async def dead_letters_and_queues() -> None:
    assert_type(await app.dead.aretry(Query.everything(), rate=100), int)
    assert_type(app.dead.delete(older_than="30d"), int)
    app.queues.pause("email", "slow")
    await app.queues.aresume("email")
    assert_type((await app.queues.adrain("email", wait=True)).name, str)


async def workers_of_both_colours() -> None:
    with app.worker(thread_slots=2, queues="email"):
        pass
    async with app.worker(concurrency={"email": 5}), app:
        pass
    assert_type([worker.pid for worker in app.workers.list()], list[int])


def queues_labels_and_pins() -> None:
    premium = app.queue("premium", weight=5)
    app.queue("free", weight=0.5)

    @app.task(queue=premium, needs={"gpu"}, pin_version=True)
    def train(n: int) -> int:
        return n

    assert_type(premium.name, str)
    assert_type(train.options(queue=premium).enqueue(1), Job[int])
    with app.worker(labels={"gpu"}), app.worker(labels="gpu,big"):
        assert_type([worker.labels for worker in app.workers.list()], list[tuple[str, ...]])


def a_test() -> None:
    with app.test(inline=False, start=datetime(2030, 1, 1, tzinfo=UTC)) as t:
        add.options(delay="3d").enqueue(1)
        t.clock.advance("3d")
        assert_type(t.drain(future=True).succeeded, int)
        assert_type(t.assert_enqueued(add, a=1), JobInfo)
        t.assert_not_enqueued("elsewhere.task")


async def an_async_test() -> None:
    async with app.test(inline=True) as t:
        await send.aenqueue("a", subject="b")
        assert_type([info.task for info in await t.aenqueued(send)], list[str])


def a_program() -> None:
    raise SystemExit(app.run(processes=2, queues=["email"], concurrency={"email": 5}, until_empty=True))


async def locks(app: Mainspring) -> None:
    """A function keeps its type behind a lock; what a block gets is the lock."""

    @app.lock("nightly", wait="10s", on_busy="skip")
    def report(day: str) -> int:
        return len(day)

    @app.semaphore("gpu", 2)
    async def train(epochs: int) -> float:
        return epochs / 2

    assert_type(report("today"), int)
    assert_type(await train(3), float)
    with app.lock("nightly") as held:
        assert_type(held.token, int)
        assert_type(held.lost, bool)
    async with app.election("main", elected=lambda term: print(term + 1)) as election:
        assert_type(election.leader, bool)
        assert_type(election.term, int)


# ---- schedules -------------------------------------------------------------------------------------


def a_schedule_on_a_task() -> None:
    @app.schedule(cron="0 3 * * *", tz="Europe/Kyiv", timeout="5m", retries=0)
    @app.task(queue="reports")
    def nightly(full: bool = False) -> int:
        return int(full)

    assert_type(nightly(), int)
    assert_type(nightly.enqueue(full=True), Job[int])


def a_schedule_on_a_function() -> None:
    @app.schedule("often", every=timedelta(minutes=5), overlap="queue", misfire="all", immediate=True)
    def often() -> str:
        return "done"

    @app.schedule(mode="continuous", min_pause=0.5, blocks=[often, "nightly"])
    async def loop() -> int:
        return 1

    @app.schedule(mode="triggered", depends_on=often)
    def with_context(ctx: Context) -> None:
        ctx.progress(1)

    assert_type(often, Task[[], str])
    assert_type(loop, AsyncTask[[], int])
    assert_type(with_context, Task[[], None])


def a_schedule_of_a_call() -> None:
    app.schedule("eu", at=datetime(2030, 1, 1, tzinfo=UTC), call=add.s(1), on_dead=alert)
    app.schedule("us", after="10m", call=add.s(2))(add)

    @app.schedule("asia", every="1h", call=add.s(3))
    @app.task
    def more(a: int) -> int:
        return a

    assert_type(more.enqueue(1), Job[int])


def a_schedule_of_a_library() -> None:
    library = Tasks()

    @library.schedule(every="1h", group="etl", priority="high", history=10, max_failures=0)
    @library.task
    async def load() -> None: ...

    assert_type(load.enqueue(), Job[None])


def schedules_at_run_time() -> None:
    etl = app.schedules.group("etl", max_concurrent=2)
    app.schedules.put("eu", add.s(1), cron="0 3 * * *", group=etl, start=datetime(2030, 1, 1, tzinfo=UTC))
    app.schedules.put("plain", "shop.report", every=60, jitter="5s", reenable_after=None)
    assert_type([info.next for info in app.schedules.list()], list[datetime | None])
    assert_type(app.schedules.trigger("eu", force=True), Job[Any])
    assert_type(app.schedules.next("eu", 3), list[datetime])
    assert_type(app.schedules.status()["eu"].waiting_for, tuple[str, ...])
    assert_type([run.job for run in app.schedules.history(add, limit=5)], list[UUID | None])
    app.schedules.disable("eu", "holidays")


async def schedules_at_run_time_awaited() -> None:
    job = await app.schedules.atrigger("eu")
    assert_type(await job.aresult(), Any)
    await app.schedules.adelete("eu")


def hooks_of_schedules() -> None:
    @app.on("schedule_missed", "schedule_disabled")
    def heard(event: ScheduleEvent) -> None:
        assert_type(event.schedule, str)


def a_test_of_a_schedule() -> None:
    with app.test() as t:
        assert_type(t.advance("31d").ran, int)


# ---- flows -------------------------------------------------------------------------------------------


@app.task
def text_of(n: int, width: int = 1) -> str:
    return str(n).rjust(width)


@app.task
async def length_of(text: str) -> int:
    return len(text)


@app.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task
def numbers_to(n: int) -> list[int]:
    return list(range(n))


@app.task
def take_back(value: int) -> None: ...


def a_chain_of_tasks() -> None:
    flow = add.s(1) | text_of | length_of
    assert_type(flow, Chain[int])
    assert_type(flow.enqueue(), Job[int])
    assert_type(flow.enqueue().result(), int)


async def an_async_enqueue_of_a_chain() -> None:
    assert_type(await (add.s(1) | text_of).aenqueue(), Job[str])


def a_step_with_further_arguments() -> None:
    assert_type(add.s(1).then(text_of, width=3), Chain[str])
    assert_type(add.s(1).then(text_of, 3).then(length_of), Chain[int])


def a_group_of_equal_calls() -> None:
    assert_type(group(add.s(1), add.s(2)), Group[int])
    assert_type(group(add.s(n) for n in range(3)).enqueue().result(), list[int])


def a_chord() -> None:
    assert_type(chord(group(add.s(1), add.s(2)), total), Chain[int])
    assert_type(group(add.s(n) for n in range(3)) | total, Chain[int])


def each_element_of_a_list() -> None:
    assert_type(numbers_to.s(3).each(text_of), Group[str])
    assert_type(numbers_to.s(3).each(text_of, width=3), Group[str])
    assert_type(numbers_to.s(3).each(add) | total, Chain[int])
    assert_type(numbers_to.s(3).each(text_of, on_failure="partial"), Group[str])
    assert_type(numbers_to.s(3).each(add, 2, on_failure="partial") | total, Chain[int])


def a_call_behind_a_call() -> None:
    assert_type(add.s(1) | length_of.s("x"), Chain[int])


def tasks_that_all_get_a_result() -> None:
    assert_type(add.s(1) | group(text_of, text_of), Group[str])
    assert_type(text_of.s(1) | group(length_of, length_of), Group[int])


def a_compensation() -> None:
    assert_type(add.s(1).undo(take_back) | text_of, Chain[str])


def a_chain_from_a_list() -> None:
    chain(add.s(1), text_of, length_of).enqueue()


def a_graph() -> None:
    dag = Dag()
    first = dag.add(add.s(1))
    second = dag.add(text_of.s(first.result), after=[first], when="ignore")
    assert_type(first.result, int)
    assert_type(second.result, str)
    dag.enqueue()


def a_batch() -> None:
    with app.flows.batch("import", on_success=add.s(1), hold="1h") as batch:
        assert_type(batch.add(add.s(1)), Job[int])
        assert_type(batch.add(add.s(1) | text_of), Job[str])
        assert_type(batch.add_many([add.s(1)]), list[Job[int]])
        assert_type(batch.add_many((add.s(n) for n in range(3)), at=1_000), list[Job[int]])
    print(batch.counts().pending)


def options_of_a_flow() -> None:
    assert_type((add.s(1) | text_of).flow(key="x", time_limit="1h").enqueue().result(), str)


def additions_to_the_flow_of_a_job(ctx: Context) -> None:
    assert_type(ctx.flow.add(add.s(1)), Job[int])


async def additions_in_async_code(ctx: AsyncContext) -> None:
    assert_type(await ctx.flow.add(add.s(1)), Job[int])
