"""Bulk tasks as they are declared: what is refused, what a job takes and gives, what a plain call does."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import pytest

from mainspring import AsyncTask, Context, Depends, Mainspring, Task
from mainspring.errors import BadSignature, InvalidOption, UnknownOption, WrongArgument, WrongOutcomes
from mainspring.options.table import options_for, resolve_options
from mainspring.worker.loop.demand import Demand
from mainspring.worker.records import Claim
from mainspring.worker.run.bulk.gather import MAX_REQUEST, BulkGatherer, BulkLanes
from mainspring.worker.run.slots.base import ClaimAhead


class Mail(msgspec.Struct):
    to: str
    tenant: str = "a"


@pytest.fixture
def app() -> Mainspring:
    return Mainspring("sqlite://")


def anything(thing: object) -> Any:
    """The thing, past the type checker: it would refuse what is refused here."""
    return thing


# ---- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"size": 0}, r"task '.*one': size=0: must be a whole number from 1"),
        ({"size": "10"}, r"size='10': must be a whole number"),
        ({"wait": "-1s"}, r"wait"),
        ({"wait": -1}, r"wait"),
        ({"by": "a b"}, r"by='a b': must be an attribute path of the item or a def\n.*by=\"tenant\""),
        ({"by": 3}, r"by=3: must be an attribute path"),
        ({"ack": "early"}, r"task '.*one': ack='early': cannot be given to a bulk task"),
        ({"sensitive": ["items"]}, r"names 'items', which is not an argument of the task"),
        ({"executor": "async"}, r"executor='async': does not fit a plain function"),
    ],
)
def test_bad_options_are_refused_at_declaration(app: Mainspring, given: dict[str, Any], says: str) -> None:
    def one(items: list[int]) -> list[int]:
        return items

    with pytest.raises(InvalidOption, match=says):
        anything(app).bulk_task(**given)(one)


def test_the_decorator_has_the_options_of_the_table(app: Mainspring) -> None:
    own = [each for each in inspect.signature(app.bulk_task).parameters.values() if each.kind is each.KEYWORD_ONLY]
    assert resolve_options("bulk", {each.name: each.default for each in own}) == resolve_options("bulk", {})
    assert [each.name for each in own] == [option.name for option in options_for("bulk")]


def test_an_async_by_function_is_refused(app: Mainspring) -> None:
    async def by(item: int) -> int:
        return item

    with pytest.raises(InvalidOption, match="must be an attribute path of the item or a def"):
        anything(app).bulk_task(name="bulk", by=by)(lambda items: items)


def test_an_option_of_bulk_tasks_on_another_task_names_its_place(app: Mainspring) -> None:
    with pytest.raises(UnknownOption, match=r"'size' is an option of @app.bulk_task\(\.\.\.\)"):
        anything(app).task(size=3)(lambda n: n)


def nothing() -> list[int]:
    return []


def two(items: list[int], factor: int) -> list[int]:
    return [item * factor for item in items]


def spread(*items: int) -> list[int]:
    return list(items)


def by_keyword(*, items: list[int]) -> list[int]:
    return items


def generator(items: list[int]) -> Any:
    yield from items


@pytest.mark.parametrize("handler", [nothing, two, spread, by_keyword, generator])
def test_a_handler_must_take_one_list(app: Mainspring, handler: Callable[..., Any]) -> None:
    with pytest.raises(BadSignature, match=handler.__name__):
        anything(app).bulk_task()(handler)


def no_list(items: int) -> list[int]:
    return [items]


def no_outcomes(items: list[int]) -> None: ...


def a_mapping(items: list[int]) -> dict[int, int]:
    return {item: item for item in items}


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (no_list, "argument 'items' is declared as .*int.*, not as a list"),
        (no_outcomes, "its return type is declared as .*None.*, not as a list"),
        (a_mapping, "its return type is declared as dict"),
    ],
)
def test_annotations_that_are_not_lists_are_refused_at_first_use(
    app: Mainspring, handler: Callable[..., Any], says: str
) -> None:
    task = anything(app).bulk_task()(handler)
    with pytest.raises(BadSignature, match=says):
        task.spec().signature.check()


# ---- one job ---------------------------------------------------------------------------------------


def as_sequence(items: Sequence[Mail]) -> Sequence[int | ValueError | None]: ...  # type: ignore[empty-body]
def as_iterable(items: Iterable[Mail]) -> list[int | Exception | None]: ...  # type: ignore[empty-body]
def with_more(ctx: Context, items: list[Mail], db: int = Depends(lambda: 1)) -> list[int | None]: ...  # type: ignore[empty-body]


@pytest.mark.parametrize("handler", [as_sequence, as_iterable, with_more])
def test_a_job_takes_one_item_and_returns_one_result(app: Mainspring, handler: Callable[..., Any]) -> None:
    signature = anything(app).bulk_task()(handler).spec().signature
    assert dict(signature.parameters) == {"item": Mail}
    assert signature.returns == int | None
    assert signature.decode_call(signature.encode_call((Mail("x"),), {})) == ((Mail("x"),), {})


def test_without_annotations_any_item_is_accepted(app: Mainspring) -> None:
    signature = anything(app).bulk_task(name="bulk")(lambda items: items).spec().signature
    assert dict(signature.parameters) == {"item": Any}
    assert signature.returns is Any


def test_an_item_of_the_wrong_type_is_refused_at_enqueue(app: Mainspring) -> None:
    task = anything(app).bulk_task(name="bulk")(as_sequence)
    with pytest.raises(WrongArgument, match=r"bulk\(item=...\): argument 'item' expected Mail, got str"):
        task.s("x")


@pytest.mark.parametrize("by", ["tennant", "to.name", lambda item: [item.to], lambda item: 1 / 0])
def test_a_by_value_that_cannot_be_read_is_reported_at_enqueue(app: Mainspring, by: Any) -> None:
    task = anything(app).bulk_task(name="bulk", by=by)(as_sequence)
    with pytest.raises(WrongArgument, match=r"argument 'item' has no value for by= to compare: \w+Error"):
        task.s(Mail("x"))


# ---- plain calls -----------------------------------------------------------------------------------


def test_a_plain_call_returns_one_outcome(app: Mainspring) -> None:
    @app.bulk_task()
    def half(ctx: Context, items: Sequence[int], by: int = Depends(lambda: 2)) -> Sequence[int | Exception]:
        assert [each.job_id for each in ctx.jobs] == [ctx.job_id]
        return [ValueError("odd") if item % by else item // by for item in items]

    @app.bulk_task()
    async def ahalf(items: Sequence[int]) -> Sequence[int | Exception]:
        return [ValueError("odd") if item % 2 else item // 2 for item in items]

    assert isinstance(half, Task)
    assert isinstance(ahalf, AsyncTask)
    assert (half(4), asyncio.run(ahalf(4)), anything(half)(item=6)) == (2, 2, 3)
    with pytest.raises(ValueError, match="odd"):
        half(3)
    with pytest.raises(ValueError, match="odd"):
        asyncio.run(ahalf(3))
    with pytest.raises(TypeError, match="takes one item"):
        anything(half)()


def test_an_error_class_as_outcome_is_an_error(app: Mainspring) -> None:
    @app.bulk_task(name="classes")
    def classes(items: list[type[BaseException]]) -> list[type[BaseException]]:
        return items

    with pytest.raises(KeyError):
        classes(KeyError)
    with pytest.raises(TypeError, match="missing"):
        classes(NeedsOne)


class NeedsOne(Exception):
    def __init__(self, one: int) -> None: ...


def test_a_plain_call_checks_the_outcomes_of_the_handler(app: Mainspring) -> None:
    @app.bulk_task(name="bulk")
    def bulk(items: list[int]) -> list[int]:
        return [*items, 1]

    with pytest.raises(WrongOutcomes, match=r"bulk task 'bulk' returned 2 outcomes for 1 item\n.*one entry for each"):
        bulk(1)


# ---- how much is asked for -------------------------------------------------------------------------


class Slots:
    """A pool that runs nothing."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.held = 0
        self.claim_ahead = ClaimAhead(slots)
        self.calls: list[int] = []

    def submit(self, attempt: Any) -> None:
        self.held += 1
        self.calls.append(len(attempt.items))

    def take_waiting(self, before: float) -> list[Any]:
        return []

    def running(self) -> list[Any]:
        return []

    def add_slot(self) -> bool:
        return False

    def remove_slot(self) -> None: ...

    def close(self) -> None: ...


