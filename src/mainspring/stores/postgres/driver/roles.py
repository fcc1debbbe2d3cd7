"""Two roles with few rights: the owner owns the schema and migrates it, the app uses it."""

from __future__ import annotations

from mainspring.stores.postgres.driver.statements import read_sql

OWNER = "mainspring_owner"
APP = "mainspring_app"


def roles_script(schema: str, *, owner: str = OWNER, app: str = APP) -> str:
    """The script that an administrator runs before the first migration."""
    return _fill_roles(read_sql("schema/roles", schema), owner, app) + grants_script(schema, owner=owner, app=app)


def grants_script(schema: str, *, owner: str = OWNER, app: str = APP) -> str:
    """The part of the script that gives the app its rights, now and after each migration."""
    return _fill_roles(read_sql("schema/grants", schema), owner, app)


def _fill_roles(text: str, owner: str, app: str) -> str:
    return text.replace("{owner}", owner).replace("{app}", app)
