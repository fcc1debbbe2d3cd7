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
from benchmarks.frame import DRAIN_FLOOR, ENGINES, Config, Row, ratios_of_trees

COLUMNS = (
    "drain",
    "enqueue",
    "producers",
    "beside",
    "latency",
    "idle",
    "fleet",
    "imports",
    "start",
    "two",
    "scale",
    "limits",
    "fair",
    "schedules",
    "recovery",
    "flows",
)
ONLY_ON = {
    "fleet": ("postgres", "redis"),
    "imports": ("sqlite",),
    "producers": ("postgres", "redis"),
    "two": ("postgres", "redis"),
}
_UNTOLD = ("folder", "say", "trees")
"""Paths of this machine are not kept; the commits of the trees are among the facts."""
RESULTS = Path(__file__).resolve().parent / "results"


def main(argv: list[str]) -> int:
    """Measured is 0, whatever the numbers say; a system that could not be measured is 1."""
    given = _parser().parse_args(argv)
    config = Config(
        n=given.n, rounds=given.rounds, scale=given.scale, probes=given.probes, idle_seconds=given.idle,
        members=given.members, batch=given.batch,
        engine=given.store, only=tuple(given.only), limits=tuple(given.limits), trees=dict(given.tree),
        folder=given.dir,
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )  # fmt: skip
    if given.dir:
        tempfile.tempdir = given.dir  # where servers make their homes
    columns = [_column(name) for name in _asked(given.names, given.store)]
    facts = machine.facts(Path(tempfile.gettempdir()), given.store)
    facts |= {f"tree {name}": machine.commit(folder) for name, folder in config.trees.items()}
    path = Path(given.json) if given.json else RESULTS / _result(given, facts["date"].split()[0])
    rows: list[Row] = []
    for column in columns:
        rows += [row for row in column.run(config) if row.value is not None or row.note or not config.only]
        facts["load"] = [*facts["load"], machine.load()]
        _keep(path, facts, config, [*rows, *ratios_of_trees(rows)])
    rows += ratios_of_trees(rows)
    print("\n" + ", ".join(f"{name} {value}" for name, value in facts.items()) + "\n")
    print(table.show(rows))
    return int(any(row.value is None for row in rows))


def _parser() -> argparse.ArgumentParser:
    names = ", ".join(COLUMNS)
    parser = argparse.ArgumentParser(prog="./dev bench", description=f"Benchmarks: {names}; all without a name.")
    parser.add_argument("names", nargs="*", metavar="NAME", type=_name, help=names)
    parser.add_argument("--store", choices=ENGINES, default="sqlite", help="the engine (default %(default)s)")
    parser.add_argument("--only", nargs="+", default=(), metavar="SYSTEM", help="only systems whose names begin so")
    parser.add_argument(
        "--tree", nargs=1, action="extend", type=_tree, default=[], metavar="NAME=PATH",
        help="another tree of the project, measured in turn with this one",
    )  # fmt: skip
    parser.add_argument(
        "--limits", nargs="+", default=(), metavar="LIMIT", help="of the column limits only these: 'concurrency, 4'"
    )
    parser.add_argument("--n", type=int, default=DRAIN_FLOOR, help="jobs of a drain (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=2, help="interleaved rounds (default %(default)s)")
    parser.add_argument("--scale", type=int, default=1_000_000, help="jobs beside which claims are measured")
    parser.add_argument("--probes", type=int, default=300, help="jobs whose latency is measured")
    parser.add_argument("--idle", type=float, default=20.0, help="seconds of doing nothing")
    parser.add_argument("--members", type=int, default=100_000, help="of the largest chord (default %(default)s)")
    parser.add_argument("--batch", type=int, default=100_000, help="members of the open batch; the goal has 1,000,000")
    parser.add_argument("--dir", help="where stores are made: a real disk (default: the system's place for such)")
    parser.add_argument("--json", metavar="FILE", help="keep the raw numbers here, not in benchmarks/results")
    return parser


def _name(text: str) -> str:
    if text not in COLUMNS:
        raise argparse.ArgumentTypeError(f"no benchmark {text!r}; there are {', '.join(COLUMNS)}")
    return text


def _tree(text: str) -> tuple[str, str]:
    name, _, folder = text.partition("=")
    if not name or not Path(folder, "src", "mainspring").is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=PATH with the path of a tree of the project")
    return name, str(Path(folder).resolve())


def _result(given: argparse.Namespace, date: str) -> str:
    """A whole run is kept under its date; a look is not."""
    whole = not given.names and not given.only and given.n >= DRAIN_FLOOR
    return f"{date}-{given.store}.json" if whole else "last.json"


def _asked(names: list[str], engine: str) -> list[str]:
    """All columns of the engine; one that was named and is none of its columns is an error."""
    for name in names:
        if engine not in ONLY_ON.get(name, ENGINES):
            sys.exit(f"./dev bench: {name} is measured on {' and '.join(ONLY_ON[name])} only")
    return list(dict.fromkeys(names)) or [name for name in COLUMNS if engine in ONLY_ON.get(name, ENGINES)]


def _column(name: str) -> ModuleType:
    return importlib.import_module("benchmarks.columns." + name)


def _keep(path: Path, facts: dict[str, Any], config: Config, rows: list[Row]) -> None:
    told = {f.name: getattr(config, f.name) for f in dataclasses.fields(config) if f.name not in _UNTOLD}
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = {"machine": facts, "config": told, "rows": [dataclasses.asdict(row) for row in rows]}
    path.write_text(json.dumps(kept, indent=1) + "\n")
