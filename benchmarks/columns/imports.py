"""Import: seconds until the name is there, in a fresh interpreter with bytecode on disk; the least of many tries."""

from __future__ import annotations

import sys

from benchmarks import peers
from benchmarks.frame import Config, Failed, Row, Samples
from benchmarks.processes import run_json

TRIES = 15
STATEMENTS = {
    "huey": "import huey",
    "mainspring": "import mainspring",
    "mainspring.Mainspring": "from mainspring import Mainspring",
    "mainspring in use": "from mainspring import Mainspring; Mainspring('sqlite://').task(lambda: None)",
    "huey in use": "from huey import SqliteHuey, MemoryHuey; MemoryHuey().task()(lambda: None)",
    "taskito": "import taskito",
}
PROGRAM = "import time; b = time.perf_counter()\n{}\nprint(time.perf_counter() - b)"


def run(config: Config) -> list[Row]:
    samples = Samples()
    for number in range(config.rounds):
        config.say(f"import, {TRIES} tries of each, round {number + 1}")
        least: dict[str, float] = {}
        for _ in range(TRIES):
            for name, statement in STATEMENTS.items():
                try:
                    took = float(run_json([_interpreter(name), "-c", PROGRAM.format(statement)], {})) * 1000
                except Failed as error:
                    samples.fail(name, str(error))
                    continue
                least[name] = min(took, least.get(name, took))
        for name, value in least.items():
            samples.add(name, number, value)
    return [
        *samples.rows("import", "ms"),
        samples.ratio("import", "mainspring", "huey", at_most=1.3),
        samples.ratio("import", "mainspring.Mainspring", "huey", at_most=1.3),
        samples.ratio("import", "mainspring in use", "huey in use"),
    ]


def _interpreter(name: str) -> str:
    return sys.executable if name.startswith("mainspring") else peers.python()
