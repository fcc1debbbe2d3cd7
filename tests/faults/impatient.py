"""The playground for a worker that says after one lease without a turn, however short, that it claims nothing."""

from __future__ import annotations

from mainspring.worker import judge
from tests.processes.playground import app

__all__ = ["app"]

judge.SLOWEST_TURNS = 0.0
