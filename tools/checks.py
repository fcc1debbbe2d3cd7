"""`./dev check`: everything that can be said about the code without running it, and the documentation's code."""

from __future__ import annotations

import subprocess
import time
from typing import NamedTuple

from tools import environment


class Step(NamedTuple):
    """One checker and how it is called; `-m` keeps it independent of scripts' first lines."""

    name: str
    command: list[str]


STEPS = (
    Step("ruff check", ["ruff", "check", "--quiet", "."]),
    Step("ruff format", ["ruff", "format", "--check", "--quiet", "."]),
    Step("import rules", ["lint-imports", "--no-cache"]),
    Step("mypy", ["mypy", "--no-error-summary"]),
    Step("pyright", ["basedpyright", "--level", "error"]),
)
CODE_BLOCKS = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/docs"]


def command(args: list[str]) -> int:
    """All checks, then the code blocks."""
    if args:
        raise environment.Failed("check takes no arguments")
    python = environment.python()
    return statics() or environment.run([python, *CODE_BLOCKS])


def statics() -> int:
    """The checkers, side by side; prints one line for each and the output of the failed ones."""
    environment.python()
    started = time.monotonic()
    running = [(step, _start(step)) for step in STEPS if _applies(step)]
    failed = [step.name for step, process in running if not _passed(step, process, started)]
    if failed:
        print(f"check failed: {', '.join(failed)}", flush=True)
    return 1 if failed else 0


def _applies(step: Step) -> bool:
    return step.name != "pyright" or any((environment.ROOT / "tests" / "typing").glob("*.py"))


def _start(step: Step) -> subprocess.Popen[str]:
    program = str(environment.BIN / step.command[0])
    return subprocess.Popen(
        [program, *step.command[1:]],
        cwd=environment.ROOT,
        env=environment.variables(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _passed(step: Step, process: subprocess.Popen[str], started: float) -> bool:
    output, _ = process.communicate()
    good = process.returncode == 0
    print(f"{'ok    ' if good else 'FAILED'} {step.name} ({time.monotonic() - started:.1f} s)", flush=True)
    if not good:
        print(output, flush=True)
    return good
