"""Notebooks and prompts: a loop that runs in every cell, cells that are run again, no file to import."""

from __future__ import annotations

import pytest

from tests.traps.conftest import Programs

pytestmark = pytest.mark.stores("sqlite")

# What a notebook's kernel does: every cell runs inside a loop that is already running.
KERNEL = """
    import asyncio, sys, warnings
    from IPython.core.interactiveshell import InteractiveShell

    warnings.simplefilter("ignore", DeprecationWarning)  # of IPython itself
    shell = InteractiveShell.instance()

    async def kernel(cells):
        for cell in cells:
            ran = await shell.run_cell_async(cell, store_history=True, transformed_cell=shell.transform_cell(cell))
            ran.raise_error()

    asyncio.run(kernel(open("cells.txt").read().split("# ---\\n")))
"""

FIRST = """
from mainspring import Mainspring
app = Mainspring("sqlite:///jobs.db", poll="50ms")
# ---
@app.task
def add(a: int, b: int) -> int:
    return a + b
"""


def run_cells(programs: Programs, cells: str) -> str:
    programs.write(kernel=KERNEL)
    (programs.folder / "cells.txt").write_text(FIRST + "# ---\n" + cells)
    return programs.run("-W", "default", "kernel.py", quiet=False)


def test_blocking_methods_work_in_a_cell(programs: Programs) -> None:
    """Although a loop is running. Awaiting works too."""
    cells = """
with app.worker():
    job = add.enqueue(1, 2)
    print("result", job.result(timeout=60), job.info().state)
# ---
worker = app.worker()
worker.start()
# ---
print("awaited", await (await add.aenqueue(2, 3)).aresult(timeout=60), app.jobs.count().total)
# ---
worker.stop()
print("stopped", worker.exit_code)
"""
    said = run_cells(programs, cells)
    assert "result 3 succeeded" in said
    assert "awaited 5 2" in said
    assert "stopped 0" in said
    assert said.count("runs only in a worker embedded in this process: it was defined in an interactive session") == 1


def test_a_cell_that_runs_again_replaces_its_task(programs: Programs) -> None:
    cells = """
job = add.enqueue(2, 3)
# ---
@app.task
def add(a: int, b: int) -> int:
    return a * b
# ---
with app.worker():
    print("results", job.result(timeout=60), add.enqueue(4, 5).result(timeout=60), len(app.tasks))
"""
    assert "results 6 20 1" in run_cells(programs, cells)


def test_test_mode_in_a_cell(programs: Programs) -> None:
    cells = """
with app.test() as t:
    job = add.options(delay="3d").enqueue(1, 2)
    t.assert_enqueued(add, 1, 2)
    print("drained", t.drain(future=True).succeeded, job.result())
# ---
async with app.test() as t:
    job = await add.aenqueue(3, 4)
    print("adrained", (await t.adrain()).succeeded, await job.aresult())
# ---
with app.test(inline=True) as t:
    print("inline", add.enqueue(5, 6).result())
"""
    said = run_cells(programs, cells)
    assert "drained 1 3" in said
    assert "adrained 1 7" in said
    assert "inline 11" in said


def test_an_app_in_ipython_itself(programs: Programs) -> None:
    cells = """
        from mainspring import Mainspring
        app = Mainspring("sqlite:///jobs.db", poll="50ms")
        add = app.task(name="add")(lambda a, b: a + b)
        worker = app.worker(); worker.start()
        print("result", add.enqueue(1, 2).result(timeout=60))
        job = await add.aenqueue(2, 3)
        print("awaited", await job.aresult(timeout=60), job.result(timeout=60))
        worker.stop()
        exit
    """
    command = ("-W", "default", "-m", "IPython", "--simple-prompt", "--no-banner", "--colors=nocolor", "--quick")
    said = programs.run(*command, stdin=cells, quiet=False)
    assert "result 3" in said
    assert "awaited 5 5" in said
    assert "Traceback" not in said


def test_a_plain_prompt_needs_a_url(programs: Programs) -> None:
    """There is no project and so no file for the jobs. With a URL, an embedded worker runs the tasks that were
    typed.
    """
    said = programs.run("-", stdin="from mainspring import Mainspring\nMainspring().open()\n", code=1, quiet=False)
    assert "has no project directory for a SQLite file" in said
    code = """
        import warnings
        from mainspring import Mainspring
        app = Mainspring("sqlite:///jobs.db", poll="50ms")
        @app.task
        def add(a: int, b: int) -> int:
            return a + b
        with warnings.catch_warnings(record=True) as warned, app.worker():
            warnings.simplefilter("always")
            print(add.enqueue(1, 2).result(timeout=60), len(warned))
    """
    assert programs.run("-", stdin=code) == "3 1\n"


def test_workers_of_other_processes_cannot_run_tasks_typed_at_a_prompt(programs: Programs) -> None:
    code = """
        from mainspring import Mainspring
        app = Mainspring("sqlite:///jobs.db")
        app.run(until_empty=True)
    """
    said = programs.run("-", stdin=code, code=1, quiet=False)
    assert "no module contains this app, so a worker process cannot import it" in said
    assert "use app.worker() in this process" in said
