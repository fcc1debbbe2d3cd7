"""What limits say, what they are called, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring import Concurrency, Mainspring, Rate
from mainspring.errors import InvalidOption
from mainspring.jobs.lanes import limited_lane
from mainspring.jobs.records import NewJob
from mainspring.limits.declare import bind
from mainspring.limits.records import Bucket, Limit


@pytest.fixture
def app() -> Mainspring:
    return Mainspring("sqlite://")


def made(call: Any) -> NewJob:
    new = call.new_job()
    found: NewJob = new
    return found


def of_user(user: dict[str, Any], **_: Any) -> str:
    return str(user["id"])


class TestNames:
    def test_a_limit_is_named_after_its_owner_and_its_kind(self) -> None:
        names = [each.limit.name for each in bind("t", [Concurrency(1), Rate(5, "1m", by="a.b")], "task")]
        assert names == ["t:at-once", "t:per-1m/a.b"]

    def test_the_size_is_not_in_the_name_of_a_limit(self) -> None:
        assert Concurrency(1).limit("t").name == Concurrency(9).limit("t").name

    def test_the_limit_record_of_a_rate(self) -> None:
        assert Rate(100, per="1s").limit("t") == Limit(name="t:per-1s", kind="rate", size=100, per=1_000_000)
        smooth = Rate(100, per="1s", window="gcra", burst=5).limit("t")
        assert (smooth.kind, smooth.burst) == ("smooth", 5)
        assert Rate(100, per="1s", window="gcra").limit("t").burst == 1

    def test_limits_are_shown_as_they_are_written(self) -> None:
        for each in (Concurrency(5, by="tenant"), Rate(1, per="1s", cost=1, by="a"), Rate(2, per=3, window="gcra")):
            assert eval(repr(each)) == each
            assert hash(eval(repr(each))) == hash(each)
        assert Concurrency(1) != Rate(1, per="1s")


class TestBuckets:
    def test_buckets_of_unkeyed_and_keyed_limits(self, app: Mainspring) -> None:
        @app.task(name="t.keys", limit=[Concurrency(5, by="tenant"), Rate(9, per="1s", cost="n"), Concurrency(7)])
        def keys(tenant: int, n: int = 2) -> None: ...

        assert made(keys.s(7)).buckets == (
            Bucket("t.keys:at-once"),
            Bucket("t.keys:at-once/tenant", "7"),
            Bucket("t.keys:per-1s", cost=2),
        )
        assert keys.s(7).limits == keys.limits

    @pytest.mark.parametrize("by", ["user.id", of_user])
    def test_by_is_a_path_or_a_function(self, app: Mainspring, by: Any) -> None:
        @app.task(name="t.paths", limit=Concurrency(5, by=by))
        def paths(user: dict[str, Any], other: int = 0) -> None: ...

        (bucket,) = made(paths.s({"id": "it's 7"})).buckets
        assert bucket.key == "it's 7"

    def test_an_empty_text_is_a_valid_key(self, app: Mainspring) -> None:
        @app.task(name="t.empty", limit=Concurrency(5, by="who"))
        def empty(who: str | None) -> None: ...

        keys = [made(empty.s(who)).buckets[0].key for who in ("", None, "null")]
        assert all(keys)

    def test_a_task_without_limits_has_no_buckets(self, app: Mainspring) -> None:
        @app.task(name="t.plain")
        def plain() -> None: ...

        assert made(plain.s()).buckets == ()
        assert plain.s().limits == ()

    def test_different_buckets_make_different_lanes(self) -> None:
        lanes = {
            limited_lane("q/any", buckets)
            for buckets in (
                [Bucket("a")], [Bucket("a"), Bucket("b")], [Bucket("a,b")], [Bucket("a", "b")], [Bucket("a=b")],
                [Bucket("a", "b,c")], [Bucket("a", "b"), Bucket("c")], [Bucket("a", "b"), Bucket("a", "c")],
                [Bucket("a", "x" * 99)], [Bucket("a", "x" * 98)], [Bucket("a", "\ud800")],
            )
        }  # fmt: skip
        assert len(lanes) == 11


def _refused(app: Mainspring, **given: Any) -> InvalidOption:
    with pytest.raises(InvalidOption) as caught:

        @app.task(name="t.refused", **given)
        def refused(tenant_id: int, n: int) -> None: ...

    return caught.value


class TestRefused:
    @pytest.mark.parametrize("n", [0, -1, 1.5, "5", True, None])
    def test_bad_sizes_are_refused(self, n: Any) -> None:
        with pytest.raises(InvalidOption, match="whole number from 1"):
            Concurrency(n)
        with pytest.raises(InvalidOption, match="whole number from 1"):
            Rate(n, per="1s")

    @pytest.mark.parametrize("per", [0, "0s", "soon", None])
    def test_bad_windows_are_refused(self, per: Any) -> None:
        with pytest.raises(InvalidOption):
            Rate(1, per=per)

    def test_a_burst_with_a_sliding_window_is_refused(self) -> None:
        with pytest.raises(InvalidOption, match="gcra"):
            Rate(1, per="1s", burst=2)
        with pytest.raises(InvalidOption, match="sliding"):
            Rate(1, per="1s", window="fixed")  # type: ignore[arg-type]  # what is refused

    @pytest.mark.parametrize("by", ["", "a b", 7, "a..b"])
    def test_a_bad_by_or_cost_is_refused(self, by: Any) -> None:
        with pytest.raises(InvalidOption, match="neither"):
            Concurrency(1, by=by)
        with pytest.raises(InvalidOption, match="neither"):
            Rate(1, per="1s", cost=by if by != 7 else 0)

    def test_an_argument_that_the_task_lacks_is_refused(self, app: Mainspring) -> None:
        error = _refused(app, limit=Concurrency(1, by="tenant"))
        assert "'tenant', which is not an argument" in str(error)
        assert "tenant_id" in str(error)
        assert "which is not an argument" in str(_refused(app, limit=Rate(1, per="1s", cost="m")))

    def test_the_same_limit_twice_is_refused(self, app: Mainspring) -> None:
        assert "declared twice" in str(_refused(app, limit=[Concurrency(1), Concurrency(2)]))

    @pytest.mark.parametrize("limit", [5, "5", [5], {}])
    def test_values_that_are_not_a_limit_are_refused(self, app: Mainspring, limit: Any) -> None:
        assert "is not a limit" in str(_refused(app, limit=limit))

    def test_a_key_that_cannot_be_read_is_refused_at_enqueue(self, app: Mainspring) -> None:
        def breaks(**_: Any) -> str:
            raise KeyError("nobody")

        @app.task(name="t.breaks", limit=Concurrency(1, by=breaks))
        def told(user: dict[str, Any]) -> None: ...

        with pytest.raises(InvalidOption, match="raised KeyError"):
            made(told.s({}))

        @app.task(name="t.object", limit=Concurrency(1, by=lambda **_: app))
        def odd(user: dict[str, Any]) -> None: ...

        with pytest.raises(InvalidOption, match="returned a Mainspring, which cannot be a key"):
            made(odd.s({}))

        @app.task(name="t.nowhere", limit=Concurrency(1, by="user.id"))
        def nowhere(user: dict[str, Any]) -> None: ...

        with pytest.raises(InvalidOption, match="was not found"):
            made(nowhere.s({"name": 1}))

    @pytest.mark.parametrize("cost", [0, -1, "much", 11])
    def test_a_bad_cost_is_refused_at_enqueue(self, app: Mainspring, cost: Any) -> None:
        @app.task(name="t.cost", limit=Rate(10, per="1s", cost="cost"))
        def costly(cost: Any) -> None: ...

        with pytest.raises(InvalidOption, match=r"t\.cost"):
            made(costly.s(cost))
