"""What is kept of an error can always be stored, whatever the error is."""

from __future__ import annotations

import re
from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.codec import ErrorRecord, clean_text, describe_error, dumps, loads


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


def caught(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as seen:  # noqa: BLE001 - any error is a sample
        return seen


def test_an_error_is_stored_with_type_message_traceback_causes_and_notes() -> None:
    error = caught(ValueError("bad"), caught(KeyError("k"), OSError("disk")))
    error.add_note("order 42")
    record = describe_error(error)
    assert (record.type, record.message) == ("ValueError", "bad")
    assert record.causes == ("KeyError: 'k'", "OSError: disk")
    assert record.notes == ("order 42",)
    assert "in caught\n    raise error from cause" in record.traceback
    assert loads(dumps(record), ErrorRecord) == record


def test_the_type_is_the_qualified_name() -> None:
    assert describe_error(msgspec.ValidationError("x")).type == "msgspec.ValidationError"
    assert describe_error(MuteError()).type.endswith("test_codec_failures.MuteError")


def test_a_suppressed_context_is_not_a_cause_and_an_implicit_one_is() -> None:
    def fails(*, hide: bool) -> None:
        try:
            raise KeyError("inner")
        except KeyError:
            if hide:
                raise ValueError("outer") from None
            raise ValueError("outer")  # noqa: B904 - the implicit context is under test

    records = []
    for hide in (True, False):
        with pytest.raises(ValueError, match="outer") as info:
            fails(hide=hide)
        records.append(describe_error(info.value).causes)
    assert records == [(), ("KeyError: 'inner'",)]


def test_an_error_whose_str_raises_is_still_stored() -> None:
    record = describe_error(caught(MuteError()))
    assert "raised RuntimeError" in record.message
    assert record.traceback


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "\udcff" * 10, "é\0\ud800"])
def test_nul_and_lone_surrogates_are_made_visible(text: str) -> None:
    error = ValueError(text)
    error.add_note(text)
    record = describe_error(caught(error, ValueError(text)))
    data = dumps(record)
    assert b"\\u0000" not in data
    assert b"\0" not in data
    assert loads(data, ErrorRecord) == record


def test_long_texts_are_cut_with_a_marker() -> None:
    record = describe_error(caught(ValueError("x" * 10**6)), limit=1000)
    assert len(record.message) <= 4000
    assert len(record.traceback) <= 1000
    assert "more characters were cut" in record.message
    assert record.traceback.startswith("Traceback")
    assert record.traceback.endswith("xxx\n")


def test_the_marker_has_the_number_of_characters_that_are_missing() -> None:
    keeps: tuple[Literal["start", "ends"], ...] = ("start", "ends")
    for keep in keeps:
        text = clean_text("x" * 5000, 400, keep=keep)
        found = re.fullmatch(r"(x*) \.\.\. \[([\d,]+) more characters were cut\] ?(x*)", text)
        assert found is not None
        assert len(found[0]) <= 400
        assert len(found[1]) + len(found[3]) + int(found[2].replace(",", "")) == 5000


def test_notes_and_frames_that_are_left_out_leave_a_mark() -> None:
    def dive(depth: int) -> None:
        if depth == 0:
            error = ValueError("deep")
            for number in range(12):
                error.add_note(str(number))
            raise error
        dive(depth - 1)

    with pytest.raises(ValueError, match="deep") as info:
        dive(99)
    record = describe_error(info.value)
    assert record.notes[9:] == ("9", "[2 more notes were cut]")
    assert record.traceback.splitlines()[:2] == [
        "Traceback (most recent call last):", "  [41 outer frames were cut]",
    ]  # fmt: skip


def test_a_cycle_of_causes_ends() -> None:
    first, second = ValueError("1"), ValueError("2")
    first.__cause__, second.__cause__ = second, first
    assert describe_error(first).causes == ("ValueError: 2",)


def test_a_long_chain_and_a_deep_recursion_are_bounded() -> None:
    error: Exception = ValueError("0")
    for number in range(200):
        outer = ValueError(str(number))
        outer.__cause__ = error
        error = outer
    assert describe_error(error).causes[9:] == ("ValueError: 189", "[more causes were cut]")

    def dive() -> None:
        dive()

    with pytest.raises(RecursionError) as info:
        dive()
    assert len(describe_error(info.value).traceback) <= 32_000


def test_an_exception_group_shows_its_members() -> None:
    record = describe_error(caught(ExceptionGroup("two", [ValueError("one"), KeyError("other")])))
    assert record.type == "ExceptionGroup"
    assert "ValueError: one" in record.traceback


@given(st.text(st.characters()), st.integers(0, 60))
def test_clean_text_fits_and_can_be_stored(text: str, limit: int) -> None:
    for cleaned in (clean_text(text, limit), clean_text(text, limit, keep="ends")):
        assert len(cleaned) <= limit
        assert "\0" not in cleaned
        cleaned.encode()


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=50))
def test_clean_text_leaves_valid_text_unchanged(text: str) -> None:
    assert clean_text(text, 50) == text
