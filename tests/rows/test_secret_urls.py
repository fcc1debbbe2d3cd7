"""G2: the password in the URL of a store is shown nowhere, whatever characters it has."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
import pytest
import redis

from mainspring import Mainspring
from mainspring.errors import BadUrl, StoreError
from mainspring.stores.postgres.driver import roles
from mainspring.stores.redis.driver import acl
from tests.rows.project import LIMIT, Project

ODD = "od%d pass@wo?rd/#[x]"
"""A password with every character that has a meaning in a URL. ``PARTS`` of it are searched in what is shown."""
PARTS = ("od%d", "pass@", "wo?rd", "pass%40", "%23%5Bx", "#[x]", quote(ODD, safe=""))

pytestmark = [pytest.mark.row("G2"), pytest.mark.stores("postgres", "redis")]


def with_login(url: str, user: str, password: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{user}:{password}@{parts.netloc.rpartition('@')[2]}"))


@pytest.fixture
def user(store_url: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """A user of the real server whose password is ``ODD``."""
    name = f"odd_{secrets.token_hex(4)}"
    if store_url.startswith("postgres"):
        owner_url = request.getfixturevalue("postgres_owner_url")
        with psycopg.connect(owner_url, autocommit=True) as owner:
            rights = roles.grants_script("public", owner="current_user", app=name).replace(" in schema public", "")
            owner.execute(f"create role {name} login password '{ODD}'".encode())
            owner.execute(rights.encode())
            owner.execute(f"alter default privileges grant usage on schemas to {name}".encode())
            base = urlsplit(store_url).username
            owner.execute(f"grant {base} to {name}".encode())
        yield name
        with psycopg.connect(owner_url, autocommit=True) as owner:
            owner.execute(f"drop owned by {name}; drop role {name}".encode())
        return
    with redis.Redis.from_url(request.getfixturevalue("redis_owner_url")) as client:
        client.execute_command("ACL", "SETUSER", name, "reset", "on", f">{ODD}", *acl.rules("*"))
        yield name
        client.execute_command("ACL", "DELUSER", name)


@pytest.fixture
def project(tmp_path: Path, store_url: str) -> Project:
    made = Project(tmp_path, store_url)
    made.write(
        """
        import os
        from mainspring import Mainspring

        app = Mainspring(os.environ["SHOP_STORE"])

        @app.task
        def work() -> int:
            return 7
        """
    )
    return made


def shown_by(project: Project, url: str) -> dict[str, str]:
    """The output of programs and commands that use the store at ``url``."""
    project.url = url
    programs = {
        "program": ("-c", "import shop; print(repr(shop.app), shop.app.settings.origins); shop.work.enqueue()"),
        "status": ("-m", "mainspring", "-A", "shop:app", "status"),
        "config": ("-m", "mainspring", "-A", "shop:app", "config", "--json"),
        "worker": ("-m", "mainspring", "worker", "shop:app", "--until-empty"),
    }
    texts = {}
    for name, arguments in programs.items():
        done = project.run(*arguments, env={"MAINSPRING_URL": url})
        texts[name] = f"{done.returncode}\n{done.stdout}{done.stderr}"
    return texts


def leaks_in(texts: dict[str, str]) -> dict[str, str]:
    return {place: text for place, text in texts.items() for part in PARTS if part in text}


def test_a_percent_encoded_password_works_and_is_shown_nowhere(project: Project, user: str, store_url: str) -> None:
    url = with_login(store_url, user, quote(ODD, safe=""))
    with Mainspring(url) as app:

        @app.task(name="seven")
        def seven() -> int:
            return 7

        with app.worker():
            assert seven.enqueue().result(timeout=LIMIT) == 7
    texts = shown_by(project, url)
    assert not leaks_in(texts)
    assert all(text.startswith("0\n") for text in texts.values()), texts
    assert f"{user}:***@" in texts["worker"]


def test_a_refused_login_shows_no_password(project: Project, user: str, store_url: str) -> None:
    url = with_login(store_url, user, quote(ODD + " wrong", safe=""))
    texts = shown_by(project, url)
    assert not leaks_in(texts)
    assert "***" in texts["program"]


def test_an_unreachable_server_shows_no_password(project: Project, store_url: str) -> None:
    parts = urlsplit(with_login(store_url, "shop", quote(ODD, safe="")))
    url = urlunsplit(parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:1"))
    app = Mainspring(url)
    with pytest.raises(StoreError) as refused:
        app.jobs.count()
    assert not leaks_in({"error": f"{refused.value} {refused.value.__cause__} {app!r}"})


@pytest.mark.parametrize("character", [*"%@?/# []", "\n", "%zz"])
def test_a_password_that_must_be_encoded_is_refused_without_showing_it(store_url: str, character: str) -> None:
    """One rule for each engine: the drivers read such a URL differently, or print a part of the password."""
    url = with_login(store_url, "shop", "XX")
    url = url.replace(":XX@", f":alpha{character}omega@")
    with pytest.raises(BadUrl, match=r"percent-encoded") as refused:
        Mainspring(url)
    text = f"{refused.value} {refused.value!r} {refused.value.__cause__}"
    assert "alpha" not in text
    assert "omega" not in text
    assert "quote" in str(refused.value)


def test_a_program_with_such_a_url_shows_no_password(project: Project, store_url: str) -> None:
    texts = shown_by(project, with_login(store_url, "shop", "XX").replace(":XX@", f":{ODD}@"))
    assert not leaks_in(texts)
    assert "percent-encoded" in texts["program"]
    assert "percent-encoded" in texts["status"]


@pytest.mark.parametrize(
    "url",
    ["postgres//shop:{}@db/shop", "shop:{}@db", "mysql://shop:{}@db/x", "postgresql:/shop:{}@db/shop"],
)
def test_a_url_of_no_known_store_shows_no_password(url: str) -> None:
    with pytest.raises(BadUrl) as refused:
        Mainspring(url.format("alpha-omega")).jobs.count()
    assert "alpha" not in str(refused.value)
