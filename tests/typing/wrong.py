"""Programs that both type checkers must refuse, one function each.

Each ignore below is an expected refusal, for mypy and for pyright; an unused one is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from mainspring import (
    AsyncContext,
    Call,
    Context,
    Dag,
    Depends,
    Event,
    Job,
    Key,
    Mainspring,
    Middleware,
    Query,
    Secret,
    Tasks,
    chord,
    group,
)
from mainspring.stores.door import Door

app = Mainspring("sqlite:///typing.db")


@app.task
def add(a: int, b: int = 1) -> int:
    return a + b


@app.task
async def send(to: str, *, subject: str = "") -> str:
    return to


@app.task
def with_context(ctx: Context, name: str) -> str:
    return name


@app.task
def login(token: Secret[str]) -> Secret[int]:
    return Secret(len(token.reveal()))


# ---- arguments -------------------------------------------------------------------------------------


def an_argument_of_the_wrong_type() -> None:
    add.enqueue("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def a_missing_argument() -> None:
    add.enqueue()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def an_unknown_argument() -> None:
    add.enqueue(1, c=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def too_many_arguments() -> None:
    add.enqueue(1, 2, 3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def a_keyword_by_position() -> None:
    send.enqueue("a", "b")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def none_in_a_call() -> None:
    add.s(None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def a_plain_call_of_the_wrong_type() -> None:
    add("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def a_context_by_hand() -> None:
    with_context.enqueue(Context.local("x"), "name")  # type: ignore[arg-type,call-arg]  # pyright: ignore[reportCallIssue]


def the_wrong_type_behind_a_context() -> None:
    with_context.enqueue(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def the_wrong_type_for_the_twin() -> None:
    await send.aenqueue(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def an_option_among_the_arguments() -> None:
    add.enqueue(1, delay="5m")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def the_context_of_the_other_colour() -> None:
    @app.task
    def work(ctx: AsyncContext, n: int) -> int:
        return n

    work.enqueue(1)  # type: ignore[arg-type,call-arg]  # pyright: ignore[reportCallIssue]


# ---- results ---------------------------------------------------------------------------------------


def a_result_of_another_type() -> None:
    text: str = add.enqueue(1).result()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    print(text)


async def a_coroutine_that_is_not_awaited() -> None:
    send("a").upper()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


async def an_awaited_value_of_another_type() -> None:
    length: int = await send("a")  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    print(length)


async def a_twin_that_is_not_awaited() -> None:
    send.aenqueue("a").result()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


async def a_blocking_verb_that_is_awaited() -> None:
    await add.enqueue(1).result()  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]


async def a_result_used_wrongly() -> None:
    print((await send.aenqueue("a")).result() + 1)  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]


def a_job_of_another_result() -> None:
    job: Job[str] = add.enqueue(1)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    print(job)


def a_job_of_a_narrower_result() -> None:
    job: Job[bool] = add.enqueue(1)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    print(job)


def jobs_of_several_tasks_as_one() -> None:
    jobs: list[Job[int]] = app.enqueue_many([add.s(1), send.s("a")])  # type: ignore[list-item]  # pyright: ignore[reportAssignmentType]
    print(jobs)


def the_task_in_place_of_its_call() -> None:
    app.enqueue_many([add])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def a_handle_of_a_number() -> None:
    add.job(7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def async_progress_in_a_plain_loop() -> None:
    for info in add.enqueue(1).awatch():  # type: ignore[attr-defined]  # pyright: ignore[reportGeneralTypeIssues]
        print(info)


# ---- options ---------------------------------------------------------------------------------------


def a_misspelt_option() -> None:
    add.options(delai="5m")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def a_misspelt_option_of_a_call() -> None:
    add.s(1).options(que="slow")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def a_priority_that_is_none() -> None:
    add.options(priority="urgent")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def retries_as_text() -> None:
    add.options(retries="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def a_moment_as_text() -> None:
    add.options(run_at="tomorrow")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def tags_of_numbers() -> None:
    add.options(tags=[1])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]


def meta_that_is_a_list() -> None:
    add.s(1).options(meta=["a"])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def an_option_of_the_task_for_a_job() -> None:
    add.options(name="other")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def an_option_of_a_job_for_the_task() -> None:
    app.task(delay="5m")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


def a_misspelt_option_of_a_task() -> None:
    app.task(retrys=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


def a_choice_that_is_none() -> None:
    app.task(ack="never")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


def an_error_that_is_no_class() -> None:
    app.task(retry_on=[ValueError("x")])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]


# ---- keys ------------------------------------------------------------------------------------------


def a_number_as_key() -> None:
    add.options(key=7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def a_key_of_a_number() -> None:
    Key(7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def a_policy_that_is_none() -> None:
    Key("k", on_conflict="ignore")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def a_mode_that_is_none() -> None:
    Key("k", mode="twice")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def a_key_that_is_kept_for_ever() -> None:
    Key.arguments("a", keep=object())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# ---- bulk tasks ------------------------------------------------------------------------------------


@app.bulk_task(size=10)
def price(items: Sequence[str]) -> Sequence[int | Exception]:
    return [len(item) for item in items]


@app.bulk_task(size=10)
async def aprice(items: list[str]) -> list[int]:
    return [len(item) for item in items]


def a_list_where_a_job_has_one_item() -> None:
    price.enqueue(["a", "b"])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def an_item_of_another_type() -> None:
    aprice.s(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def the_result_of_a_bulk_job_as_a_list() -> None:
    found: list[int] = await aprice("a")  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    print(found)


def a_bulk_handler_that_returns_no_list() -> None:
    @app.bulk_task(size=10)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
    def total(items: Sequence[int]) -> int:
        return sum(items)


def a_bulk_handler_of_two_arguments() -> None:
    @app.bulk_task(size=10)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
    def total(items: Sequence[int], factor: int) -> list[int]:
        return [item * factor for item in items]


def a_size_that_is_text() -> None:
    app.bulk_task(size="10")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


# ---- follow-ups ------------------------------------------------------------------------------------


def a_follow_up_that_takes_text() -> None:
    app.task(on_dead=send)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def a_follow_up_that_takes_too_much() -> None:
    @app.task
    def two(job: UUID, reason: str) -> None: ...

    app.task(on_success=two)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def a_follow_up_that_takes_nothing() -> None:
    @app.task
    def nothing() -> None: ...

    app.task(on_cancel=nothing)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def a_follow_up_that_is_no_task() -> None:
    def alert(job: UUID) -> None: ...

    app.task(on_dead=alert)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


# ---- libraries -------------------------------------------------------------------------------------


def a_wrong_argument_of_a_library_s_task() -> None:
    tasks = Tasks()

    @tasks.task(queue="lib")
    def plain(n: int) -> str:
        return str(n)

    plain.enqueue("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def a_library_with_an_app() -> None:
    Tasks(app)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def something_that_cannot_be_included() -> None:
    app.include(add)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def an_upgrade_of_the_wrong_shape() -> None:
    @add.upgrade  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    def upgrade(old: list[int]) -> dict[str, Any]:
        return {}

    print(upgrade)


# ---- dependencies and secrets ----------------------------------------------------------------------


def a_dependency_of_another_type() -> None:
    def get_number() -> Iterator[int]:
        yield 1

    @app.task
    def work(text: str = Depends(get_number)) -> None: ...  # type: ignore[assignment]  # pyright: ignore[reportArgumentType]

    work.enqueue()


def a_dependency_that_is_called() -> None:
    def get_number() -> int:
        return 1

    Depends(get_number())  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


def a_secret_in_the_clear() -> None:
    login.enqueue("t0ken")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def a_secret_of_another_type() -> None:
    text: str = login.enqueue(Secret("t0ken")).result().reveal()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    print(text)


# ---- around jobs -----------------------------------------------------------------------------------


def an_event_that_does_not_happen() -> None:
    app.on("died")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def a_hook_that_takes_text() -> None:
    @app.on("dead")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    def hook(event: str) -> None: ...

    print(hook)


def a_hook_that_takes_nothing() -> None:
    @app.on("dead")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    def hook() -> None: ...

    print(hook)


def a_field_that_an_event_does_not_have() -> None:
    @app.on("dead")
    def hook(event: Event) -> None:
        print(event.job_id)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]

    print(hook)


def middleware_that_is_none() -> None:
    app.middleware(object())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


class Forgets(Middleware):
    def enqueue(self, call: Call[Any]) -> None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        call.options(tags=["x"])


def progress_of_text() -> None:
    @app.task
    def work(ctx: Context) -> None:
        ctx.progress("half")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    work.enqueue()


def a_task_that_is_spawned() -> None:
    @app.task
    def work(ctx: Context) -> None:
        ctx.spawn(add)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    work.enqueue()


def a_spawn_that_is_not_awaited() -> None:
    @app.task
    async def work(ctx: AsyncContext) -> None:
        job: Job[int] = ctx.spawn(add.s(1))  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
        print(job)

    work.enqueue()


# ---- jobs, queues, workers -------------------------------------------------------------------------


def a_condition_that_does_not_exist() -> None:
    Query.where(statee="dead")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def a_moment_of_a_query_that_is_no_time() -> None:
    Query.where(since=b"yesterday")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def a_condition_of_a_listing_that_does_not_exist() -> None:
    app.jobs.list(status="dead")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def a_number_as_the_task_of_a_listing() -> None:
    app.jobs.list(task=7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def a_call_by_number() -> None:
    app.call(7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def a_query_that_is_a_number() -> None:
    app.jobs.retry(7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def a_queue_that_is_a_number() -> None:
    app.queues.pause(7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def a_group_that_does_not_exist() -> None:
    app.dead.stats(by="colour")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def a_number_of_processes_in_words() -> None:
    app.run(processes="two")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def an_unknown_option_of_a_worker() -> None:
    app.worker(slots=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def an_unknown_option_of_a_queue() -> None:
    app.queue("premium", wieght=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def a_weight_that_is_text() -> None:
    app.queue("premium", weight="5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def labels_that_are_numbers() -> None:
    app.worker(labels={1})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def a_name_of_a_later_release() -> None:
    app.pipeline("etl")  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


def a_setting_that_is_no_choice() -> None:
    Mainspring(durability="fast")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def routes_as_a_list() -> None:
    Mainspring(routes=["shop"])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def a_url_that_is_a_number() -> None:
    Mainspring(url=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def an_unknown_option_of_a_test() -> None:
    app.test(clock="2030-01-01")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def a_drain_that_is_not_awaited() -> None:
    async with app.test() as t:
        print(t.adrain().succeeded)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


def a_schedule_of_a_task_that_needs_arguments() -> None:
    app.schedule(every="1h")(add)  # type: ignore[type-var]  # pyright: ignore[reportCallIssue, reportArgumentType]


def a_schedule_of_a_function_that_needs_arguments() -> None:
    @app.schedule(every="1h")  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]
    def work(n: int) -> None: ...


def an_unknown_option_of_a_schedule() -> None:
    app.schedule(every="1h", overlaps="skip")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


def a_misfire_that_is_no_choice() -> None:
    app.schedule(every="1h", misfire="twice")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


def a_schedule_of_something_that_is_no_call() -> None:
    app.schedules.put("x", add(1), every="1h")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def a_schedule_put_with_an_unknown_option() -> None:
    app.schedules.put("x", add.s(1), evry="1h")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def a_group_without_a_size() -> None:
    app.schedules.group("etl")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def a_trigger_that_is_not_awaited() -> None:
    print(app.schedules.atrigger("x").id)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


# ---- a store behind the door: its methods are made from the contract ---------------------------------


async def a_store_call_with_an_argument_of_the_wrong_type(door: Door) -> None:
    await door.enqueue([])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def a_store_call_without_an_argument(door: Door) -> None:
    await door.turn()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def an_unknown_store_call(door: Door) -> None:
    await door.enqueue_all()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


# ---- flows -------------------------------------------------------------------------------------------


@app.task
def spell(n: int) -> str:
    return str(n)


@app.task
def measure(text: str) -> int:
    return len(text)


@app.task
def add_up(numbers: list[int]) -> int:
    return sum(numbers)


def a_step_that_cannot_take_the_result() -> None:
    add.s(1) | measure  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]


def a_then_that_cannot_take_the_result() -> None:
    spell.s(1).then(spell)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


def an_argument_of_a_step_with_a_wrong_type() -> None:
    add.s(1).then(add, "2")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


def each_of_a_result_that_is_no_list() -> None:
    add.s(1).each(spell)  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


def a_position_that_is_no_number() -> None:
    app.flows.batch("import").add_many([add.s(1)], at="first")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@app.task
def numbers_to(n: int) -> list[int]:
    return list(range(n))


def each_with_an_unknown_policy() -> None:
    numbers_to.s(3).each(add, on_failure="ignore")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


def a_callback_that_cannot_take_a_list() -> None:
    chord(group(add.s(1)), spell)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def a_part_of_a_fan_out_that_cannot_take_the_result() -> None:
    add.s(1) | group(measure, measure)  # type: ignore[arg-type]  # pyright: ignore[reportOperatorIssue]


def a_compensation_that_cannot_take_the_result() -> None:
    add.s(1).undo(measure)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def an_argument_that_cannot_take_the_result_of_its_node() -> None:
    dag = Dag()
    node = dag.add(add.s(1))
    dag.add(measure.s(node.result))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def a_result_of_a_chain_used_wrongly() -> None:
    length: int = (add.s(1) | spell).enqueue().result()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    print(length)


def an_unknown_policy() -> None:
    Dag().add(add.s(1), when="never")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def an_unknown_option_of_a_flow() -> None:
    add.s(1).flow(name="x", keys="y")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
