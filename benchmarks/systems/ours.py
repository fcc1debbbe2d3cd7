"""Mainspring on any engine: all defaults, one process under its supervisor."""

from __future__ import annotations

import sys

from benchmarks.systems import PROGRAMS, Questions, System

KINDS = {"async": "noop", "thread": "noop_thread"}


_COMMAND = (sys.executable, "-m", "mainspring")
_APP = PROGRAMS + "mainspring_app:app"


def mainspring(asked: Questions, kind: str = "async", durability: str = "full") -> System:
    return System(
        program="mainspring_app",
        worker=(*_COMMAND, "worker", _APP),
        prepare=(*_COMMAND, "migrate", "--app", _APP),
        task=KINDS[kind],
        durability=durability,
        mark="--target",
        double=("--processes", "2"),
        asked=asked,
    )
