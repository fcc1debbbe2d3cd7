"""Import: seconds until the name is there, in a fresh interpreter with bytecode on disk; the least of many tries."""

from __future__ import annotations

import sys

from benchmarks import goals, peers
from benchmarks.frame import Config, Failed, Row, Samples, of_tree
from benchmarks.processes import run_json

TRIES = 15
STATEMENTS = {
    "asyncio": "import asyncio",
    "huey": "import huey",
    "mainspring": "import mainspring",
    "mainspring.Mainspring": "from mainspring import Mainspring",
    "mainspring in use": "from mainspring import Mainspring\ndef job(): pass\nMainspring('sqlite://').task(job)",
    "huey in use": "from huey import SqliteHuey, MemoryHuey; MemoryHuey().task()(lambda: None)",
    "taskito": "import taskito",
    "dramatiq": "import dramatiq",
}
PROGRAM = "import time; b = time.perf_counter()\n{}\nprint(time.perf_counter() - b)"


def run(config: Config) -> list[Row]:
    samples, programs = Samples(), _programs(config)
    for number in range(config.rounds):
        config.say(f"import, {TRIES} tries of each, round {number + 1}")
        least: dict[str, float] = {}
        for _ in range(TRIES):
            for name, (statement, env) in programs.items():
                try:
                    took = float(run_json([_interpreter(name), "-c", PROGRAM.format(statement)], env)) * 1000
                except Failed as error:
                    samples.fail(name, str(error))
                    continue
                least[name] = min(took, least.get(name, took))
        for name, value in least.items():
            samples.add(name, number, value)
    return [
        *samples.rows("import", "ms"),
        samples.ratio("import", "mainspring.Mainspring", "asyncio", at_most=goals.IMPORT_OF_ASYNCIO),
        samples.ratio("import", "mainspring in use", "asyncio"),
        samples.ratio("import", "mainspring", "huey", at_most=1.3),
        samples.ratio("import", "mainspring.Mainspring", "huey", at_most=1.3),
        samples.ratio("import", "mainspring in use", "huey in use"),
    ]


def _programs(config: Config) -> dict[str, tuple[str, dict[str, str]]]:
    """Statement and environment by name; ours with the code of each tree."""
    found: dict[str, tuple[str, dict[str, str]]] = {}
    for name, statement in STATEMENTS.items():
        found[name] = statement, {}
        for tree, folder in config.trees.items():
            if name.startswith("mainspring"):
                found[of_tree(name, tree)] = statement, {"BENCH_TREE": folder}
    return found


def _interpreter(name: str) -> str:
    return sys.executable if name.startswith(("mainspring", "asyncio")) else peers.python()
