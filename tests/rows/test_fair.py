"""Q7, B9: keys share the claims of a queue: a key with a flood of jobs waits, and the other keys do not."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

import pytest

from mainspring import Concurrency, Mainspring
from mainspring.client import blocking
from mainspring.errors import InvalidOption
from mainspring.jobs.query import Query
from tests.rows.crew import LIMIT, until


def lanes_of(app: Mainspring) -> list[str]:
    """The lanes of the jobs in the store."""

    async def found() -> list[str]:
        store = await app.client.store()
        return sorted(row.lane for row in (await store.find(Query.everything(), limit=1000)).jobs)

    return blocking.run("a test", found())


def noting(app: Mainspring, ran: list[str], **options: Any) -> Any:
    async def note(tenant: str, n: int = 0) -> None:
        ran.append(tenant)

    return app.task(name="note", queue="mail", **options)(note)


def fill(app: Mainspring, note: Any, *tenants: tuple[str, int]) -> None:
    calls = [note.s(tenant, n) for tenant, many in tenants for n in range(many)]
    for start in range(0, len(calls), 1000):
        app.enqueue_many(calls[start : start + 1000])


@pytest.mark.row("Q7")
class TestFairKeys:
    @pytest.mark.option("queue.fair_by")
    def test_tenants_with_a_backlog_share_the_claims(self, app: Mainspring) -> None:
        """The jobs of one tenant are enqueued before those of the next, so that another order would show."""
        ran: list[str] = []
        app.queue("mail", fair_by="tenant")
        note = noting(app, ran)
        fill(app, note, ("a", 400), ("b", 400))
        with app.worker():
            until(lambda: len(ran) == 800, "all have run")
        first = Counter(ran[:400])
        assert abs(first["a"] - 200) <= 20, first

    @pytest.mark.option("queue.fair_weights")
    def test_weights_are_kept_to_within_five_points(self, app: Mainspring) -> None:
        """Each tenant still has jobs when 1,000 have run, also if one of the workers stalls with its claims."""
        ran: list[str] = []
        weights = {"a": 5, "b": 3, "c": 2}
        app.queue("mail", fair_by="tenant", fair_weights=weights)
        note = noting(app, ran)
        fill(app, note, *((tenant, 300 * weight) for tenant, weight in weights.items()))
        with app.worker(), app.worker():
            until(lambda: len(ran) == 3000, "all have run")
        backlogged = Counter(ran[:1000])
        assert all(abs(backlogged[tenant] / 1000 - weight / 10) <= 0.05 for tenant, weight in weights.items()), (
            backlogged
        )

    def test_weights_can_be_a_function_of_the_key(self, app: Mainspring) -> None:
        app.queue("mail", fair_by="tenant", fair_weights=lambda key: 4 if key == "gold" else 1)
        note = noting(app, [])
        fill(app, note, ("gold", 1), ("free", 1))
        assert lanes_of(app) == ["mail/async#*=1*free", "mail/async#*=4*gold"]

    def test_weights_and_a_limit_by_the_same_key_both_apply(self, app: Mainspring) -> None:
        ran: list[str] = []
        app.queue("mail", fair_by="tenant")
        note = noting(app, ran, limit=Concurrency(2, by="tenant"))
        fill(app, note, ("a", 50), ("b", 50))
        with app.worker():
            until(lambda: len(ran) == 100, "all have run")
        first = Counter(ran[:50])
        assert abs(first["a"] - 25) <= 5, first

    @pytest.mark.parametrize("by", ["order.customer", lambda order, **_: order["customer"]])
    def test_fair_by_is_a_path_or_a_function(self, app: Mainspring, by: Any) -> None:
        app.queue("mail", fair_by=by)

        @app.task(queue="mail")
        def ship(order: dict[str, str]) -> None: ...

        ship.enqueue({"customer": "acme"})
        assert lanes_of(app) == ["mail/thread#*=1*acme"]

    def test_jobs_without_a_key_share_the_empty_key(self, app: Mainspring) -> None:
        app.queue("mail", fair_by=lambda tenant=None, **_: tenant)

        @app.task(queue="mail")
        def clean(days: int) -> None: ...

        clean.enqueue(3)
        assert lanes_of(app) == ["mail/thread#*=1*"]

    def test_a_job_by_name_gets_its_key_from_its_arguments(self, app: Mainspring) -> None:
        """It gets the empty key when the arguments have no such value."""
        app.queue("mail", fair_by="tenant")
        app.call("elsewhere.send", tenant="acme").options(queue="mail").enqueue()
        app.call("elsewhere.send", "acme").options(queue="mail").enqueue()
        assert lanes_of(app) == ["mail/any#*=1*", "mail/any#*=1*acme"]

    def test_jobs_of_other_queues_have_no_fair_key(self, app: Mainspring) -> None:
        app.queue("mail", fair_by="tenant")
        note = noting(app, [])
        note.options(queue="other").enqueue("acme")
        assert lanes_of(app) == ["other/async"]

    def test_a_follow_up_has_the_empty_fair_key(self, app: Mainspring) -> None:
        app.queue("mail", fair_by=lambda tenant=None, **_: tenant)

        @app.task(queue="mail", name="after")
        def after(job: UUID) -> None: ...

        @app.task(queue="mail", name="send", on_success=after)
        def send(tenant: str) -> str:
            return tenant

        job = send.enqueue("acme")
        with app.worker():
            assert job.result(timeout=LIMIT) == "acme"
            until(lambda: app.jobs.count()["succeeded"] == 2, "it was followed")


@pytest.mark.row("B9")
def test_a_flood_of_one_key_does_not_delay_the_others(app: Mainspring) -> None:
    ran: list[str] = []
    app.queue("mail", fair_by="tenant")
    note = noting(app, ran)
    fill(app, note, ("flood", 1500), *((f"small {n}", 2) for n in range(50)))
    with app.worker():
        until(lambda: len(ran) == 1600, "all have run")
    last = max(n for n, tenant in enumerate(ran) if tenant != "flood")
    assert last < 400, last


class TestBadInput:
    @pytest.mark.parametrize("by", [5, "", "tenant id", "a..b", [], b"tenant"])
    def test_a_bad_fair_by_is_refused(self, app: Mainspring, by: Any) -> None:
        with pytest.raises(InvalidOption, match=r"queue 'mail': fair_by=.*neither the name of an argument"):
            app.queue("mail", fair_by=by)

    def test_a_coroutine_function_as_fair_by_is_refused(self, app: Mainspring) -> None:
        async def later(**_: Any) -> str:
            return ""

        with pytest.raises(InvalidOption, match="nor a def"):
            app.queue("mail", fair_by=later)

    @pytest.mark.parametrize("weights", [5, "acme", {"acme": 0}, {"acme": "5"}, {7: 5}, {"acme": float("nan")}])
    def test_bad_weights_are_refused(self, app: Mainspring, weights: Any) -> None:
        with pytest.raises(InvalidOption, match=r"queue 'mail': fair_weights"):
            app.queue("mail", fair_by="tenant", fair_weights=weights)

    def test_weights_without_fair_by_are_refused(self, app: Mainspring) -> None:
        with pytest.raises(InvalidOption, match="works with fair_by only"):
            app.queue("mail", fair_weights={"acme": 5})

    def test_a_task_without_the_argument_of_fair_by_is_refused(self, app: Mainspring) -> None:
        app.queue("mail", fair_by="tennant")
        with pytest.raises(
            InvalidOption, match=r"names 'tennant', which is not an argument of task 'note'; did you mean 'tenant'"
        ):
            noting(app, [])

    def test_a_fair_by_that_a_declared_task_lacks_is_refused(self, app: Mainspring) -> None:
        noting(app, [])
        with pytest.raises(InvalidOption, match="not an argument of task 'note'"):
            app.queue("mail", fair_by="customer.id")
        app.queue("mail", fair_by="tenant")

    def test_a_path_that_does_not_exist_is_refused_at_enqueue(self, app: Mainspring) -> None:
        app.queue("mail", fair_by="tenant.id")
        note = noting(app, [])
        with pytest.raises(InvalidOption, match=r"queue 'mail'.*was not found: there is no 'id'"):
            note.enqueue("acme")
        assert lanes_of(app) == []

    @pytest.mark.parametrize("option", ["fair_by", "fair_weights"])
    def test_a_fair_by_function_that_raises_is_reported_at_enqueue(self, app: Mainspring, option: str) -> None:
        def broken(*_: Any, **__: Any) -> Any:
            raise KeyError("no such tenant")

        options: Any = {"fair_by": "tenant"} | {option: broken}
        app.queue("mail", **options)
        note = noting(app, [])
        with pytest.raises(InvalidOption, match=rf"{option}.*raised KeyError"):
            note.enqueue("acme")
        assert lanes_of(app) == []

    def test_a_bad_weight_from_a_function_is_reported_at_enqueue(self, app: Mainspring) -> None:
        app.queue("mail", fair_by="tenant", fair_weights=lambda _: -1)
        note = noting(app, [])
        with pytest.raises(InvalidOption, match=r"queue 'mail', key 'acme'.*must be a number"):
            note.enqueue("acme")
