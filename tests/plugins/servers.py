"""Pytest plugin: one PostgreSQL and one Valkey per test run, a private database per xdist worker.

The process that runs the tests owns the servers and ends them; workers only ask for their URLs.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
import redis

from mainspring.stores.postgres.driver import roles
from mainspring.stores.redis.driver import acl
from mainspring.testing import servers

OWNER = "MAINSPRING_TEST_OWNER"
_ours = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    if OWNER not in os.environ:
        os.environ[OWNER] = str(os.getpid())
        config.stash[_ours] = True
        servers.sweep()


def pytest_unconfigure(config: pytest.Config) -> None:
    if config.stash.get(_ours, False):
        servers.end(os.getpid())
        del os.environ[OWNER]


@pytest.fixture(scope="session")
def postgres_owner_url(worker_id: str) -> Iterator[str]:
    """A database of this xdist worker in the run's PostgreSQL, for the role that creates the schemas."""
    with servers.private_database("postgres", servers.shared("postgres"), _number(worker_id)) as url:
        yield url


@pytest.fixture(scope="session")
def postgres_url(postgres_owner_url: str) -> Iterator[str]:
    """The same database, for a role that has the rights of the shipped script in every schema that its owner makes."""
    role, password = f"mainspring_app_{os.getpid()}", secrets.token_hex(8)
    parts = urlsplit(postgres_owner_url)
    with psycopg.connect(postgres_owner_url, autocommit=True) as owner:
        rights = roles.grants_script("public", owner="current_user", app=role).replace(" in schema public", "")
        owner.execute(f"create role {role} login password '{password}'".encode())
        owner.execute(rights.encode())
        owner.execute(f"alter default privileges grant usage on schemas to {role}".encode())
    yield urlunsplit(parts._replace(netloc=f"{role}:{password}@{parts.netloc.rpartition('@')[2]}"))
    with psycopg.connect(postgres_owner_url, autocommit=True) as owner:
        owner.execute(f"drop owned by {role}; drop role {role}".encode())


@pytest.fixture(scope="session")
def redis_owner_url(worker_id: str) -> Iterator[str]:
    """A numbered database of this xdist worker in the run's Valkey, for a user with all rights."""
    with servers.private_database("redis", servers.shared("redis"), _number(worker_id)) as url:
        yield url


@pytest.fixture(scope="session")
def redis_url(redis_owner_url: str) -> Iterator[str]:
    """The same database, for a user who may do what the ACL line of the engine allows, in any namespace."""
    user, password = f"mainspring-{os.getpid()}", secrets.token_hex(8)
    parts = urlsplit(redis_owner_url)
    with redis.Redis.from_url(redis_owner_url) as owner:
        owner.execute_command("ACL", "SETUSER", user, "reset", "on", f">{password}", *acl.rules("*"))
        yield urlunsplit(parts._replace(netloc=f"{user}:{password}@{parts.netloc.rpartition('@')[2]}"))
        owner.execute_command("ACL", "DELUSER", user)


def _number(worker_id: str) -> int:
    return 0 if worker_id == "master" else int(worker_id.removeprefix("gw"))
