"""taskito on any engine: polling each millisecond, eight workers, batches of a hundred."""

from __future__ import annotations

from benchmarks import peers
from benchmarks.systems import PROGRAMS, Questions, System


def taskito(asked: Questions) -> System:
    return System(
        program="taskito_app",
        worker=(peers.script("taskito"), "worker", "--app", PROGRAMS + "taskito_app:app"),
        interpreter=peers.python(),
        least=1000,
        share=0.1,
        asked=asked,
    )
