"""What a unique key is made of."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, Literal

import pytest

from mainspring import Key, Mainspring
from mainspring.errors import InvalidOption
from mainspring.jobs.records import UniqueKey

app = Mainspring("sqlite://")
BOTH: Final[tuple[Literal["debounce", "throttle"], ...]] = ("debounce", "throttle")


@app.task(name="shop.report")
def report(month: str, copies: int = 1, *, parts: set[str] | None = None, rate: float = 1.0) -> None: ...


@app.task(name="shop.other")
def other(month: str) -> None: ...


def unique(call: Any) -> UniqueKey:
    new = call.new_job()
    assert new.unique is not None
    found: UniqueKey = new.unique
    return found


def hash_of(call: Any) -> bytes:
    return unique(call).hash


class TestText:
    def test_plain_text_is_a_key_of_that_text(self) -> None:
        assert hash_of(report.s("may").options(key="k")) == hash_of(report.s("june").options(key=Key("k")))

    def test_a_key_belongs_to_its_task(self) -> None:
        assert hash_of(report.options(key="k").s("may")) != hash_of(other.options(key="k").s("may"))

    def test_the_hash_is_the_same_in_every_process(self) -> None:
        program = (
            "from mainspring import Key, Mainspring\n"
            "app = Mainspring('sqlite://')\n"
            "def report(month: str, parts: set[str]) -> None: ...\n"
            "task = app.task(name='shop.report')(report)\n"
            "call = task.s('may', {'b', 'a', 'c', 'd'}).options(key=Key.arguments())\n"
            "print(call.new_job().unique.hash.hex())\n"
        )
        said = {subprocess.check_output([sys.executable, "-c", program]) for _ in range(3)}
        assert len(said) == 1

    def test_task_and_key_are_separated_in_the_hash(self) -> None:
        first = app.task(name="x.a")(other.fn).options(key="bc").s("may")
        second = app.task(name="x.ab")(other.fn).options(key="c").s("may")
        assert hash_of(first) != hash_of(second)

    def test_a_text_key_differs_from_a_key_of_arguments(self) -> None:
        assert hash_of(other.s("may").options(key='{"month":"may"}')) != hash_of(
            other.s("may").options(key=Key.arguments())
        )


class TestArguments:
    @pytest.mark.parametrize(
        "spelt",
        [
            lambda: report.s(month="may"),
            lambda: report.s("may", 1),
            lambda: report.s("may", copies=1, parts=None),
            lambda: report.s("may", rate=1),
        ],
    )
    def test_position_name_and_default_make_the_same_key(self, spelt: Callable[[], Any]) -> None:
        assert hash_of(spelt().options(key=Key.arguments())) == hash_of(report.s("may").options(key=Key.arguments()))

    def test_every_argument_counts_if_no_argument_is_named(self) -> None:
        calls = [
            report.s("may"),
            report.s("june"),
            report.s("may", 2),
            report.s("may", parts={"a"}),
            report.s("may", rate=2),
        ]
        assert len({hash_of(call.options(key=Key.arguments())) for call in calls}) == len(calls)

    def test_only_the_named_arguments_count(self) -> None:
        by_month = Key.arguments("month")
        assert hash_of(report.s("may", 1).options(key=by_month)) == hash_of(report.s("may", 9).options(key=by_month))
        assert hash_of(report.s("may").options(key=by_month)) != hash_of(report.s("june").options(key=by_month))

    def test_the_order_of_the_names_does_not_matter(self) -> None:
        one, two = Key.arguments("month", "copies"), Key.arguments("copies", "month")
        assert hash_of(report.s("may").options(key=one)) == hash_of(report.s("may").options(key=two))

    def test_values_of_different_arguments_are_separated_in_the_hash(self) -> None:
        @app.task(name="two")
        def two(a: str, b: str) -> None: ...

        assert hash_of(two.s("1", "2").options(key=Key.arguments())) != hash_of(
            two.s("2", "1").options(key=Key.arguments())
        )

    def test_the_order_of_keys_in_a_mapping_does_not_matter(self) -> None:
        @app.task(name="mapped")
        def mapped(values: dict[str, Any]) -> None: ...

        one, two = mapped.s({"a": 1, "b": {"c": 1, "d": 2}}), mapped.s({"b": {"d": 2, "c": 1}, "a": 1})
        assert hash_of(one.options(key=Key.arguments())) == hash_of(two.options(key=Key.arguments()))

    def test_star_arguments_count_too(self) -> None:
        @app.task(name="rest")
        def rest(a: int, *more: int, **named: int) -> None: ...

        calls = [rest.s(1), rest.s(1, 2), rest.s(1, 2, 3), rest.s(1, x=2), rest.s(1, x=3)]
        assert len({hash_of(call.options(key=Key.arguments())) for call in calls}) == len(calls)

    def test_a_producer_that_knows_only_the_name_makes_the_same_key(self) -> None:
        stranger = Mainspring("sqlite://")
        key = Key.arguments("month", "rate")
        by_name = stranger.call("shop.report", month="may", rate=2).options(key=key)
        assert hash_of(by_name) == hash_of(report.s("may", rate=2.0).options(key=key))

    @pytest.mark.parametrize(
        ("call", "key"),
        [
            (lambda app: app.call("elsewhere", 1, 2), Key.arguments()),
            (lambda app: app.call("elsewhere", a=1), Key.arguments()),
            (lambda app: app.call("elsewhere", 1), Key.arguments("a")),
            (lambda app: app.call("elsewhere", b=1), Key.arguments("a")),
        ],
    )
    def test_a_key_that_needs_the_signature_is_refused_for_an_unknown_task(
        self, call: Callable[[Mainspring], Any], key: Key
    ) -> None:
        with pytest.raises(InvalidOption, match=r"(?s)task 'elsewhere': key=.*needs to know.*\n  .*by keyword"):
            hash_of(call(app).options(key=key))

    def test_a_named_argument_that_the_task_lacks_is_refused_at_enqueue(self) -> None:
        with pytest.raises(InvalidOption, match=r"task 'shop.report': key=.*'mnth', which is not an argument.*'month'"):
            hash_of(report.s("may").options(key=Key.arguments("mnth")))

    @pytest.mark.parametrize("name", ["usr", "ctx", "db", "more"])
    def test_a_named_argument_that_the_task_lacks_is_refused_at_declaration(self, name: str) -> None:
        from mainspring import Context, Depends

        def get_db() -> int:
            return 1

        with pytest.raises(InvalidOption, match=f"task .*: key=.*'{name}', which is not an argument"):

            @app.task(key=Key.arguments(name))
            def send(ctx: Context, user: int, *more: int, db: int = Depends(get_db)) -> None: ...


class TestShown:
    def test_a_text_key_is_shown_as_its_text(self) -> None:
        assert said(report.s("may").options(key="report-may")) == "report-may"

    def test_a_key_of_arguments_is_shown_as_its_arguments(self) -> None:
        assert said(report.s("may").options(key=Key.arguments("month", "copies"))) == "copies=1, month='may'"

    def test_hidden_arguments_of_a_key_are_not_shown(self) -> None:
        @app.task(name="login", sensitive=["password"], key=Key.arguments())
        def login(user: str, password: str) -> None: ...

        assert said(login.s("ann", "hunter22")) == "password=***, user='ann'"


def said(call: Any) -> str | None:
    import msgspec

    from mainspring.jobs.records import JobBody

    return msgspec.json.decode(call.new_job().record, type=JobBody).key


class TestPolicy:
    def test_window_and_conflict_reach_the_store(self) -> None:
        claim = unique(report.s("may").options(key=Key("k", window="1h", on_conflict="replace")))
        assert (claim.window, claim.conflict) == (3_600_000_000, "replace")
        kept = unique(report.s("may").options(key=Key.arguments(keep="2s", on_conflict="error")))
        assert (kept.keep, kept.window, kept.conflict) == (2_000_000, 0, "error")
        bounced = unique(report.s("may").options(key=Key("k", mode="debounce", window="1s", max_wait="3s")))
        assert (bounced.mode, bounced.window, bounced.max_wait) == ("debounce", 1_000_000, 3_000_000)
        assert unique(report.s("may").options(key="k")) == UniqueKey(
            hash_of(report.s("may").options(key="k")), 0, "return"
        )

    def test_the_key_of_a_job_overrides_that_of_the_task_and_none_disables_it(self) -> None:
        keyed = app.task(name="keyed", key="of the task")(other.fn)
        assert said(keyed.s("may")) == "of the task"
        assert said(keyed.s("may").options(key="of the job")) == "of the job"
        new = keyed.s("may").options(key=None).new_job()
        assert new.unique is None

    def test_each_mode_has_its_own_keys(self) -> None:
        """A call never meets a job with another mode."""
        keys = [Key("k"), Key("k", keep="1h"), Key("k", mode="keep_last")]
        keys += [Key("k", mode=mode, window="1s") for mode in BOTH]
        assert len({hash_of(report.s("may").options(key=key)) for key in keys}) == len(keys)
        assert hash_of(report.s("may").options(key=Key("k", keep="2h"))) == hash_of(
            report.s("may").options(key=Key("k", keep="1h"))
        )

    def test_calls_with_a_kept_key_are_compared_by_every_argument(self) -> None:
        for key in (Key("k", keep="1h"), Key.arguments("month", keep="1h")):
            calls = [report.s("may"), report.s("may", 1), report.s(month="may", copies=1)]
            same = {unique(call.options(key=key)).print for call in calls}
            assert len(same) == 1
            assert unique(report.s("may", 2).options(key=key)).print not in same
        assert unique(report.s("may").options(key=Key("k", window="1h"))).print == b""

    def test_a_task_known_by_name_can_have_a_kept_key(self) -> None:
        """Its arguments are compared as they were given: the defaults are not known."""
        for key in (Key("k", keep="1h"), Key.arguments("a", keep="1h")):
            one, same, other = (app.call("elsewhere", a=1, b=b).options(key=key) for b in (1, 1, 2))
            assert unique(one) == unique(same)
            assert unique(one).hash == unique(other).hash
            assert unique(one).print != unique(other).print
        assert unique(app.call("elsewhere", 1).options(key=Key("k", keep="1h"))).print != b""

    @pytest.mark.parametrize("mode", BOTH)
    def test_a_delay_with_debounce_or_throttle_is_refused(self, mode: Literal["debounce", "throttle"]) -> None:
        key = Key("k", mode=mode, window="1s")
        for options in ({"delay": "5s"}, {"run_at": datetime(2030, 1, 1, tzinfo=UTC)}):
            (name,) = options
            with pytest.raises(InvalidOption, match=f"(?s){name}.*mode='{mode}'.*window"):
                hash_of(report.s("may").options(key=key, **any_value(options)))
        hash_of(report.s("may").options(key=Key("k", mode="keep_last"), delay="5s"))

    @pytest.mark.parametrize(
        "make",
        [
            lambda: Key(""),
            lambda: Key("k" * 501),
            lambda: Key(any_value(7)),
            lambda: Key("a\0b"),
            lambda: Key("\ud800"),
            lambda: Key("k", window=0),
            lambda: Key("k", window="soon"),
            lambda: Key("k", on_conflict=any_value("ignore")),
            lambda: Key("k", mode=any_value("twice")),
            lambda: Key.arguments("not a name"),
            lambda: Key.arguments(any_value(1)),
            lambda: Key.arguments(keep=-1),
            lambda: Key("k", mode="debounce"),
            lambda: Key("k", mode="throttle"),
            lambda: Key("k", mode="debounce", window=0),
            lambda: Key("k", mode="keep_last", window="1s"),
            lambda: Key("k", max_wait="1s"),
            lambda: Key("k", mode="throttle", window="1s", max_wait="2s"),
            lambda: Key("k", mode="debounce", window="2s", max_wait="1s"),
            lambda: Key("k", mode="keep_last", on_conflict="return"),
            lambda: Key.arguments(mode="debounce", window="1s", on_conflict="error"),
            lambda: Key("k", mode="keep_last", keep="1h"),
            lambda: Key("k", keep="1h", window="1h"),
            lambda: Key("k", keep="1h", on_conflict="replace"),
        ],
    )
    def test_a_bad_key_is_refused_when_it_is_made(self, make: Callable[[], Key]) -> None:
        with pytest.raises(InvalidOption):
            make()

    def test_the_error_of_a_bad_key_names_the_fix(self) -> None:
        with pytest.raises(InvalidOption, match=r"(?s)Key: window.*must be given with mode='debounce'.*window=\"10s\""):
            Key("k", mode="debounce")
        with pytest.raises(
            InvalidOption, match=r"(?s)Key: on_conflict.*cannot be given with mode='throttle'.*replaces"
        ):
            Key("k", mode="throttle", window="1s", on_conflict="return")

    def test_keys_are_equal_by_their_options(self) -> None:
        assert Key("a", window="60s") == Key("a", window=60)
        assert Key("a") != Key("a", on_conflict="error")
        assert len({Key("a"), Key("a"), Key.arguments("a")}) == 2
        assert Key("a", keep="1h") != Key("a") != Key("a", mode="keep_last")
        assert repr(Key("a", on_conflict="error")) == "Key('a', on_conflict='error')"
        assert repr(Key("a", mode="keep_last")) == "Key('a', mode='keep_last')"


def any_value(value: Any) -> Any:
    return value
