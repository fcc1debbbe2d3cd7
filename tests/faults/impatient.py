"""The playground for a worker that says after one lease without a turn, however short, that it claims nothing."""

from __future__ import annotations

from mainspring.worker.supervise import kill_rules
from tests.processes.playground import app

__all__ = ["app"]

kill_rules.SLOWEST_TURNS = 0.0
