"""B18, R10: debounce, throttle and keep-last as modes of a key; a key that is kept runs its job once."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from mainspring import Context, Job, Key, Mainspring
from mainspring.errors import InvalidOption, KeyConflict, WrongConnection
from mainspring.states import State
from tests.plugins.outside import SqlOutside
from tests.rows.callers import NAME, at_once, once
from tests.rows.test_queue import total
from tests.timing import milliseconds, patience

LIMIT = 60


@pytest.mark.row("B18")
@pytest.mark.option("job.key", "task.key")
class TestDebounce:
    def test_debounce_runs_a_burst_once_with_the_last_arguments(self, app: Mainspring) -> None:
        ran: list[int] = []
        window = milliseconds(0.5)  # each call must come within it after the call before

        @app.task(name="index", key=Key.arguments("page", mode="debounce", window=window))
        def index(page: str, n: int) -> int:
            ran.append(n)
            return n

        with app.worker():
            jobs = [index.enqueue("home", n) for n in range(20)]
            other = index.enqueue("about", 99)
            assert {job.id for job in jobs} == {jobs[0].id} != {other.id}
            assert [job.created for job in jobs] == [True] + [False] * 19
            assert [jobs[0].result(timeout=LIMIT), jobs[7].result(timeout=LIMIT)] == [19, 19]
            assert other.result(timeout=LIMIT) == 99
            again = index.enqueue("home", 20)
            assert again.created
            assert again.result(timeout=LIMIT) == 20
        assert sorted(ran) == [19, 20, 99]

    def test_debounce_starts_the_job_at_its_limit_although_calls_go_on(self, app: Mainspring) -> None:
        task = app.task(name=NAME, key=Key("k", mode="debounce", window="1h", max_wait="1h"))(once)
        first = task.enqueue(1)
        due = first.info().due
        assert due is not None
        assert task.enqueue(2).info().due == due
        far = task.options(key=Key("far", mode="debounce", window="1h"))
        was = far.enqueue(1).info().due
        now = far.enqueue(2).info().due
        assert was is not None
        assert now is not None
        assert now > was

    def test_debounce_takes_arguments_and_options_of_the_last_call(self, app: Mainspring) -> None:
        task = app.task(name=NAME, key=Key("k", mode="debounce", window="1h"))(once)
        first = task.options(priority="low", tags=["old"], retries=1).enqueue(1)
        task.options(priority="high", tags=["new"], queue="other", meta={"by": "ada"}).enqueue(2)
        info = first.info()
        assert (info.queue, info.priority > 0, info.tags, info.meta) == ("other", True, ("new",), {"by": "ada"})
        assert info.args == {"n": 2}
        assert total(app) == 1

    def test_debounce_of_a_hundred_threads_makes_one_job(self, app: Mainspring) -> None:
        task = app.task(name=NAME)(once)
        jobs: list[Job[int]] = at_once(task.options(key=Key("k", mode="debounce", window="200ms")), 100)
        assert len({job.id for job in jobs}) == 1
        with app.worker():
            assert {job.result(timeout=LIMIT) for job in jobs} <= set(range(100))
        assert total(app) == 1

    def test_debounce_in_one_call_of_enqueue_many(self, app: Mainspring) -> None:
        task = app.task(name=NAME, key=Key("k", mode="debounce", window="1h"))(once)
        jobs = app.enqueue_many(task.s(n) for n in range(5))
        assert {job.id for job in jobs} == {jobs[0].id}
        assert [job.created for job in jobs] == [True] + [False] * 4
        assert jobs[0].info().args == {"n": 4}


@pytest.mark.row("B18")
class TestThrottle:
    def test_throttle_runs_the_first_call_at_once_and_the_rest_as_one_job(self, app: Mainspring) -> None:
        ran: list[int] = []
        window = patience(1)  # the calls must come within it after the first start

        @app.task(name="push", key=Key("k", mode="throttle", window=window))
        def push(n: int) -> int:
            ran.append(n)
            return n

        with app.worker():
            first = push.enqueue(0)
            assert first.result(timeout=LIMIT) == 0
            jobs = [push.enqueue(n) for n in range(1, 6)]
            assert {job.id for job in jobs} == {jobs[0].id} != {first.id}
            assert jobs[0].result(timeout=LIMIT) == 5
        assert ran == [0, 5]
        started = [job.info().started for job in (first, jobs[0])]
        assert started[0] is not None
        assert started[1] is not None
        assert (started[1] - started[0]).total_seconds() >= window


@pytest.mark.row("B18")
class TestKeepLast:
    def test_keep_last_runs_one_job_and_the_last_call_waits(self, app: Mainspring) -> None:
        ran: list[int] = []
        at_once_now, most = 0, 0
        begun, go_on, lock = threading.Event(), threading.Event(), threading.Lock()

        @app.task(name="sync", key=Key.arguments("user", mode="keep_last"), retries=1, backoff="10ms")
        def sync(user: int, n: int) -> int:
            nonlocal at_once_now, most
            with lock:
                at_once_now += 1
                most = max(most, at_once_now)
            ran.append(n)
            begun.set()
            go_on.wait(LIMIT)
            with lock:
                at_once_now -= 1
            if ran == [0]:
                raise ValueError("once")
            return n

        with app.worker():
            first = sync.enqueue(1, 0)
            assert begun.wait(LIMIT)
            jobs = [sync.enqueue(1, n) for n in range(1, 6)]
            assert {job.id for job in jobs} == {jobs[0].id} != {first.id}
            go_on.set()
            assert [first.result(timeout=LIMIT), jobs[2].result(timeout=LIMIT)] == [0, 5]
        assert (ran, most) == ([0, 0, 5], 1)

    @pytest.mark.parametrize("end", ["dead", "cancelled"])
    def test_keep_last_starts_the_waiting_job_however_the_first_ends(self, app: Mainspring, end: str) -> None:
        begun, go_on = threading.Event(), threading.Event()

        @app.task(name="ends", key=Key("k", mode="keep_last"), retries=0)
        def ends(ctx: Context, n: int) -> int:
            begun.set()
            while n == 0 and not go_on.wait(0.01):
                ctx.check()
            if n == 0:
                raise ValueError
            return n

        with app.worker():
            first = ends.enqueue(0)
            assert begun.wait(LIMIT)
            second = ends.enqueue(1)
            if end == "dead":
                go_on.set()
            else:
                first.cancel()
            assert second.result(timeout=LIMIT) == 1
        assert first.info().state.value == end


@pytest.mark.row("R10")
class TestKeptKeys:
    def test_equal_calls_with_a_kept_key_run_once_and_all_get_the_result(self, app: Mainspring) -> None:
        charged: list[int] = []

        @app.task(name="charge", key=Key.arguments("order", keep="24h"))
        def charge(order: int, amount: int) -> str:
            charged.append(order)
            return f"receipt {order}"

        class Bound:
            def enqueue(self, _: int) -> Job[str]:
                return charge.enqueue(7, 100)

        with app.worker():
            jobs: list[Job[str]] = at_once(Bound(), 50)
            assert {job.result(timeout=LIMIT) for job in jobs} == {"receipt 7"}
            late = charge.enqueue(7, 100)
            assert (late.id, late.created, late.result(timeout=LIMIT)) == (jobs[0].id, False, "receipt 7")
        assert charged == [7]

    def test_other_arguments_under_a_kept_key_are_an_error(self, app: Mainspring) -> None:
        @app.task(name="charge", key=Key.arguments("order", keep="24h"))
        def charge(order: int, amount: int) -> None: ...

        first = charge.enqueue(7, 100)
        words = rf"(?s)job {first.id} used this key with other arguments.*what differs"
        with pytest.raises(KeyConflict, match=words) as said:
            charge.enqueue(7, 200)
        assert said.value.holder == first.id
        with pytest.raises(KeyConflict, match="two calls of this batch"):
            app.enqueue_many([charge.s(8, 1), charge.s(8, 2)])
        by_text = charge.options(key=Key("request-9", keep="1h"))
        assert by_text.enqueue(9, 1).id == by_text.enqueue(9, 1).id
        with pytest.raises(KeyConflict):
            by_text.enqueue(9, 2)
        assert total(app) == 2

    def test_a_call_by_name_is_compared_as_it_was_given(self, app: Mainspring, other: Mainspring) -> None:
        """The other program does not know the defaults of the task, nor the names of positional arguments."""

        @app.task(name="charge")
        def charge(order: int, currency: str = "EUR") -> None: ...

        def by_name(*args: object, **kwargs: object) -> Job[Any]:
            return other.call("charge", *args, **kwargs).options(key=Key("request-9", keep="1h")).enqueue()

        first = charge.options(key=Key("request-9", keep="1h")).enqueue(9)
        assert by_name(order=9, currency="EUR").id == first.id
        for given in ((), (9,)):
            with pytest.raises(KeyConflict, match=r"(?s)A call by name \(app.call\) is compared as it was given"):
                by_name(*given, **({} if given else {"order": 9}))
        assert total(app) == 1

    def test_a_call_with_a_kept_key_can_be_repeated_after_a_failure(self, app: Mainspring) -> None:
        @app.task(name="fails", key=Key.arguments("n", keep="24h"), retries=0)
        def fails(n: int) -> None:
            raise ValueError

        with app.worker():
            first = fails.enqueue(1)
            assert first.join(timeout=LIMIT).state is State.DEAD
        assert fails.enqueue(1).created


class TestAround:
    def test_why_names_the_key_mode_that_delays_the_job(self, app: Mainspring) -> None:
        begun, go_on = threading.Event(), threading.Event()

        @app.task(name="why.slow", key=Key("k", mode="keep_last"))
        def slow(n: int) -> None:
            begun.set()
            go_on.wait(LIMIT)

        task = app.task(name=NAME)(once)
        bounced = task.options(key=Key("b", mode="debounce", window="1h")).enqueue(1)
        why = bounced.why().obstacles[0]
        assert (why.kind, why.name, why.until) == ("key", "b", bounced.info().due)
        assert "debounce" in why.text
        plain = task.options(delay="1h").enqueue(1)
        assert plain.why().obstacles[0].kind == "not_due"
        with app.worker():
            slow.enqueue(1)
            assert begun.wait(LIMIT)
            (why,) = slow.enqueue(2).why().obstacles
            go_on.set()
        assert (why.kind, why.name) == ("key", "k")
        assert "keep_last" in why.text

    def test_a_delay_together_with_a_window_is_refused(self, app: Mainspring) -> None:
        task = app.task(name=NAME, key=Key("k", mode="debounce", window="1s"))(once)
        with pytest.raises(InvalidOption, match=r"(?s)delay.*mode='debounce'.*window of the key"):
            task.options(delay="1m").enqueue(1)


@pytest.mark.stores("sqlite", "postgres")
class TestCallersTransaction:
    @pytest.mark.parametrize("mode", ["debounce", "throttle"])
    def test_a_job_is_replaced_when_the_callers_transaction_commits(
        self, app: Mainspring, outside: SqlOutside, mode: Any
    ) -> None:
        task = app.task(name=NAME, key=Key("k", mode=mode, window="1h"))(once)
        first = task.enqueue(1)
        mine = outside.connect()
        for end, left in (("rollback", {"n": 1}), ("commit", {"n": 2})):
            mine.execute("begin")
            assert task.options(connection=mine).enqueue(2).id == first.id
            mine.execute(end)
            assert first.info().args == left
        mine.close()

    @pytest.mark.stores("postgres")
    def test_keep_last_is_refused_in_the_callers_transaction(self, app: Mainspring, outside: SqlOutside) -> None:
        task = app.task(name=NAME, key=Key("k", mode="keep_last"))(once)
        app.open()
        mine = outside.connect()
        mine.execute("begin")
        with pytest.raises(WrongConnection, match=r"(?s)keep_last.*after the commit"):
            task.options(connection=mine).enqueue(1)
        mine.close()
