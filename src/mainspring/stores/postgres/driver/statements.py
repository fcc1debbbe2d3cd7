"""Texts of SQL: the files of ``sql/``, and the name of the schema.

``{schema}`` stands for the schema of the namespace and is filled in at each call. ``{READY}`` and other names in upper
case stand for constants of Python and are filled in when a file is read.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import LiteralString

from mainspring.errors import InvalidOption
from mainspring.stores.postgres.driver.constants import fill_constants

_FOLDER = Path(__file__).parent.parent / "sql"
_NAMESPACE = re.compile(r"[a-z0-9_]{1,40}")


def schema_of(namespace: str) -> str:
    """The schema that holds a namespace: ``mainspring`` for the default one.

    >>> schema_of("default"), schema_of("shop")
    ('mainspring', 'mainspring_shop')
    """
    if not _NAMESPACE.fullmatch(namespace):
        raise InvalidOption(
            "namespace", namespace, "is not 1 to 40 lower-case letters, digits and underscores",
            hint="On PostgreSQL the namespace is part of a schema's name.",
        )  # fmt: skip
    return "mainspring" if namespace == "default" else f"mainspring_{namespace}"


@cache
def read_sql(name: str, schema: str) -> LiteralString:
    """The text of ``sql/<name>.sql`` for this schema."""
    return fill_schema(fill_constants((_FOLDER / f"{name}.sql").read_text(encoding="utf-8")), schema)


def fill_schema(text: str, schema: str) -> LiteralString:
    # As good as literal: the texts are ours, and the schema's name was checked by `schema_of`.
    return text.replace("{schema}", schema)
