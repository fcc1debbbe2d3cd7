"""A call, as it becomes a record."""

from __future__ import annotations

import msgspec

from mainspring import Mainspring
from mainspring.records import Body

app = Mainspring("sqlite://")


@app.task(queue="email", priority="high", crashes=5)
def send(to: str) -> None: ...


def test_the_short_way_writes_what_encoding_the_body_would() -> None:
    new, _ = send.s("a@b.c").new_job(None, app.client)
    assert new.record == msgspec.json.encode(Body(args=msgspec.Raw(b'{"to":"a@b.c"}')))


def test_both_ways_make_the_same_job() -> None:
    plain, _ = send.s("a@b.c").new_job(None, app.client)
    chosen, _ = send.options(queue="email").s("a@b.c").new_job(None, app.client)
    assert msgspec.structs.replace(plain, id=b"") == msgspec.structs.replace(chosen, id=b"")


def test_job_options_go_before_the_tasks() -> None:
    new, _ = send.options(queue="slow", priority=-7, retries=0, timeout=None).s("a@b.c").new_job("v1", app.client)
    body = msgspec.json.decode(new.record, type=Body)
    assert (new.queue, new.priority, new.crashes) == ("slow", -7, 5)
    assert (body.retries, body.timeout, body.code) == (0, 0, "v1")
