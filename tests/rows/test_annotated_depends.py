"""``Annotated[T, Depends(fn)]`` supplies a parameter, as the default ``Depends(fn)`` does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import pytest

from mainspring import Context, Depends, Mainspring
from mainspring.errors import BadSignature

LIMIT = 60
closed: list[str] = []


def get_db(ctx: Context) -> Iterator[str]:
    yield f"db of {ctx.task}"
    closed.append("db")


def get_user(db: Annotated[Any, Depends(get_db)]) -> str:
    return f"user in {db}"


Db = Annotated[Any, Depends(get_db)]


@pytest.mark.parametrize("colour", ["def", "async def"])
def test_an_annotated_dependency_is_supplied(app: Mainspring, colour: str) -> None:
    def read(
        n: int, db: Annotated[Any, Depends(get_db)] = None, *, user: Annotated[str, Depends(get_user)], alias: Db = 7
    ) -> list[Any]:
        return [n, db, user, alias]

    async def aread(
        n: int, db: Annotated[Any, Depends(get_db)], user: Annotated[str, Depends(get_user)], alias: Db
    ) -> Any:
        return [n, db, user, alias]

    task: Any = app.task(name="read")(read if colour == "def" else aread)
    closed.clear()
    job = task.enqueue(1)
    assert job.info().args == {"n": 1}
    with app.worker():
        assert job.result(timeout=LIMIT) == [1, "db of read", "user in db of read", "db of read"]
    assert closed == ["db"]


def test_an_annotation_with_a_dependency_that_is_unknown_is_refused(app: Mainspring) -> None:
    def local() -> int:
        return 1

    def read(n: Annotated[int, Depends(loacl)]) -> None: ...  # noqa: F821 - the mistake

    with pytest.raises(BadSignature, match=r"'n' .*cannot be resolved: name 'loacl' is not defined"):
        app.task(name="read")(read)
