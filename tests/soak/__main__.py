"""``./dev soak [--minutes N] [--store S] [--seed N] [--only CAMPAIGN] [--short]``: long campaigns, one JSON verdict.

chaos       random faults of processes, wires and servers under load, for N minutes in runs of five at most, and after
            each the check of its history; with ``--short`` leases of three seconds instead of fifteen
machine     the hypothesis state machine of the contract suite, with its long profile
stream      a batch of 1,000,000 members, whose producer is killed twice
schedules   250,000 simulated hours of schedules, and 1,000 occurrences in five processes that are killed
slow        the process tests that take minutes
rules       cron against a walk over every minute: ten years, every time zone, every change of clocks since 1972
mutations   every planted fault must be caught by the suite
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from tests.processes.fleet import ROOT
from tests.soak.arena import arena
from tests.soak.campaign import SHORT, Campaign, Pace, Verdict

LONGEST_RUN = 300.0
RULES = "tests/unit/test_rules_reference.py"
STREAM = "tests/processes/test_flow_stream.py"
SCHEDULES = (
    "tests/schedules/test_simulation.py",
    "tests/processes/test_schedulers.py::test_each_occurrence_runs_once_although_schedulers_are_killed",
)


def chaos(minutes: float, store: str, seed: int, pace: Pace) -> dict[str, Any]:
    """Runs with one seed after the other until the time is over; ends at the first problem."""
    end, runs = time.monotonic() + 60 * minutes, list[Verdict]()
    while (left := end - time.monotonic()) > 0 and not (runs and runs[-1].problems):
        runs.append(one_run(store, seed + len(runs), min(left, LONGEST_RUN), pace))
        print(f"soak: {msgspec.json.encode(runs[-1]).decode()}", file=sys.stderr, flush=True)
    return {
        "ok": not any(run.problems for run in runs),
        "jobs": sum(run.jobs for run in runs),
        "faults": sum(sum(run.faults.values()) for run in runs),
        **{name: sum(getattr(run, name) for run in runs) for name in SUMS},
        "recovery": max((run.recovery for run in runs), default=0.0),
        "runs": [msgspec.to_builtins(run) for run in runs],
    }


SUMS = ("lost", "stale_writes", "live_rescued", "duplicates", "overlaps")


def one_run(store: str, seed: int, seconds: float, pace: Pace) -> Verdict:
    """A fresh store and fleet; their folder stays behind if something is wrong."""
    folder = Path(tempfile.mkdtemp(prefix="mainspring-soak-"))
    with arena(store, folder) as ground:
        verdict = Campaign(ground, folder, seed, pace).run(seconds)
    if verdict.problems:
        print(f"soak: seed {seed}: what is left of it is kept in {folder}", file=sys.stderr)
    else:
        shutil.rmtree(folder)
    return verdict


def command(*arguments: str, **env: str) -> dict[str, Any]:
    """A program of the tests, its output on standard error."""
    ran = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, env={**os.environ, **env}, stdout=sys.stderr, check=False
    )
    return {"ok": ran.returncode == 0, "exit_code": ran.returncode}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="./dev soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60, help="how long the chaos lasts (60)")
    parser.add_argument("--store", default="sqlite", choices=("sqlite", "postgres", "redis"))
    parser.add_argument("--seed", type=int, default=None, help="of the chaos; drawn and told if not given")
    parser.add_argument(
        "--only", action="append", choices=("chaos", "machine", "stream", "schedules", "slow", "rules", "mutations")
    )
    parser.add_argument("--short", action="store_true", help="short leases in the chaos, and a fault every second")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no worker is left behind
    seed = given.seed if given.seed is not None else int.from_bytes(os.urandom(3))
    pytest = ("pytest", "-q", "-n0", "--store", given.store, "-o", "timeout=0")
    campaigns: dict[str, Callable[[], dict[str, Any]]] = {
        "chaos": lambda: chaos(given.minutes, given.store, seed, SHORT if given.short else Pace()),
        "slow": lambda: command(*pytest, "-m", "slow", "tests/processes"),
        "machine": lambda: command(*pytest, "tests/contract/test_model.py", MAINSPRING_SOAK="1"),
        "stream": lambda: command(*pytest, STREAM, MAINSPRING_SOAK="1"),
        "rules": lambda: command("pytest", "-q", "-n0", "-o", "timeout=0", RULES, MAINSPRING_SOAK="1"),
        "schedules": lambda: command(*pytest, "-s", *SCHEDULES, MAINSPRING_SOAK="1"),
        "mutations": lambda: command("tests.mutations"),
    }
    chosen = given.only or list(campaigns)
    results = {name: run() for name, run in campaigns.items() if name in chosen}
    ok = all(result["ok"] for result in results.values())
    print(json.dumps({"ok": ok, "store": given.store, "seed": seed, **results}))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