class Waiting:
    """An attempt, as far as bulk lanes read it."""

    def __init__(self, spec: Any, crashes: int = 0) -> None:
        self.spec = spec
        self.received = 0.0
        self.claim = Claim(b"", 1, "bulk", "q", "", 0, 1, 1, crashes, False, 0, None, b"", 1)
        self.early = self.limited = self.takes_capacity = False
        self.lease = self.environment = None


def line_of(app: Mainspring, pool: Slots, **options: Any) -> tuple[BulkLanes, Any]:
    spec = anything(app).bulk_task(name="bulk", **options)(lambda items: items).spec()
    return BulkLanes(spec, spec.bulk, ("thread~*bulk~",), pool), spec


def requested(line: BulkLanes, free: int) -> tuple[int, int]:
    """How many jobs are asked for, and how many slots they will use."""
    asked = line.request(free, ahead=True)
    assert asked.now == asked.n
    return asked.n, asked.slots


async def test_bulk_lanes_request_as_many_jobs_as_their_calls_can_take(app: Mainspring) -> None:
    pool = Slots(4)
    line, spec = line_of(app, pool, size=10, wait="1h")
    assert requested(line, 0) == (0, 0)
    assert requested(line, 1) == (10, 1)
    assert requested(line, 4) == (20, 2)
    for n in range(1, 10):
        line.add(anything(Waiting(spec)), None)
        assert (pool.held, requested(line, 0)) == (1, (10 - n, 0))
    assert requested(line, 3) == (11, 1)
    line.add(anything(Waiting(spec)), None)
    assert (pool.held, pool.calls, requested(line, 0)) == (1, [10], (0, 0))


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({"size": 10}, (320, 32)),
        ({"size": 100}, (MAX_REQUEST, 5)),
        ({"size": 1000}, (1000, 1)),
        ({"by": "to"}, (100, 1)),
    ],
)
async def test_bulk_lanes_request_no_more_than_one_turn_takes(
    app: Mainspring, options: dict[str, Any], asked: tuple[int, int]
) -> None:
    assert requested(line_of(app, Slots(64), **options)[0], 64) == asked


