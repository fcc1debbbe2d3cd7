"""The statements of the hot path look at what they need, not at a backlog."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainspring.stores.sqlite import SqliteStore, statements
from mainspring.stores.sqlite.statements import Statements, fill, sizes

from .words import close, enqueue, job, jobs, run

SQL = Statements("mainspring_")
SCAN = re.compile(r"SCAN (?!a$|\d+ CONSTANT|\d-ROW|CONSTANT|\(subquery|e$|h$|w$|mainspring_breakers$|json_each )")
HOT = (
    "enqueue", "known", "parent_state", "next_seq", "ack_succeeded", "delete_job", "owned", "ended_by", "add_attempt",
    "put_off", "give_back", "free_hold", "worker_row", "worker_turned", "groups_beside", "heads", "level",
    "level_heads", "claim", "claim_ids", "hold", "claims_since", "leases", "orders", "to_finished", "to_dead",
    "children", "due", "promote", "expired", "next_due", "beat", "held", "lease_is_good", "old_by_keep", "old_finished",
    "old_dead", "still_finished", "still_dead", "marked", "last_line", "add_line", "add_item", "logs", "items",
    "attempts", "live", "last_holder", "lose_key", "take_key", "key_of", "follows_of", "followed",
    "add_mark", "add_follow", "drop_marks", "drop_follows", "drop_key", "heads_costs", "level_heads_costs",
    "delete_free", "delete_limited", "limit", "add_limit", "set_limit", "override", "forget_limit", "places_used",
    "gated", "window_used", "starts", "newest_start", "newest_starts", "put_start", "less_start", "drop_starts", "pace",
    "set_tat", "slow", "note_wait", "waits", "renew_guest", "guest", "add_guest", "drop_guest",
    "kept_places", "keep_place", "has_kept_place", "rest", "resting", "last_number", "put_number", "drop_numbers",
    "add_group", "line_up", "open_lanes", "open_at_rank", "open_rank", "parked_above", "set_lane", "drop_lane",
    "open_lane", "parked",
    "parked_group", "parked_rank", "parked_at_rank", "due_lanes", "first_until", "parked_on_limit", "forget_starts",
    "line_up_fair", "fair_lanes", "set_fair_lane", "clock", "set_clock", "next_heads", "next_heads_costs",
    "head_buckets", "probes_used", "waited_for", "schedule", "due_schedules", "next_look", "one_schedule",
    "put_schedule", "runs", "job_of_run", "put_run", "trim_runs", "drop_runs", "is_part", "is_of_part", "heard_by",
    "note", "enter_line", "first_in_line", "in_line", "leave_line", "take_notes", "set_released", "links_of",
    "line_of", "drop_link",
)  # fmt: skip


@pytest.fixture
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    store = SqliteStore(str(path))
    enqueue(store, *jobs(50), *jobs(50, delay=10**9), *jobs(50, expires_in=10**9))
    enqueue(store, job(buckets=()))
    opened = sqlite3.connect(path)
    yield opened
    opened.close()
    run(close(store))


@pytest.mark.parametrize("analysed", [False, True])
@pytest.mark.parametrize("name", HOT)
def test_no_statement_walks_a_table_or_sorts_a_backlog(
    connection: sqlite3.Connection, name: str, analysed: bool
) -> None:
    if analysed:
        connection.execute("analyze")  # the user's own database may have been
    text = fill(SQL[name], 4)
    values = dict.fromkeys(re.findall(r":(\w+)", text)) or [None] * _parameters(text)
    plan = [row[3] for row in connection.execute("explain query plan " + text, values)]
    for step in plan:
        assert not SCAN.match(step) or _by_partial(step), plan
        assert "USE TEMP B-TREE" not in step or name == "held", plan


def _parameters(text: str) -> int:
    numbers = [int(n) for n in re.findall(r"\?(\d+)", text)]
    return max(numbers, default=0) + len(re.findall(r"\?(?!\d)", text))


def _by_partial(step: str) -> bool:
    """The later, expiring and gated indexes hold only what the statement asks for."""
    names = ("jobs_later", "jobs_expiring", "COVERING INDEX mainspring_jobs_gated")
    return "USING" in step and any(name in step for name in names)


def test_each_statement_has_a_name_of_its_own() -> None:
    """Of two with one name the second would be run in place of the first."""
    folder = Path(statements.__file__).parent / "sql"
    names = [name for file in folder.glob("*.sql") for name in re.findall(r"(?m)^-- name: (\w+)", file.read_text())]
    assert sorted(names) == sorted(SQL)


def test_the_claim_uses_the_ready_index(connection: sqlite3.Connection) -> None:
    plan = " ".join(str(row[3]) for row in connection.execute("explain query plan " + SQL["claim"], [None] * 5))
    assert "COVERING INDEX mainspring_jobs_ready (lane=?)" in plan


@pytest.mark.parametrize("n", [0, 1, 2, 3, 64, 100, 128, 129, 1000])
def test_any_number_of_rows_is_cut_into_few_sizes(n: int) -> None:
    cut = list(sizes(n))
    assert [start for start, _ in cut] == [0, *(end for _, end in cut)][: len(cut)]
    assert sum(end - start for start, end in cut) == n
    assert {end - start for start, end in cut} <= {1, 2, 4, 8, 16, 32, 64, 128}
