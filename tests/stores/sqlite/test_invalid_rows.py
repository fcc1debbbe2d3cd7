"""Rows that another program has written: a worker survives them and logs what is wrong."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from mainspring import Mainspring
from mainspring.states import Reason, State

LIMIT = 60


def test_a_task_name_that_is_not_text_makes_the_job_dead(path: Path) -> None:
    app = Mainspring(f"sqlite:///{path}", poll="200ms")
    heard: list[str] = []

    @app.task(name="good")
    def good() -> int:
        return 7

    @app.on("failed", "dead", task="*")
    def hear(event: object) -> None:
        heard.append(str(event))

    odd = app.call("odd").enqueue()
    with closing(sqlite3.connect(path)) as other, other:
        tables = [name for (name,) in other.execute("select name from sqlite_master where type = 'table'")]
        jobs = next(name for name in tables if name.endswith("jobs"))
        assert other.execute(f"update {jobs} set task = ? where task = 'odd'", (b"odd",)).rowcount == 1
    with app.worker():
        assert good.enqueue().result(LIMIT) == 7
        info = odd.join(LIMIT)
        assert (info.state, info.reason) == (State.DEAD, Reason.UNDECODABLE)
        assert info.error is not None
        assert "b'odd'" in info.error.message
        assert good.enqueue().result(LIMIT) == 7
    app.close()
