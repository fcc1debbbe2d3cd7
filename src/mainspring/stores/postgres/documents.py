"""Small versioned documents."""

from __future__ import annotations

import msgspec

from mainspring.stores.postgres.driver.database import Database
from mainspring.stores.postgres.driver.statements import fill_schema
from mainspring.stores.records import Document

_PUT = """
select version, data from {schema}.put_document_v1(%(kind)s::text, %(name)s::text, %(version)s::bigint, %(data)b::bytea)
"""
_DOCUMENTS = "select name, version, data from {schema}.documents where kind = %(kind)s order by name"


async def put_document(db: Database, doc: Document) -> Document:
    ((version, data),) = await db.rows(_PUT, msgspec.structs.asdict(doc))
    return Document(doc.kind, doc.name, version, data)


async def documents(db: Database, kind: str) -> list[Document]:
    return [Document(kind, *row) for row in await db.rows(_DOCUMENTS, {"kind": kind})]


def documents_now(db: Database, kind: str) -> list[Document]:
    return [Document(kind, *row) for row in db.sessions.rows_now(fill_schema(_DOCUMENTS, db.schema), {"kind": kind})]
