"""Shared memory between a worker and the process that watches it."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

import pytest

from mainspring.worker.lease.shared_state import EARLY, STRICT, STUCK, Phase, SharedState

JOB = bytes(range(16))


@pytest.fixture
def board() -> Iterator[SharedState]:
    board = SharedState.create(8)
    yield board
    board.close()


def test_both_processes_read_the_same_values(board: SharedState) -> None:
    other = SharedState.attach(os.dup(board.fd))
    other.ticked, other.tried, other.phase = 1.5, 2.5, Phase.DRAINING
    assert (board.ticked, board.tried, board.phase) == (1.5, 2.5, Phase.DRAINING)
    other.close()


def test_the_lease_end_only_grows(board: SharedState) -> None:
    board.extend(10.0)
    board.extend(9.0)
    assert board.lease_end == 10.0


def test_a_started_job_is_shown_until_it_ends(board: SharedState) -> None:
    board.start(3, JOB, 77, 12.5, -1, EARLY | STRICT, 2.5)
    (job,) = board.jobs()
    assert (job.slot, job.job, job.token, job.deadline, job.retry_in, job.flags, job.started) == (
        3, JOB, 77, 12.5, -1, EARLY | STRICT, 2.5,
    )  # fmt: skip
    board.mark(3, STUCK)
    assert board.jobs()[0].flags == EARLY | STRICT | STUCK
    board.end(3)
    assert board.jobs() == []


def test_a_row_in_the_middle_of_a_write_is_left_out(board: SharedState) -> None:
    board.start(0, JOB, 1, 0.0, 0, 0)
    board.start(1, JOB, 2, 0.0, 0, 0)
    struct.pack_into("=q", board._memory, 64, 99)  # a new token in front, the old one at the end
    assert [job.token for job in board.jobs()] == [2]


def test_only_the_slots_in_use_are_read(board: SharedState) -> None:
    board.start(5, JOB, 1, 0.0, 0, 0)
    board.slots = 5
    assert board.jobs() == []
    with pytest.raises(ValueError, match="cannot have 9"):
        board.slots = 9


def test_a_descriptor_without_shared_state_is_refused() -> None:
    read, write = os.pipe()
    os.close(write)
    with pytest.raises(ValueError, match="is not shared state"):
        SharedState.attach(read)
    os.close(read)


def test_the_end_of_a_body_after_close_is_ignored(board: SharedState) -> None:
    """A thread whose body does not end outlives its worker."""
    board.close()
    board.end(0)


def test_close_can_be_called_twice(board: SharedState) -> None:
    board.close()
    board.close()
    assert board.fd == -1
