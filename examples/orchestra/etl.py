"""Four parts that keep time with each other: ``mainspring worker etl.py``, on as many machines as you like.

In earnest they would be due every hour; for the show it is every second.
"""

import time
from pathlib import Path

from mainspring import Mainspring, ScheduleEvent

HOME = Path(__file__).parent
SCORE = HOME / "score.txt"
BROKEN = HOME / "report-is-broken"

app = Mainspring()
etl = app.schedules.group("etl", max_concurrent=2)


@app.schedule("fetch-data", every="1s", group=etl, priority="high")
def fetch_data() -> None:
    play("fetch-data")


@app.schedule("process-data", every="1s", group=etl, depends_on=[fetch_data])
def process_data() -> None:
    play("process-data")


@app.schedule("cleanup", every="2s", group=etl, priority="low", blocks=[process_data])
def cleanup() -> None:
    play("cleanup")


@app.schedule("report", every="1s", group=etl, max_failures=3, reenable_after="10m", retries=0)
def report() -> None:
    play("report")
    if BROKEN.exists():
        raise RuntimeError("the report cannot be written")


@app.on("schedule_disabled", "schedule_enabled")
def tell(event: ScheduleEvent) -> None:
    write(event.name, event.schedule)


def play(part: str) -> None:
    """Stands in for the work: it writes down when it begins and ends."""
    write("begins", part)
    time.sleep(0.3)
    write("ends", part)


def write(word: str, part: str) -> None:
    with SCORE.open("a") as file:  # one short write: lines of several processes do not mix, and stand in order
        file.write(f"{word} {part}\n")
