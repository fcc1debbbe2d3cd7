"""A lost reply of every store call in the life of a job."""

import pytest

from mainspring.testing.contract.claims import lost_replies


@pytest.mark.row("B21")
class TestLostReplies(lost_replies.TestLostReplies):
    """The shipped class, counted for the mission."""
