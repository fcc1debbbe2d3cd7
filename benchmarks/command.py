"""The command: measure the columns that were asked for, print a table, keep the raw numbers."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks import machine, table
from benchmarks.frame import DRAIN_FLOOR, Config, Row

COLUMNS = ("drain", "enqueue", "latency", "idle", "imports", "scale", "recovery")
LAST = Path(__file__).resolve().parent / "results" / "last.json"


def main(argv: list[str]) -> int:
    """Measured is 0, whatever the numbers say; a system that could not be measured is 1."""
    given = _parser().parse_args(argv)
    config = Config(
        n=given.n, rounds=given.rounds, scale=given.scale, probes=given.probes, idle_seconds=given.idle,
        folder=given.dir, say=lambda text: print(text, file=sys.stderr, flush=True),
    )  # fmt: skip
    columns = [_column(name) for name in dict.fromkeys(given.names or COLUMNS)]
    facts = machine.facts(Path(given.dir or tempfile.gettempdir()))
    rows: list[Row] = []
    for column in columns:
        rows += column.run(config)
        _keep(LAST, facts, config, rows)
    if given.json:
        _keep(Path(given.json), facts, config, rows)
    print("\n" + ", ".join(f"{name} {value}" for name, value in facts.items()) + "\n")
    print(table.show(rows))
    return int(any(row.value is None for row in rows))


def _parser() -> argparse.ArgumentParser:
    names = ", ".join(COLUMNS)
    parser = argparse.ArgumentParser(prog="./dev bench", description=f"Benchmarks: {names}; all without a name.")
    parser.add_argument("names", nargs="*", metavar="NAME", type=_name, help=names)
    parser.add_argument("--n", type=int, default=DRAIN_FLOOR, help="jobs of a drain (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=2, help="interleaved rounds (default %(default)s)")
    parser.add_argument("--scale", type=int, default=1_000_000, help="jobs beside which claims are measured")
    parser.add_argument("--probes", type=int, default=300, help="jobs whose latency is measured")
    parser.add_argument("--idle", type=float, default=20.0, help="seconds of doing nothing")
    parser.add_argument("--dir", help="where stores are made: a real disk (default: the system's place for such)")
    parser.add_argument("--json", metavar="FILE", help="keep the raw numbers here as well")
    return parser


def _name(text: str) -> str:
    if text not in COLUMNS:
        raise argparse.ArgumentTypeError(f"no benchmark {text!r}; there are {', '.join(COLUMNS)}")
    return text


def _column(name: str) -> ModuleType:
    return importlib.import_module("benchmarks.columns." + name)


def _keep(path: Path, facts: dict[str, Any], config: Config, rows: list[Row]) -> None:
    told = {f.name: getattr(config, f.name) for f in dataclasses.fields(config) if f.name not in ("folder", "say")}
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = {"machine": facts, "config": told, "rows": [dataclasses.asdict(row) for row in rows]}
    path.write_text(json.dumps(kept, indent=1) + "\n")
