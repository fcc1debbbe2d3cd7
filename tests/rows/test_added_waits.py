"""``expires`` is refused if it is shorter than a wait that Mainspring adds itself: every such job would be lost."""

from __future__ import annotations

import pytest

from mainspring import Key, Mainspring
from mainspring.errors import InvalidOption

pytestmark = [
    pytest.mark.row("Q13"),
    pytest.mark.option("task.expires", "job.expires"),
    pytest.mark.stores("sqlite"),  # nothing is stored
]
MODES = ["debounce", "throttle"]


@pytest.mark.parametrize("mode", MODES)
def test_a_key_that_makes_its_job_wait_longer(app: Mainspring, mode: str) -> None:
    key = Key.arguments("p", mode=mode, window="5m")  # type: ignore[arg-type]  # text of a parameter

    def index(p: int) -> None: ...

    with pytest.raises(InvalidOption, match=f"would expire before it may start .*mode='{mode}', window=5m"):
        app.task(name="a", expires="1m", key=key)(index)
    task = app.task(name="b", expires="1m")(index)
    with pytest.raises(InvalidOption, match=r"task 'b': .*window=5m"):
        task.options(key=key).enqueue(1)
    keyed = app.task(name="c", key=key)(index)
    with pytest.raises(InvalidOption, match=r"task 'c': .*window=5m"):
        keyed.options(expires="5m").enqueue(1)
    keyed.options(expires="6m").enqueue(1)
    app.task(name="d", expires="1m", key=Key.arguments(window="5m"))(index).enqueue(1)  # this key makes nothing wait


def test_the_jitter_of_a_schedule(app: Mainspring) -> None:
    @app.task(expires="1m")
    def short(n: int = 0) -> None: ...

    @app.task
    def free(n: int = 0) -> None: ...

    for on in (short.s(1), free.options(expires="1m").s(1)):
        with pytest.raises(InvalidOption, match=r"schedule 'x': .*would expire before it may start \(jitter=30m\)"):
            app.schedule("x", every="1h", jitter="30m", call=on)
    with pytest.raises(InvalidOption, match=r"jitter=30m"):
        app.schedule("y", every="1h", jitter="30m")(short)
    with pytest.raises(InvalidOption, match=r"jitter=30m"):
        app.schedule("z", every="1h", jitter="30m", expires="30m")(free)
    with pytest.raises(InvalidOption, match=r"jitter=30m"):
        app.schedules.put("p", short.s(1), every="1h", jitter="30m")
    app.schedule("ok", every="1h", jitter="30m", expires="31m")(free)
    app.schedule("fine", every="1h", expires="1m", call=free.s(1))
    assert app.schedules.declare().added == ("fine", "ok")
