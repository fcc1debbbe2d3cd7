"""The address of the server and the first commands of a connection, read from the URL.

``redis://user:password@host:port/database``, ``valkey://`` the same, ``rediss://`` with TLS, ``unix:///path?db=1``.
Options of the query: ``db``, and for TLS ``ssl_ca_certs``, ``ssl_certfile``, ``ssl_keyfile``, ``ssl_cert_reqs`` and
``ssl_check_hostname``, with the meaning that redis-py gives them.
"""

from __future__ import annotations

import ssl
from ipaddress import ip_address
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from mainspring.errors import BadUrl, did_you_mean

PORT: Final = 6379
NAME: Final = "mainspring"

_SCHEMES = ("redis", "valkey", "rediss", "unix")
_TLS_OPTIONS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")
_CHECKS = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class RedisAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a connection needs. ``path`` is the path of a Unix socket, or empty."""

    host: str = "localhost"
    port: int = PORT
    path: str = ""
    db: int = 0
    username: str = ""
    password: str = ""
    tls: dict[str, str] | None = None
    """The TLS options, or None for a connection without TLS."""

    @property
    def is_local(self) -> bool:
        """Whether the traffic stays on this machine."""
        if self.path or self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    def greeting(self) -> list[tuple[str | int, ...]]:
        """The first commands of a new connection. SETNAME gives it a name for people who read CLIENT LIST."""
        words: list[tuple[str | int, ...]] = []
        if self.username:
            words.append(("AUTH", self.username, self.password))
        elif self.password:
            words.append(("AUTH", self.password))
        if self.db:
            words.append(("SELECT", self.db))
        return [*words, ("CLIENT", "SETNAME", NAME)]

    def context(self) -> ssl.SSLContext | None:
        """The TLS context, or None. It checks the certificate and the name of the server unless the URL turns that
        off."""
        if self.tls is None:
            return None
        context = ssl.create_default_context(cafile=self.tls.get("ssl_ca_certs"))
        checks = _CHECKS[self.tls.get("ssl_cert_reqs", "required")]
        context.check_hostname = _FLAGS[self.tls.get("ssl_check_hostname", "true")] and checks is ssl.CERT_REQUIRED
        context.verify_mode = checks
        if "ssl_certfile" in self.tls:
            context.load_cert_chain(self.tls["ssl_certfile"], self.tls.get("ssl_keyfile"))
        return context


def parse(url: str) -> RedisAddress:
    """The address in a URL. Raises ``BadUrl`` for a URL that cannot be read, and for an option that is not known."""
    try:
        parts = urlsplit(url)
    except ValueError:  # its text may show the password
        raise BadUrl(url, "cannot be read", hint="redis://user:password@host:6379/0") from None
    if parts.scheme not in _SCHEMES:
        raise BadUrl(url, f"begins with {parts.scheme!r}", hint=f"Use one of {', '.join(_SCHEMES)}.")
    if parts.fragment:
        raise BadUrl(url, f"has the fragment {parts.fragment!r}, which has no meaning", hint="redis://host:6379/0")
    tls: dict[str, str] | None = {} if parts.scheme == "rediss" else None
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    database = _database(url, options.pop("db", ""), "" if parts.scheme == "unix" else parts.path.strip("/"))
    if tls is not None:
        tls.update({name: options.pop(name) for name in _TLS_OPTIONS if name in options})
        _check_tls(url, tls)
    if options:
        known, name = ("db", *_TLS_OPTIONS) if tls is not None else ("db",), min(options)
        raise BadUrl(
            url,
            f"has the unknown parameter {name!r}{did_you_mean(name, known)}",
            hint=f"Known parameters of {parts.scheme}://: {', '.join(known)}.",
        )
    try:
        port = parts.port
    except ValueError:
        raise BadUrl(url, "names a port that is not a number", hint="redis://host:6379/0") from None
    if parts.scheme == "unix" and (not parts.path or parts.hostname):
        raise BadUrl(url, "names no socket", hint="Write unix:///path/of/the.sock (three slashes).")
    return RedisAddress(
        host=unquote(parts.hostname or "localhost"),
        port=port or PORT,
        path=unquote(parts.path) if parts.scheme == "unix" else "",
        db=int(database or 0),
        username=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        tls=tls,
    )


def _database(url: str, parameter: str, path: str) -> str:
    """The number of the database, which the path or the parameter ``db`` names."""
    if parameter and path and parameter != path:
        raise BadUrl(url, f"names two databases: /{path} and db={parameter}", hint="redis://host:6379/0")
    found = parameter or path
    if found and not (found.isascii() and found.isdecimal()):
        raise BadUrl(url, "names a database that is not a number", hint="redis://host:6379/0")
    return found


def _check_tls(url: str, options: dict[str, str]) -> None:
    for name, allowed in (("ssl_cert_reqs", _CHECKS), ("ssl_check_hostname", _FLAGS)):
        if name in options and options[name].lower() not in allowed:
            raise BadUrl(url, f"has an unknown value of {name}", hint=f"Use one of {', '.join(allowed)}.")
        if name in options:
            options[name] = options[name].lower()
    if "ssl_keyfile" in options and "ssl_certfile" not in options:
        raise BadUrl(url, "has an ssl_keyfile without an ssl_certfile")
