"""A lost reply of every store call in the life of a job."""

import pytest

from mainspring.testing.contract import lost


@pytest.mark.row("B21")
class TestLostReplies(lost.TestLostReplies):
    """The shipped class, counted for the mission."""
