"""Two worker processes on one queue, against one: the same drain."""

from __future__ import annotations

import dataclasses
import itertools
from functools import partial

from benchmarks import goals, rounds
from benchmarks.columns import drain
from benchmarks.frame import Config, Row, Samples
from benchmarks.goals import ASYNC

NAMES = ("floor", "dramatiq", "taskiq", "chancy", "oban", ASYNC)


def run(config: Config) -> list[Row]:
    rates, costs = Samples(), Samples()
    for number, processes in itertools.product(range(config.rounds), (1, 2)):
        measure = partial(drain.measure, processes=processes)
        once = dataclasses.replace(config, rounds=1)
        for _, name, found in rounds.each(once, f"drain by {processes}", NAMES, measure, rates):
            rates.add(f"{name}, {processes}", number, found.rate)
            costs.add(f"{name}, {processes}", number, found.worker)
    wanted = {ASYNC: goals.TWO_PROCESSES}
    return [
        *rates.rows("drain by 1 and 2 processes", "jobs/s"),
        *costs.rows("drain by 1 and 2 processes, CPU", "us/job"),
        *[
            rates.ratio("two processes", f"{name}, 2", f"{name}, 1", at_least=wanted.get(name))
            for name in NAMES
            if rates.of(f"{name}, 1")
        ],
    ]
