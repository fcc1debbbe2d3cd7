"""Options that would have no effect, or that would make every job fail, are refused with the way to write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mainspring import Key, Mainspring, Query
from mainspring.errors import InvalidOption, OptionsOnCall

LIMIT = 60


class TestExpiry:
    @pytest.mark.option("job.expires", "job.delay", "job.run_at")
    def test_a_job_that_would_expire_before_it_may_start_is_refused(self, app: Mainspring) -> None:
        add = app.task(name="add")(lambda a: a)
        brief = app.task(name="brief", expires="1m")(lambda a: a)
        later = datetime.now(UTC) + timedelta(hours=1)
        with pytest.raises(InvalidOption, match=r"(?s)task 'add': expires='1m': .*before it may start.*from the enq"):
            add.options(delay="1h", expires="1m")
        with pytest.raises(InvalidOption, match="before it may start"):
            add.options(delay="1h").options(expires="1h")
        with pytest.raises(InvalidOption, match="before it may start"):
            brief.options(delay="1h")
        with pytest.raises(InvalidOption, match=r"(?s)task 'add': expires=.*before it may start"):
            add.options(run_at=later, expires="1m").enqueue(1)
        with pytest.raises(InvalidOption, match="before it may start"):
            brief.s(1).options(run_at=later).enqueue()
        assert app.jobs.count(Query.everything()).total == 0

    def test_a_job_that_may_start_before_it_expires_is_accepted(self, app: Mainspring) -> None:
        add = app.task(name="add", expires="1m")(lambda a: a)
        soon = datetime.now(UTC) + timedelta(milliseconds=10)
        jobs = [
            add.options(delay="10ms").enqueue(1),
            add.options(run_at=soon).enqueue(2),
            add.options(delay="1h", expires="2h").enqueue(3),
        ]
        with app.worker():
            assert [job.result(timeout=LIMIT) for job in jobs[:2]] == [1, 2]

    @pytest.mark.stores("sqlite")
    def test_run_at_counts_by_the_clock_of_a_test(self, app: Mainspring) -> None:
        add = app.task(name="add", expires="5m")(lambda a: a)
        with app.test(start=datetime(2040, 1, 1, tzinfo=UTC)) as t:
            job = add.options(run_at=t.clock.now() + timedelta(minutes=2)).enqueue(1)
            with pytest.raises(InvalidOption, match="before it may start"):
                add.options(run_at=t.clock.now() + timedelta(hours=2)).enqueue(1)
            t.advance("3m")
            assert job.result() == 1


@pytest.mark.stores("sqlite")
class TestPlainCalls:
    def test_options_and_then_a_plain_call_are_refused(self, app: Mainspring) -> None:
        """The call would run at once, in this process."""
        ran: list[int] = []

        @app.task(name="add")
        def add(a: int) -> None:
            ran.append(a)

        @app.task(name="aadd")
        async def aadd(a: int) -> None:
            ran.append(a)

        with pytest.raises(OptionsOnCall, match=r"(?s)task 'add'.*delay.*\.options\(\.\.\.\)\.enqueue\(\.\.\.\)"):
            add.options(delay=5)(1)
        with pytest.raises(OptionsOnCall, match=r"\.aenqueue\(\.\.\.\)"):
            _ = aadd.options(priority="high")(1)
        assert ran == []
        add(1)
        assert ran == [1]


class TestBraces:
    @pytest.mark.option("task.key", "task.tags", "job.key", "job.tags")
    def test_a_placeholder_in_a_key_is_refused(self, app: Mainspring) -> None:
        """The text would be taken as it is, and every job would have the same key."""

        def ship(order: int, note: str = "") -> int:
            return order

        for key in ("order:{order}", "order:{order!r}", "{order.id}", Key("x{oder}", window="1h")):
            with pytest.raises(InvalidOption, match=r"(?s)key=.*plain text.*Key\.arguments\("):
                app.task(name="ship", key=key)(ship)
        with pytest.raises(InvalidOption, match=r"(?s)tags=.*plain text.*tags=\[f"):
            app.task(name="ship", tags=["a", "order:{order}"])(ship)
        task = app.task(name="ship")(ship)
        with pytest.raises(InvalidOption, match=r"(?s)task 'ship': key=.*plain text.*key=f'order:\{order\}'"):
            task.options(key="order:{order}").enqueue(1)
        with pytest.raises(InvalidOption, match=r"(?s)task 'ship': tags=.*plain text"):
            task.options(tags=["order:{order}"]).enqueue(1)
        assert app.jobs.count(Query.everything()).total == 0

    @pytest.mark.option("job.key", "job.tags")
    def test_a_placeholder_in_a_call_by_name_is_refused(self, app: Mainspring) -> None:
        """The second job would be taken for the first."""
        for options in ({"key": "order:{order}"}, {"tags": ["order:{order}"]}, {"key": Key("{order!r}", keep="1h")}):
            with pytest.raises(InvalidOption, match=r"(?s)task 'shop.send': (key|tags)=.*\{order\} is not replaced"):
                app.call("shop.send", order=1).options(**options).enqueue()
        with pytest.raises(InvalidOption, match=r"\{order\} is not replaced"):
            app.call("shop.send", 1).options(key="order:{order}").enqueue()  # the name of its argument is not known
        assert app.jobs.count(Query.everything()).total == 0

    @pytest.mark.parametrize("text", ['{"order": 7}', "{}", "{7}", "a{other}b", "{{x}}"])
    def test_other_braces_in_the_data_of_a_call_by_name_stay(self, app: Mainspring, text: str) -> None:
        app.call("shop.send", order=1).options(key=text, tags=[text]).enqueue()
        [info] = app.jobs.list(Query.where(tags=[text])).jobs
        assert (info.key, info.tags) == (text, (text,))

    @pytest.mark.parametrize("text", ['{"order": 7}', "{}", "{7}", "a{other}b", "{{x}}"])
    def test_other_braces_in_the_data_of_a_job_stay(self, app: Mainspring, text: str) -> None:
        task: Any = app.task(name="ship")(lambda order: order)
        task.options(key=text, tags=[text]).enqueue(1)
        [info] = app.jobs.list(Query.where(tags=[text])).jobs
        assert (info.key, info.tags) == (text, (text,))

    def test_keys_and_tags_of_arguments_work_as_the_hints_say(self, app: Mainspring) -> None:
        task = app.task(name="ship", key=Key.arguments("order"))(lambda order: order)
        ids = {task.options(tags=[f"order:{order}"]).enqueue(order).id for order in (1, 2, 1)}
        assert len(ids) == 2
        assert re.fullmatch(r"order=2", app.jobs.list(Query.where(tags=["order:2"])).jobs[0].key or "")
