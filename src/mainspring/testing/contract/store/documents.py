"""Small versioned documents: older code never overwrites a newer version."""

from __future__ import annotations

import pytest

from mainspring.stores.base import Store
from mainspring.stores.records import Document

__all__ = ["TestDocuments"]


@pytest.mark.asyncio
class TestDocuments:
    async def test_a_stored_document_is_found(self, store: Store, second_store: Store) -> None:
        doc = Document("queue", "email", 1, b"\x00{}")
        assert await store.put_document(doc) == doc
        assert await second_store.documents("queue") == [doc]

    async def test_a_newer_version_replaces(self, store: Store) -> None:
        await store.put_document(Document("queue", "email", 1, b"old"))
        newer = Document("queue", "email", 2, b"new")
        assert await store.put_document(newer) == newer
        assert await store.documents("queue") == [newer]

    async def test_an_older_version_does_not_replace(self, store: Store) -> None:
        """And the caller gets the stored document."""
        newer = Document("queue", "email", 5, b"new")
        await store.put_document(newer)
        assert await store.put_document(Document("queue", "email", 4, b"old")) == newer
        assert await store.documents("queue") == [newer]

    async def test_the_same_version_may_be_put_again(self, store: Store) -> None:
        doc = Document("queue", "email", 3, b"x")
        assert await store.put_document(doc) == await store.put_document(doc) == doc

    async def test_a_kind_is_listed_by_name(self, store: Store) -> None:
        for name in ("b", "a", "c"):
            await store.put_document(Document("queue", name, 1, name.encode()))
        await store.put_document(Document("other", "z", 1, b""))
        assert [doc.name for doc in await store.documents("queue")] == ["a", "b", "c"]
        assert await store.documents("nothing") == []

    async def test_documents_now_reads_the_same(self, store: Store) -> None:
        for name in ("b", "a"):
            await store.put_document(Document("queue", name, 1, name.encode()))
        assert store.documents_now("queue") == await store.documents("queue")
        assert store.documents_now("nothing") == []
