"""Run it: ``python nights.py``. The nights on which clocks change, in a second: in a test the clock is moved."""

import os
from datetime import datetime
from zoneinfo import ZoneInfo

from housekeeping import app

BERLIN = ZoneInfo("Europe/Berlin")
SPRING, AUTUMN = datetime(2026, 3, 27, 12, 30, tzinfo=BERLIN), datetime(2026, 10, 23, 12, 30, tzinfo=BERLIN)


def main() -> None:
    os.environ["SWEEP_TAKES"] = "0"
    for begin in (SPRING, AUTUMN):
        with app.test(start=begin) as t:
            t.advance("72h")
            for run in reversed(app.schedules.history("nightly")):
                print(f"nightly {run.at.astimezone(BERLIN):%a %d %b %H:%M %Z} {run.state}")
            print("hourly", len(app.schedules.history("hourly")), "runs in 72 hours")


if __name__ == "__main__":
    main()
