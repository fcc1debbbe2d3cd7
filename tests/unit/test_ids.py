"""Ids are UUIDs of version 7: unique, ordered within a process, safe after a fork and between threads."""

from __future__ import annotations

import os
import threading
import time
import uuid
from typing import Any

import pytest

from mainspring.common import ids
from mainspring.common.ids import id_of, new_id, new_ids, parse_id, raw_id, raw_ids, worker_id
from mainspring.errors import InvalidOption


def test_an_id_is_a_version_7_uuid_with_the_time_in_it() -> None:
    before = time.time_ns() // 1_000_000
    made = new_id()
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert before - 5000 <= made.int >> 80 <= time.time_ns() // 1_000_000 + 5000
    assert made == uuid.UUID(str(made))
    assert made.is_safe is uuid.SafeUUID.unknown
    assert hash(made) == hash(uuid.UUID(int=made.int))


def test_ids_of_a_process_grow_also_within_a_millisecond() -> None:
    made = [new_id() for _ in range(5000)] + new_ids(5000) + [new_id()]
    assert made == sorted(set(made))
    assert all(each.version == 7 and each.variant == uuid.RFC_4122 for each in made)


def test_raw_ids_are_the_bytes_of_ids_in_the_same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the counter reaches the upper half."""
    frozen = time.time_ns()
    monkeypatch.setattr(ids, "time_ns", lambda: frozen)
    before = new_id()
    monkeypatch.setattr(ids, "_tail", (5 << 62) - 3)
    made = [before, *map(id_of, [*raw_ids(2), *raw_ids(5), raw_id()]), new_id()][1:]
    assert made == sorted(set(made))
    assert [each.int & (1 << 62) - 1 for each in made[2:5]] == [0, 1, 2]
    assert all((each.version, each.variant) == (7, uuid.RFC_4122) for each in made)
    assert all(each == uuid.UUID(bytes=each.bytes) and each.int >> 80 == before.int >> 80 for each in made)
    assert raw_ids(0) == []


def test_ids_grow_when_the_clock_steps_back(monkeypatch: pytest.MonkeyPatch) -> None:
    before = new_id()
    monkeypatch.setattr(ids, "time_ns", lambda: time.time_ns() - 3_600_000_000_000)
    assert new_id() > before


def test_two_sequences_in_the_same_millisecond_have_no_common_id(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = time.time_ns()
    monkeypatch.setattr(ids, "time_ns", lambda: frozen)
    ids._after_fork()
    first = set(new_ids(1000))
    ids._after_fork()
    assert not first & set(new_ids(1000))


def test_threads_never_get_the_same_id() -> None:
    made: list[list[uuid.UUID]] = []
    threads = [threading.Thread(target=lambda: made.append([new_id() for _ in range(2000)])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({each for part in made for each in part}) == 8000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_makes_ids_of_its_own_even_if_the_lock_was_held() -> None:
    new_id()
    read, write = os.pipe()
    with ids._lock:
        child = os.fork()
        if child == 0:
            os.write(write, b"".join(each.bytes for each in new_ids(100)))
            os._exit(0)
    os.waitpid(child, 0)
    data = os.read(read, 16 * 100)
    os.close(read)
    os.close(write)
    theirs = {data[i : i + 16] for i in range(0, len(data), 16)}
    assert len(theirs) == 100
    assert not theirs & {each.bytes for each in new_ids(1000)}


def test_no_ids_is_an_empty_list() -> None:
    assert new_ids(0) == []
    with pytest.raises(InvalidOption):
        new_ids(-1)


def test_parse_id_accepts_text_bytes_and_ids() -> None:
    made = new_id()
    for form in (made, str(made), f" {made}\n", made.hex, made.bytes, str(made).encode()):
        assert parse_id(form) == made


@pytest.mark.parametrize("value", ["", "7", "zz", b"", b"short", b"\xff" * 17, 7, None, ["x"]])
def test_a_value_that_is_not_an_id_is_refused_with_an_example(value: Any) -> None:
    with pytest.raises(InvalidOption, match="not the id of a job") as caught:
        parse_id(value)
    assert "01890a5d" in caught.value.hint


def test_a_worker_id_is_16_hex_digits_and_new_each_time() -> None:
    made = {worker_id() for _ in range(100)}
    assert len(made) == 100
    assert all(len(each) == 16 and int(each, 16) >= 0 for each in made)
