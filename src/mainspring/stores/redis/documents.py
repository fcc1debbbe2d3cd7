"""Small versioned documents."""

from __future__ import annotations

from mainspring.stores.records import Document

from .driver.client import RedisClient


async def put_document(client: RedisClient, doc: Document) -> Document:
    version, data = await client.run("put_document", doc.kind, doc.name, doc.version, doc.data)
    return Document(doc.kind, doc.name, int(version), data)


async def documents(client: RedisClient, kind: str) -> list[Document]:
    """All documents of a kind, by name."""
    found = []
    for name, value in (await client.command("HGETALL", client.key("documents", kind))).items():
        version, _, data = value.partition(b":")
        found.append(Document(kind, name.decode(), int(version), data))
    return sorted(found, key=lambda doc: doc.name)
