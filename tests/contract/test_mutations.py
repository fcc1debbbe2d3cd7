"""The planted faults fit the engine as it is, their page is up to date, and a sample of them is found."""

import pytest

from tests.mutations.mutation import Mutation
from tests.mutations.runner import ALL, TABLE, caught, fits, table

SAMPLE = [mutation for mutation in ALL if mutation.name in ("ack-token", "rescue-beat")]


@pytest.mark.parametrize("mutation", ALL, ids=lambda mutation: mutation.name)
def test_the_fault_can_be_planted(mutation: Mutation) -> None:
    assert [patch for patch in mutation.patches if not fits(patch)] == []


def test_names_are_unique() -> None:
    assert len({mutation.name for mutation in ALL}) == len(ALL)


def test_the_page_lists_every_fault() -> None:
    assert TABLE.read_text() == table(), "run: python -m tests.mutations --table"


@pytest.mark.parametrize("mutation", SAMPLE, ids=lambda mutation: mutation.name)
@pytest.mark.timeout(300)
def test_a_sample_is_found(mutation: Mutation) -> None:
    assert caught(mutation)
