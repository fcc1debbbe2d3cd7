"""Plant a fault into a copy of the package and let the contract suite find it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from .claims import CLAIMS
from .flows import FLOWS
from .jobs import JOBS
from .limits import LIMITS
from .mutation import Mutation, Patch
from .query import QUERY
from .queues import QUEUES
from .schedules import SCHEDULES
from .unique_keys import UNIQUE_KEYS
from .workers import WORKERS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "mainspring"
ENGINE = Path("stores", "sqlite")
TABLE = ROOT / "tests" / "mutations.md"
ALL: tuple[Mutation, ...] = CLAIMS + WORKERS + JOBS + LIMITS + UNIQUE_KEYS + QUEUES + QUERY + SCHEDULES + FLOWS


def fits(patch: Patch) -> bool:
    """Whether the engine still has the text that the patch replaces."""
    return (PACKAGE / ENGINE / patch.file).read_text().count(patch.old) == patch.times


def plant(mutation: Mutation, copy: Path) -> None:
    """Apply the patches to a copy of the package."""
    for patch in mutation.patches:
        file = copy / ENGINE / patch.file
        text = file.read_text()
        if text.count(patch.old) != patch.times:
            raise SystemExit(f"{mutation.name}: {patch.file} has changed: write the patch again\n{patch.old}")
        file.write_text(text.replace(patch.old, patch.new))


WITHOUT_FAULT = Mutation("without-fault", "The suite passes without a fault", " ".join(sorted(
    {module for mutation in ALL for module in mutation.tests.split()}
)), ())  # fmt: skip


def caught(mutation: Mutation) -> str | None:
    """The first test that fails with the fault; None when it survives."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "mainspring")
        shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        plant(mutation, copy)
        return _failing_test(mutation, Path(folder))


def _failing_test(mutation: Mutation, folder: Path) -> str | None:
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    where = [sys.executable, "-c", "import mainspring; print(mainspring.__file__)"]
    loaded = subprocess.run(where, env=environment, cwd=folder, capture_output=True, text=True, check=True).stdout
    assert loaded.startswith(str(folder)), f"another package than the copy was imported: {loaded}"
    tests = [f"tests/contract/test_{module.replace('.', '_')}.py" for module in mutation.tests.split()]
    command = [sys.executable, "-m", "pytest", *tests, "--store", "sqlite", "-x", "-q", "-n0", "-p", "no:cacheprovider"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    failed = re.search(r"^FAILED \S*::(\S+)", done.stdout, re.MULTILINE)
    if done.returncode not in (0, 1) or bool(failed) != bool(done.returncode):
        raise SystemExit(f"{mutation.name}: the tests did not run\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return failed[1] if failed else None


def table(mutations: Iterable[Mutation] = ALL) -> str:
    """The page with the promise that each fault breaks."""
    lines = [
        "# Planted faults that the contract suite finds",
        "",
        "`python -m tests.mutations` plants each fault into a copy of the SQLite engine. Then a test of the named",
        "modules of `mainspring.testing.contract` must fail. `python -m tests.mutations --table` writes this page.",
        "",
        "| fault | promise | found by |",
        "|---|---|---|",
        *(f"| {each.name} | {each.promise} | {each.tests} |" for each in mutations),
    ]
    return "\n".join(lines) + "\n"
