"""The server of a URL, and the same URL through a proxy."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from mainspring.errors import BadUrl
from mainspring.stores.connect import engine_of

_PORTS = {"postgres": 5432, "redis": 6379}


class Endpoint(NamedTuple):
    """Host and port, or the path of a socket."""

    host: str
    port: int
    path: str = ""


def target_of(url: str) -> Endpoint:
    """The server of a URL."""
    parts, asked = urlsplit(url), dict(parse_qsl(urlsplit(url).query))
    engine = engine_of(url)
    if engine == "sqlite":
        raise BadUrl(url, "names a file: there is no wire", hint="Give the URL of a server.")
    if parts.scheme == "rediss" or asked.get("sslmode", "").startswith("verify"):
        raise BadUrl(url, "is encrypted: a proxy cannot replace its server", hint="Use a server without TLS.")
    if parts.scheme == "unix":
        return Endpoint("", 0, parts.path)
    port = int(asked.get("port") or parts.port or _PORTS[engine])
    host = asked.get("host") or parts.hostname or "127.0.0.1"
    if "," in host:
        raise BadUrl(url, "names more than one server", hint="Give each its own proxy.")
    return Endpoint("", 0, f"{host}/.s.PGSQL.{port}") if host.startswith("/") else Endpoint(host, port)


def by_way_of(url: str, port: int) -> str:
    """The URL with another server: this port of the loopback interface."""
    parts = urlsplit(url)
    asked = [(name, value) for name, value in parse_qsl(parts.query) if name not in ("host", "port", "db")]
    login, at, _ = parts.netloc.rpartition("@")
    moved = parts._replace(netloc=f"{login}{at}127.0.0.1:{port}", query=urlencode(asked))
    if parts.scheme == "unix":
        moved = moved._replace(scheme="redis", path="/" + dict(parse_qsl(parts.query)).get("db", "0"))
    return urlunsplit(moved)
