"""The id of a job has one spelling everywhere: hex digits with dashes. Commands read both spellings."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

import mainspring
from mainspring import Mainspring
from tests.cli.conftest import Shop
from tests.rows.crew import until

WITHOUT_DASHES = re.compile(r"\.id\.hex\b|\bid\.hex\b")
STORED = {
    "jobs/info.py": "a trace id has 32 hex digits by its standard",
    "jobs/new_job.py": "a trace id",
    "worker/run/attempt.py": "a trace id",
    "stores/postgres/jobs/query.py": "a cursor",
    "stores/sqlite/jobs/query.py": "a cursor",
    "stores/postgres/jobs/follow_ups.py": "a parameter of a statement",
    "flows/plan.py": "the record of a job of a flow",
    "flows/batch.py": "the shape of a batch",
    "flows/retry.py": "the nodes of the shape of a flow",
    "testing/app/flows.py": "the shape of a flow",
}


def test_commands_read_both_spellings_and_print_one(shop: Shop) -> None:
    job = shop.task("add").enqueue(1)
    for spelling in (str(job.id), job.id.hex, str(job.id).upper()):
        shown = shop.run("jobs", "show", spelling)
        assert shown.code == 0, shown.err
        assert str(job.id) in shown.out
        assert all("trace" in line for line in shown.out.splitlines() if job.id.hex in line)
    document = shop.run("jobs", "show", job.id.hex, "--json").out
    assert str(job.id) in document


def test_the_log_of_a_worker_spells_an_id_with_dashes(store_url: str, caplog: pytest.LogCaptureFixture) -> None:
    with Mainspring(store_url) as app:
        job = app.call("nobody.knows.it").enqueue()
        with caplog.at_level(logging.WARNING, logger="mainspring"), app.worker():
            until(lambda: "does not know task" in caplog.text, "the worker found the job")
    assert f"job {job.id}" in caplog.text
    assert job.id.hex not in caplog.text


def test_only_stored_forms_of_an_id_have_no_dashes() -> None:
    package = Path(mainspring.__file__).parent
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if "contract" not in path.parts and WITHOUT_DASHES.search(path.read_text())
    }
    assert found == STORED.keys()
