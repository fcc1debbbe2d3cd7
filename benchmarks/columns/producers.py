"""Fifty asyncio producers in one process, each waiting for its own job: do they share round trips?"""

from __future__ import annotations

from benchmarks import goals
from benchmarks.columns.enqueue import Enqueued
from benchmarks.frame import Config, Row

NAMES = ("floor", "taskiq", "chancy", "oban", "procrastinate", "mainspring async", "bullmq")


def run(config: Config) -> list[Row]:
    measured = Enqueued(config, "together", max(200, config.n // 2), NAMES)
    return measured.rows("50 producers", goals.PRODUCERS[config.engine])
