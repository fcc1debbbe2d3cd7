"""What a program imports when it only declares its tasks: a web application pays for it at each start.

These tests name and count modules instead of measuring seconds. ``./dev bench imports`` measures.
"""

import json
import subprocess
import sys

import pytest

DECLARE = """
import json, sys
from mainspring import Concurrency, Key, Mainspring, Middleware, Rate, Retry
app = Mainspring("sqlite:///never.db", durability="normal")
app.queue("email", max_depth=10)
@app.task(queue="email", retries=3, timeout="1m", key=Key("n"), limit=[Rate(10, per="1s"), Concurrency(2)])
def send(n: int) -> str:
    return str(n)
@app.task
async def fetch(url: str) -> None: ...
@app.on("dead")
def warn(event): ...
app.call = send.options(priority="high").s(1)
print(json.dumps([name for name in sys.modules]))
"""

NOT_NEEDED = (
    "asyncio",  # half of the time of an import; the first call of the store needs it
    "concurrent.futures",
    "cronsim",
    "logging",
    "mainspring.cli",
    "mainspring.client.client",
    "mainspring.launch",
    "mainspring.schedules.plan",
    "mainspring.schedules.rules",
    "mainspring.schedules.service",
    "mainspring.stores.door",
    "mainspring.stores.sqlite",
    "mainspring.worker",
    "socket",
    "sqlite3",
    "ssl",
    "subprocess",
    "zoneinfo",
)
MOST_OF_OURS = 80
"""Modules of the package. Each costs about 0.3 ms: raise this number only for something that declarations need."""


@pytest.fixture(scope="module")
def imported() -> list[str]:
    done = subprocess.run([sys.executable, "-c", DECLARE], capture_output=True, text=True, check=True)
    names: list[str] = json.loads(done.stdout)
    return names


@pytest.mark.parametrize("name", NOT_NEEDED)
def test_declaring_an_app_does_not_import(imported: list[str], name: str) -> None:
    assert [each for each in imported if each == name or each.startswith(f"{name}.")] == []


def test_declaring_an_app_imports_few_modules_of_the_package(imported: list[str]) -> None:
    ours = [name for name in imported if name.partition(".")[0] == "mainspring"]
    assert len(ours) <= MOST_OF_OURS, "\n".join(ours)


def test_the_first_workers_are_started_before_asyncio_is_imported() -> None:
    """So both processes import at the same time."""
    command = [sys.executable, "-c", "import mainspring.launch.run, sys; print('asyncio' in sys.modules)"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "False"
