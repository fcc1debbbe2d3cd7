"""Systems in turn, each in fresh processes on a fresh store, in rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import psutil

from benchmarks import places, systems
from benchmarks.frame import Config, Failed, Samples, of_tree, split_tree
from benchmarks.places import Place
from benchmarks.processes import run
from benchmarks.systems import System

Found = TypeVar("Found")


class Bench:
    """What one measurement has in its hands."""

    def __init__(self, config: Config, name: str, system: System, place: Place, folder: Path) -> None:
        self.config = config
        self.name = name
        self.system = system
        self.place = place
        self.folder = folder
        self.env = systems.env(system, config.engine, place, folder)
        tree = split_tree(name)[1]
        if tree:
            self.env["BENCH_TREE"] = config.trees[tree]


def with_trees(config: Config, names: Sequence[str]) -> list[str]:
    """The names, each of ours followed by the same system of each other tree."""
    trees = ("", *config.trees)
    return [of_tree(name, tree) for name in names for tree in (trees if name.startswith("mainspring") else ("",))]


def each(
    config: Config, what: str, names: Sequence[str], measure: Callable[[Bench], Found], failures: Samples
) -> Iterator[tuple[int, str, Found]]:
    """Round, system and what was found; those that could not be measured are noted in ``failures``."""
    for number in range(config.rounds):
        for name in names:
            if not systems.has(config.engine, name) or not name.startswith(config.only or ""):
                continue
            config.say(f"{what} {name} on {config.engine}, round {number + 1}")
            try:
                found = _one(config, name, measure)
            except Failed as error:
                failures.fail(name, str(error))
                config.say(f"  could not be measured: {error}")
            except psutil.NoSuchProcess as error:
                failures.fail(name, f"a process ended meanwhile: {error}")
            else:
                yield number, name, found


def _one(config: Config, name: str, measure: Callable[[Bench], Found]) -> Found:
    system = systems.find(config.engine, name)
    with config.scratch() as folder, places.fresh(config.engine, folder) as place:
        bench = Bench(config, name, system, place, folder)
        if system.prepare:
            run(system.prepare, bench.env)
        return measure(bench)
