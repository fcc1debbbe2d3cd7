"""Two roles of few rights: one owns the schema and migrates it, the other uses it."""

from __future__ import annotations

from mainspring.stores.postgres.statements import statement

OWNER = "mainspring_owner"
APP = "mainspring_app"


def script(schema: str, *, owner: str = OWNER, app: str = APP) -> str:
    """What an administrator runs before the first migration."""
    return _named(statement("roles", schema), owner, app) + grants(schema, owner=owner, app=app)


def grants(schema: str, *, owner: str = OWNER, app: str = APP) -> str:
    """The part of it that gives the app its rights, now and after each migration."""
    return _named(statement("grants", schema), owner, app)


def _named(text: str, owner: str, app: str) -> str:
    return text.replace("{owner}", owner).replace("{app}", app)
