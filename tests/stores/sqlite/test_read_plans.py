"""Queries with an index use it, whatever else the store holds."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mainspring.jobs.outcomes import Ack, Lease
from mainspring.jobs.query import Query
from mainspring.jobs.records import Retention
from mainspring.states import Action, Reason, State
from mainspring.stores.sqlite import SqliteStore
from mainspring.stores.sqlite.driver.statements import SqliteStatements
from mainspring.stores.sqlite.driver.transaction import Tx
from mainspring.stores.sqlite.jobs.actions import find_candidates
from mainspring.stores.sqlite.jobs.prune import find_prunable
from mainspring.stores.sqlite.jobs.query import count, find, tally

from .helpers import Worker, batch, jobs, run, succeeded

SQL = SqliteStatements("mainspring_")
NOW = 2 * 10**15
WHOLE = re.compile(r"SCAN mainspring_\w+\b(?! USING (COVERING )?INDEX mainspring_jobs_running)")
SORT = "USE TEMP B-TREE FOR ORDER BY"

NARROW = {
    "mark": Query(marks=("a",)),
    "marks": Query(marks=("a", "^b")),
    "mark and state": Query(marks=("a",), states=(State.DEAD,)),
    "mark and queue": Query(marks=("a",), queues=("q",)),
    "running": Query(states=(State.RUNNING,)),
    "running with a mark": Query(states=(State.RUNNING,), marks=("a",)),
    "error": Query(errors=("Error7",)),
    "errors": Query(errors=("Error7", "crashed")),
    "error and mark": Query(errors=("Error7",), marks=("a",)),
    "ids": Query(ids=(b"x" * 16, b"y" * 16)),
    "ids and mark": Query(ids=(b"x" * 16, b"y" * 16), marks=("a",)),
}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some jobs in each table, most of them with the same mark."""
    path = tmp_path_factory.mktemp("plans") / "jobs.db"
    run(_fill(path))
    return path


async def _fill(path: Path) -> None:
    store = SqliteStore(str(path), durability="normal")
    await store.enqueue(batch(*jobs(200, marks=("a",)), *jobs(20), *jobs(100, marks=("a", "^b"))))
    worker = await Worker(store).join()
    claims = await worker.take(150)
    dead = [
        Ack.dead(Lease(each.id, each.token), b"{}", Reason.CRASHED, label=f"Error{n % 20}")
        for n, each in enumerate(claims[:60])
    ]
    await worker.turn(*dead, *map(succeeded, claims[60:140]))
    await store.close()


@pytest.fixture(params=["plain", "analysed"])
def tx(filled: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Tx]:
    """The database may have been analysed, when it was small."""
    path = tmp_path / "copy.db"
    path.write_bytes(filled.read_bytes())
    connection = sqlite3.connect(path)
    if request.param == "analysed":
        connection.execute("analyze")
    yield Tx(connection.cursor(), SQL, NOW)
    connection.close()


def plan(tx: Tx, work: Callable[[], object]) -> list[str]:
    """The plans of all statements that ``work`` runs."""
    texts: list[str] = []
    connection = tx.cursor.connection
    connection.set_trace_callback(texts.append)
    work()
    connection.set_trace_callback(None)
    assert texts
    return [row[3] for text in texts for row in connection.execute("explain query plan " + text)]


@pytest.mark.parametrize("name", NARROW)
def test_a_page_reads_only_the_jobs_of_its_query(tx: Tx, name: str) -> None:
    steps = plan(tx, lambda: find(tx, NARROW[name], 10, None)) + plan(tx, lambda: find(tx, NARROW[name], 10, "7f"))
    assert not [step for step in steps if WHOLE.match(step)], steps


def test_a_page_by_one_error_needs_no_sorting(tx: Tx) -> None:
    steps = plan(tx, lambda: find(tx, NARROW["error"], 10, None))
    assert any("mainspring_dead_label" in step for step in steps), steps
    assert SORT not in steps


@pytest.mark.parametrize("query", [Query.everything(), Query(queues=("q",)), Query(tasks=("t",)), Query(since=5)])
def test_a_page_of_any_other_query_walks_by_id(tx: Tx, query: Query) -> None:
    """It may read many jobs, but sorts none and stops when the page is full."""
    assert SORT not in plan(tx, lambda: find(tx, query, 10, None))


@pytest.mark.parametrize("name", NARROW)
def test_counts_and_actions_read_only_the_jobs_of_their_query(tx: Tx, name: str) -> None:
    query = NARROW[name]
    action = Action.CANCEL if name.startswith("running") else Action.DELETE
    for work in (
        lambda: count(tx, query),
        lambda: tally(tx, query, "queue"),
        lambda: find_candidates(tx, action, query, 100, 0),
    ):
        steps = plan(tx, work)
        assert not [step for step in steps if WHOLE.match(step)], steps


def test_a_page_by_mark_reads_one_page(tx: Tx) -> None:
    """Not every job with the mark, whatever their state."""
    seen: list[str] = []
    tx.cursor.connection.set_trace_callback(seen.append)
    assert len(find(tx, NARROW["mark"], 10, None).jobs) == 10
    walks = [text for text in seen if "mainspring_marks" in text and "order by" in text]
    assert len(walks) == 1
    assert walks[0].rstrip().endswith("limit 11")


def test_counting_everything_reads_indexes_only(tx: Tx) -> None:
    steps = plan(tx, lambda: count(tx, Query.everything()))
    assert all("INDEX" in step for step in steps if WHOLE.match(step)), steps


def test_prune_reads_by_age(tx: Tx) -> None:
    """It counts young jobs in an index, and reads no more old jobs than it deletes."""
    steps = plan(tx, lambda: find_prunable(tx, Retention(), 100))
    assert not [step for step in steps if SORT in step], steps
    tables = [step for step in steps if re.search(r"mainspring_(finished|dead)\b(?!_)", step)]
    assert all("INDEX mainspring_finished_" in step or "INDEX mainspring_dead_age" in step for step in tables), steps
    assert any("INDEX mainspring_finished_drop (drop_at<?)" in step for step in tables), steps
    uniq = [step for step in steps if "SEARCH u " in step]
    assert len(uniq) == 3
    assert all("PRIMARY KEY (job=?)" in step for step in uniq), steps
