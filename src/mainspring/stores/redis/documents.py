"""Small versioned documents."""

from __future__ import annotations

from collections.abc import Mapping

from mainspring.stores.records import Document

from .driver.client import RedisClient


async def put_document(client: RedisClient, doc: Document) -> Document:
    version, data = await client.run("put_document", doc.kind, doc.name, doc.version, doc.data)
    return Document(doc.kind, doc.name, int(version), data)


async def documents(client: RedisClient, kind: str) -> list[Document]:
    return _documents(kind, await client.command("HGETALL", client.key("documents", kind)))


def documents_now(client: RedisClient, kind: str) -> list[Document]:
    (found,) = client.ask_now([("HGETALL", client.key("documents", kind))])
    return _documents(kind, dict(zip(found[::2], found[1::2], strict=True)))


def _documents(kind: str, values: Mapping[bytes, bytes]) -> list[Document]:
    found = []
    for name, value in values.items():
        version, _, data = value.partition(b":")
        found.append(Document(kind, name.decode(), int(version), data))
    return sorted(found, key=lambda doc: doc.name)
