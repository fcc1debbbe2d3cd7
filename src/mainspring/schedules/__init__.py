"""app.schedules, and what the code declares with ``@app.schedule``."""

from __future__ import annotations

from mainspring.schedules.face import Schedules
from mainspring.schedules.infos import GroupInfo, LastRun, RunInfo, ScheduleInfo, ScheduleStatus

__all__ = ["GroupInfo", "LastRun", "RunInfo", "ScheduleInfo", "ScheduleStatus", "Schedules"]
