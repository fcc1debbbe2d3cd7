"""Small versioned documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.stores.records import Document

if TYPE_CHECKING:
    from .driver.transaction import Tx


def put_document(tx: Tx, doc: Document) -> Document:
    tx.run("put_document", (doc.kind, doc.name, doc.version, doc.data))
    version, data = tx.all("document", (doc.kind, doc.name))[0]
    return Document(doc.kind, doc.name, version, data)


def documents(tx: Tx, kind: str) -> list[Document]:
    return [Document(kind, *row) for row in tx.all("documents", (kind,))]
