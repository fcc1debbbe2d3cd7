"""The statements of the hot path read by indexes and never walk a backlog."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainspring.stores.sqlite import SqliteStore
from mainspring.stores.sqlite.driver.statements import FOLDER, SqliteStatements, fill_rows, sizes

from .helpers import close, enqueue, job, jobs, run

SQL = SqliteStatements("mainspring_")
SCAN = re.compile(
    r"SCAN (?!a$|\d+ CONSTANT|\d-ROW|CONSTANT|\(subquery|e$|h$|w$|mainspring_(?:breakers|releasing)$|json_each )"
)
HOT = (
    "enqueue", "job_is_known", "parent_state", "next_seq", "ack_succeeded", "delete_job", "owned_job", "ended_by",
    "add_attempt", "set_due", "hand_back", "drop_job_hold", "worker_of_turn", "set_worker_turn", "lane_sets_beside",
    "heads", "next_priority", "priorities", "claim", "claim_ids", "add_job_hold", "claims_since", "leases",
    "cancel_orders", "to_finished", "to_dead", "children", "due_jobs", "promote", "expired_jobs", "next_due",
    "beat", "jobs_of_worker", "lease_is_good", "prunable_by_keep", "prunable_finished", "prunable_dead",
    "ended_then_finished", "ended_then_dead", "jobs_with_mark", "last_line", "add_line", "add_item", "logs",
    "items", "attempts", "job_is_live", "key_holder", "release_key", "take_key", "key_of_job", "follow_ups_of",
    "followed_states", "add_mark", "add_follow_up", "drop_marks", "drop_follow_ups", "drop_key", "heads_with_costs",
    "delete_plain", "delete_others", "limit", "add_limit", "set_limit",
    "override_limit", "drop_limit", "concurrency_used", "running_by_lane", "window_used", "starts", "newest_start",
    "newest_starts", "put_start", "reduce_start", "drop_starts", "smooth_rate", "set_tat", "block_bucket",
    "add_waiting_queue", "take_waiting_queues", "renew_holder", "buckets_of_holder", "add_holder", "drop_holder",
    "drop_reservations", "add_reservation", "has_reservation", "pause_reservations", "reservations_are_paused",
    "last_fencing_token", "put_fencing_token", "drop_fencing_tokens", "add_lane_set", "add_keyed_lane",
    "open_lanes", "next_open_rank", "parked_before", "set_lane", "drop_empty_lane",
    "open_lane", "parked_lanes", "next_parked_set", "next_parked_rank", "parked_lanes_at_rank", "lanes_to_recheck",
    "next_recheck", "parked_lanes_of_limit", "drop_idle_starts", "add_fair_lane", "open_fair_lanes",
    "set_fair_lane", "virtual_time", "set_virtual_time", "head_buckets",
    "probes_used", "buckets_with_parked_lanes", "schedule_rev", "due_schedules", "next_look", "schedule",
    "put_schedule", "runs", "job_of_run", "put_run", "trim_runs", "drop_runs",
    "add_edge", "flag_parent", "block_job", "waiting_child", "wait_for_more", "wait_for_fewer", "first_children",
    "children_of_death", "drop_edges_of_parents", "drop_edges_of_dead_parent", "drop_first_edges",
    "drop_edges_of_death", "drop_edges_of_child", "has_children", "waits_for", "add_join", "add_members",
    "count_members", "join_to_end", "join_died", "close_join", "reopen_join", "drop_join", "joins",
    "release_children", "all_released", "releasing", "sweep_flow", "next_flow_work", "due_sweep", "jobs_of_flow",
    "go_on_sweeping", "end_sweep", "flow_has_jobs", "prunable_of_flow", "set_pruning",
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
    text = fill_rows(SQL[name], 4)
    values = dict.fromkeys(re.findall(r":(\w+)", text)) or [None] * _parameters(text)
    plan = [row[3] for row in connection.execute("explain query plan " + text, values)]
    for step in plan:
        assert not SCAN.match(step) or _by_partial(step), plan
        assert "USE TEMP B-TREE" not in step or name == "jobs_of_worker", plan


def _parameters(text: str) -> int:
    numbers = [int(n) for n in re.findall(r"\?(\d+)", text)]
    return max(numbers, default=0) + len(re.findall(r"\?(?!\d)", text))


def _by_partial(step: str) -> bool:
    """These partial indexes hold only the jobs that the statement asks for."""
    names = ("jobs_later", "jobs_expiring", "COVERING INDEX mainspring_jobs_unkeyed")
    return "USING" in step and any(name in step for name in names)


def test_names_of_statements_are_unique() -> None:
    """Of two statements with one name, the second would replace the first."""
    names = [
        name for file in Path(FOLDER).glob("*.sql") for name in re.findall(r"(?m)^-- name: (\w+)", file.read_text())
    ]
    assert sorted(names) == sorted(SQL)


def test_the_claim_uses_the_ready_index(connection: sqlite3.Connection) -> None:
    plan = " ".join(str(row[3]) for row in connection.execute("explain query plan " + SQL["claim"], [None] * 6))
    assert "COVERING INDEX mainspring_jobs_ready (lane=? AND priority=?)" in plan


@pytest.mark.parametrize("n", [0, 1, 2, 3, 64, 100, 128, 129, 1000])
def test_any_number_of_rows_is_cut_into_few_sizes(n: int) -> None:
    cut = list(sizes(n))
    assert [start for start, _ in cut] == [0, *(end for _, end in cut)][: len(cut)]
    assert sum(end - start for start, end in cut) == n
    assert {end - start for start, end in cut} <= {1, 2, 4, 8, 16, 32, 64, 128}
