"""What a commit is worth: asked for, read back, refused in strict mode."""

from __future__ import annotations

import logging

import psycopg
import pytest

from mainspring import Mainspring
from mainspring.errors import InvalidOption, StoreConflict, StoreError, StoreFull, StoreNotDurable, StoreUnavailable
from mainspring.stores.postgres import PostgresStore
from mainspring.stores.postgres.driver.durability import check_durability, durability_class
from mainspring.stores.postgres.driver.errors import translate
from mainspring.stores.postgres.driver.session import ServerSettings
from mainspring.testing import servers


async def commit_of(store: PostgresStore) -> tuple[str, str]:
    """What a call of each side says of itself."""
    ask = "select current_setting('synchronous_commit')"
    ((aside,),) = await store._db.sessions.rows(ask, {})
    ((now,),) = store._db.sessions.rows_now(ask, {})
    return aside, now


class TestCommits:
    @pytest.mark.parametrize(
        ("servers_own", "asked", "ours"),
        [
            ("on", "full", "on"), ("off", "full", "on"), ("local", "full", "local"),
            ("remote_apply", "full", "remote_apply"), ("on", "normal", "off"), ("off", "normal", "off"),
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("pooler", [False, True])
    async def test_full_waits_for_the_disk_and_normal_does_not(
        self, postgres_url: str, servers_own: str, asked: str, ours: str, pooler: bool
    ) -> None:
        """Whatever the setting of the server. A stricter setting of the server is kept."""
        url = f"{postgres_url}&options=-csynchronous_commit%3D{servers_own}"
        store = PostgresStore(url, durability=asked, pooler=pooler)
        await store.open()
        assert await commit_of(store) == (ours, ours)
        links = [await store._db.sessions.connect() for _ in range(2)]  # made after the server was asked
        for link in links:
            row = await (await link.execute("show synchronous_commit")).fetchone()
            assert row == (servers_own if pooler else ours,)
            link.drop()
        await store.close()

    async def test_the_first_connection_can_be_a_blocking_one(self, postgres_url: str) -> None:
        store = PostgresStore(f"{postgres_url}&options=-csynchronous_commit%3Doff")
        assert store._db.sessions.rows_now("show synchronous_commit", {}) == [("on",)]
        await store.close()

    def test_an_unknown_class_is_refused(self, postgres_url: str) -> None:
        with pytest.raises(InvalidOption, match="durability"):
            PostgresStore(postgres_url, durability="most")


class TestClasses:
    def test_names_of_durability_classes(self) -> None:
        assert durability_class(ServerSettings("on", fsync=True)) == "postgres:full"
        assert durability_class(ServerSettings("remote_apply", fsync=True)) == "postgres:full"
        assert durability_class(ServerSettings("off", fsync=True)) == "postgres:normal"
        assert durability_class(ServerSettings("on", fsync=False)) == "postgres:fsync=off"

    async def test_a_server_without_fsync_is_warned_of_or_refused(self, caplog: pytest.LogCaptureFixture) -> None:
        with servers.postgres(own=True, settings={"fsync": "off"}) as server:
            await self._is_warned_of_or_refused(server.url, caplog)

    async def _is_warned_of_or_refused(self, postgres_url: str, caplog: pytest.LogCaptureFixture) -> None:
        store = PostgresStore(postgres_url, strict=True)
        with pytest.raises(StoreNotDurable, match="fsync"):
            await store.open()
        with pytest.raises(StoreNotDurable, match="fsync"):
            await store.open()
        lax = PostgresStore(postgres_url)
        with caplog.at_level(logging.WARNING, "mainspring.store"):
            await lax.open()
            await lax.open()
        assert len([line for line in caplog.records if "fsync" in line.message]) == 1
        assert await lax.durability() == "postgres:fsync=off"
        await lax.close()

    @pytest.mark.option("app.strict")
    def test_strict_of_an_app_refuses_a_server_without_fsync(self) -> None:
        with servers.postgres(own=True, settings={"fsync": "off"}) as server:
            app = Mainspring(server.url, strict=True)
            with pytest.raises(StoreNotDurable, match="fsync"):
                app.open()

    async def test_a_durable_server_is_accepted_in_strict_mode(self) -> None:
        with servers.postgres(own=True, durable=True) as server:
            store = PostgresStore(server.url, strict=True)
            await store.open()
            assert await store.durability() == "postgres:full"
            await store.close()

    def test_a_durable_server_causes_no_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        check_durability(ServerSettings("on", fsync=True), strict=True, url="")
        assert not caplog.records


@pytest.mark.parametrize(
    ("code", "meaning"),
    [
        ("53100", StoreFull), ("53200", StoreFull), ("53000", StoreFull), ("53400", StoreFull),
        ("53300", StoreUnavailable), ("57P01", StoreUnavailable), ("57P03", StoreUnavailable),
        ("57014", StoreUnavailable), ("25P03", StoreUnavailable), ("54000", StoreConflict), ("55P03", StoreConflict),
    ],
)  # fmt: skip
def test_errors_of_the_server_are_translated(code: str, meaning: type[StoreError]) -> None:
    assert type(translate(psycopg.errors.lookup(code)("said"))) is meaning
