"""Clean-up by the clock: ``mainspring worker housekeeping.py``, on as many machines as you like."""

import os
import time
from pathlib import Path

from mainspring import Context, Mainspring

NOTES = Path(__file__).with_name("notes.txt")

app = Mainspring(lease="5s")  # shorter than the default, to see sooner that one of the fleet is gone


@app.task(retries=3, timeout="10m")
def sweep(ctx: Context, what: str) -> str:
    """Stands in for your clean-up. It writes down what it does, and which of the fleet does it."""
    note("begins", what, ctx.job_id, os.getppid(), os.getpid())
    time.sleep(float(os.environ.get("SWEEP_TAKES", "0.5")))  # the work
    note("ends", what, ctx.job_id, os.getppid(), os.getpid())
    return what


def note(*words: object) -> None:
    with NOTES.open("a") as file:  # one short write: lines of several processes do not mix
        file.write(" ".join(str(word) for word in words) + "\n")


app.schedule("hourly", cron="@hourly", call=sweep.s("uploads"))
app.schedule("nightly", cron="30 2 * * *", tz="Europe/Berlin", call=sweep.s("sessions"))
