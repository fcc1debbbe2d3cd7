"""Pages that come from code say what the code says."""

from __future__ import annotations

import pytest

from tools import reference


@pytest.mark.parametrize("name", reference.pages())
def test_a_generated_page_is_up_to_date(name: str) -> None:
    assert (reference.PAGES / name).read_text() == reference.pages()[name], "run: python -m tools.reference"