async def test_a_gathering_call_requests_more_items_although_no_slot_is_free(app: Mainspring) -> None:
    pools = {"async": Slots(0), "thread": Slots(1)}
    line, spec = line_of(app, pools["thread"], size=10, wait="1h")
    demand = Demand(["q"], {}, anything(pools), separate=[line])
    line.add(anything(Waiting(spec)), None)
    assert demand.is_urgent
    assert [(want.lanes, want.n) for want in demand.next_wants()] == [(("q/thread~*bulk~",), 9)]
    demand.record_reply([])
    assert not demand.is_urgent, "dry until something wakes it"
    demand.wake()
    assert demand.is_urgent


async def test_waiting_items_are_removed_together_with_their_slot(app: Mainspring) -> None:
    pool = Slots(2)
    line, spec = line_of(app, pool, size=10, wait="1h")
    waiting = [anything(Waiting(spec)) for _ in range(3)]
    for each, value in zip(waiting, "aba", strict=True):
        line.add(each, value)
    assert pool.held == 2
    assert line.withdraw(waiting[1])
    assert not line.withdraw(waiting[1])
    assert pool.held == 1
    assert line.take_all() == [waiting[0], waiting[2]]
    assert (pool.held, pool.calls, requested(line, 0)) == (0, [], (0, 0))


async def test_a_suspect_has_a_call_of_its_own(app: Mainspring) -> None:
    """It is not gathered with other jobs, so that a crash shows which job caused it."""
    task = anything(app).bulk_task(name="bulk", size=10, wait="1h", crashes=3)(lambda items: items)
    parts = app.parts()
    pools = {"async": Slots(1), "thread": Slots(1)}
    gatherer = BulkGatherer(parts, anything(pools), anything(None))
    plain, crashed, suspect = (anything(Waiting(task.spec(), crashes)) for crashes in range(3))
    alone = gatherer.gather([plain, crashed, suspect])
    assert [each.jobs for each in alone] == [[suspect]]
    assert gatherer.take_all() == [plain, crashed]
