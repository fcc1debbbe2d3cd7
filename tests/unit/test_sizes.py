"""Sizes as text: what can be read, what is refused, how they are shown."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.common.sizes import format_size, to_bytes
from mainspring.errors import InvalidOption


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("256MB", 256_000_000),
        ("256MiB", 268_435_456),
        ("1kB", 1000),
        ("1KB", 1000),
        ("1KiB", 1024),
        ("1.5 GB", 1_500_000_000),
        ("512B", 512),
        ("512", 512),
        ("2tib", 2 * 1024**4),
        (0, 0),
        (7, 7),
    ],
)
def test_sizes_use_powers_of_1000_and_with_an_i_powers_of_1024(text: Any, size: int) -> None:
    assert to_bytes(text) == size


@pytest.mark.parametrize("value", ["", "M", "256M", "256 potatoes", "-1MB", -1, 1.5, True, None, "1e6"])
def test_a_value_that_is_not_a_size_is_refused_with_the_option(value: Any) -> None:
    with pytest.raises(InvalidOption, match="memory="):
        to_bytes(value, what="memory")


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0B"), (999, "999B"), (1000, "1kB"), (1024, "1KiB"), (268_435_456, "256MiB"), (1_234_567, "1.23MB")],
)
def test_sizes_are_shown_short(size: int, text: str) -> None:
    assert format_size(size) == text


@given(st.integers(0, 10**16))
def test_shown_sizes_can_be_parsed_and_are_close(size: int) -> None:
    assert abs(to_bytes(format_size(size)) - size) <= size * 0.006
