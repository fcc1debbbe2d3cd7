"""Rules about retries that nothing would obey are refused where the task is declared."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.errors import BreakerOpen, InvalidOption

pytestmark = pytest.mark.stores("sqlite")  # nothing is stored


def body() -> None: ...


async def answer(error: Exception) -> bool:
    return False


async def pause(attempt: int) -> int:
    return 1


@pytest.mark.parametrize("cause", [{"ack": "early"}, {"retries": 0}], ids=["early", "no retries"])
@pytest.mark.parametrize(
    "rule", [{"retry_on": OSError}, {"never_retry_on": OSError}, {"retry_if": bool}], ids=lambda rule: next(iter(rule))
)
def test_a_task_that_retries_no_exception_has_no_rules_about_retries(
    app: Mainspring, cause: dict[str, Any], rule: dict[str, Any]
) -> None:
    [name] = rule
    with pytest.raises(InvalidOption, match=f"{name}=.*, which retries no exception"):
        app.task(name="pay", **cause, **rule)(body)
    app.task(name="guarded", **cause, **rule, breaker={"failures": 3})(body)  # the breaker counts by these rules
    app.task(name="ends", **cause, never_retry_on=BreakerOpen)(body)
    app.task(name="waits", **cause, backoff="1s")(body)  # for Retry, and for jobs with retries of their own


@pytest.mark.parametrize(("option", "function"), [("retry_if", answer), ("backoff", pause)])
def test_a_function_that_nothing_awaits_is_refused(app: Mainspring, option: str, function: Any) -> None:
    with pytest.raises(InvalidOption, match=f"{option}=.* must be a plain def: nothing awaits its answer"):
        app.task(name="pay", **{option: function})(body)
