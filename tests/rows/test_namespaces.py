"""E4: two projects on one server, with the same names for everything, never see each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from mainspring import Key, Mainspring, Query
from mainspring.tasks.task import Task
from tests.timing import short_settings

LIMIT = 60

pytestmark = pytest.mark.row("E4")


class Project(NamedTuple):
    app: Mainspring
    add: Task[[int], str]


@pytest.fixture
def shop(store_url: str, make_namespace: Callable[[str], str]) -> Iterator[Project]:
    yield from project(store_url, make_namespace("shop"))


@pytest.fixture
def lab(store_url: str, make_namespace: Callable[[str], str]) -> Iterator[Project]:
    yield from project(store_url, make_namespace("lab"))


def project(url: str, namespace: str) -> Iterator[Project]:
    app = Mainspring(url, namespace=namespace, **short_settings())

    @app.task(name="add", queue="work", retries=0)
    def add(n: int) -> str:
        if n < 0:
            raise ValueError(n)
        return f"{namespace} {n}"

    yield Project(app, add)
    app.close()


def test_each_worker_runs_the_jobs_of_its_own_namespace(shop: Project, lab: Project) -> None:
    theirs = [lab.add.enqueue(n) for n in range(3)]
    with shop.app.worker():
        ours = [shop.add.enqueue(n) for n in range(3)]
        assert [job.result(timeout=LIMIT) for job in ours] == ["shop 0", "shop 1", "shop 2"]
        assert {job.info().state for job in theirs} == {"ready"}
        with lab.app.worker():
            assert [job.result(timeout=LIMIT) for job in theirs] == ["lab 0", "lab 1", "lab 2"]


def test_jobs_counts_and_keys_of_two_namespaces_are_separate(shop: Project, lab: Project) -> None:
    ours = shop.add.options(key=Key("one")).enqueue(1)
    theirs = lab.add.options(key=Key("one")).enqueue(2)
    assert (ours.created, theirs.created) == (True, True)
    assert shop.add.options(key=Key("one")).enqueue(3).id == ours.id
    assert [info.id for info in shop.app.jobs.list().jobs] == [ours.id]
    assert (shop.app.jobs.count().total, lab.app.jobs.count().total) == (1, 1)


def test_bulk_changes_stay_inside_the_namespace(shop: Project, lab: Project) -> None:
    ours, theirs = shop.add.enqueue(1), lab.add.enqueue(1)
    shop.app.jobs.cancel(Query.everything())
    assert (ours.info().state, theirs.info().state) == ("cancelled", "ready")
    shop.app.jobs.delete(Query.everything())
    shop.app.queues.purge("work")
    assert theirs.info().state == "ready"


def test_queues_are_paused_in_one_namespace_only(shop: Project, lab: Project) -> None:
    shop.app.queues.pause("work")
    ours, theirs = shop.add.enqueue(1), lab.add.enqueue(1)
    with shop.app.worker(), lab.app.worker():
        assert theirs.result(timeout=LIMIT) == "lab 1"
        assert ours.info().state == "ready"
        shop.app.queues.resume("work")
        assert ours.result(timeout=LIMIT) == "shop 1"


def test_workers_and_dead_jobs_are_listed_per_namespace(shop: Project, lab: Project) -> None:
    with shop.app.worker():
        ours = shop.add.enqueue(-1).join(timeout=LIMIT)
        assert len(shop.app.workers.list()) == 1
        assert lab.app.workers.list() == []
    assert [info.id for info in shop.app.dead.list().jobs] == [ours.id]
    assert lab.app.dead.list().jobs == ()
