"""mainspring jobs run --local: the code of a stored job, here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mainspring import Mainspring
from tests.cli.conftest import Shop

pytestmark = pytest.mark.stores("sqlite")

Golden = Callable[[str, str], None]


@pytest.mark.row("U2")
@pytest.mark.option("cli.jobs.run.id", "cli.jobs.run.local", "cli.jobs.run.as_json")
def test_run_local_runs_the_code_here_and_does_not_change_the_job(shop: Shop, golden: Golden) -> None:
    job = shop.task("add").enqueue(1, 2)
    before = job.info()
    ran = shop.call("jobs", "run", str(job.id), "--local")
    assert (ran.code, ran.out) == (0, "3\n")
    golden("jobs-run.txt", ran.err)
    golden("jobs-run.json", shop.run("jobs", "run", str(job.id), "--local", "--json").out)
    assert job.info() == before
    refused = shop.run("jobs", "run", str(job.id))
    assert (refused.code, "--local" in refused.err, refused.out) == (2, True, "")


def test_run_local_supports_contexts_and_coroutines(shop: Shop) -> None:
    talk, greet = shop.task("talk").enqueue(2), shop.task("greet").enqueue("you")
    assert shop.run("jobs", "run", str(talk.id), "--local").out == '"said"\n'
    assert shop.run("jobs", "run", str(greet.id), "--local").out == '"hello you"\n'


def test_an_exception_is_printed_and_the_exit_code_is_1(shop: Shop, golden: Golden) -> None:
    job = shop.task("fail").enqueue("no")
    ran = shop.call("jobs", "run", str(job.id), "--local", "--json")
    assert ran.code == 1
    assert "ValueError: no" in ran.err
    assert "mainspring/" not in ran.err, "only the frames of the task are shown"
    golden("jobs-run-failed.json", ran.out)
    assert job.info().state == "ready"


@pytest.mark.option("cli.jobs.run.pdb")
def test_the_debugger_opens_where_the_code_raises(shop: Shop) -> None:
    job = shop.task("fail").enqueue("secret sauce")
    ran = shop.call("jobs", "run", str(job.id), "--local", "--pdb", typed="p why\nq\n")
    assert ran.code == 1
    assert "(Pdb) 'secret sauce'" in ran.out


def test_a_job_that_this_code_cannot_decode_is_refused(shop: Shop) -> None:
    other = Mainspring(shop.url)
    unknown, unfit = other.call("shop.removed").enqueue(), other.call("shop.add", a="x").enqueue()
    other.close()
    assert "task 'shop.removed' is not known" in shop.run("jobs", "run", str(unknown.id), "--local").err
    ran = shop.run("jobs", "run", str(unfit.id), "--local")
    assert (ran.code, "cannot be decoded" in ran.err) == (2, True)
