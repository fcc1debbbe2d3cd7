"""Hide secrets in logs, errors, job records and settings.

Four things are hidden: passwords in URLs and after names that look secret (``password=...``, ``"api_key": "..."``,
``Authorization: ...``); values under names that look secret or are declared as sensitive; values that this process
has seen as secrets; and, in the texts of a running job, the values of its secret arguments. Of arguments that are
shown, passwords in URLs are hidden too. When in doubt, a value is hidden.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Protocol

from mainspring.common.current import current
from mainspring.errors import passwords_in, shown

HIDDEN = "***"
SHORTEST = 6
"""The minimum length of a value to search for in any text: shorter values occur by chance. Values below this length
are searched as whole words, and only where the caller asks for them."""
SHORTEST_WORD = 3
"""The minimum length of a value that is searched as a whole word, in the texts of its own job."""
KNOWN_LIMIT = 1_000
"""The maximum number of values to search for; the newest are kept."""
DEPTH = 100
"""The number of levels of a container that are searched; deeper values are hidden."""

_WORDS = (
    r"passwords?|passwd|passphrase|pwd|secrets?|token|api[_-]?keys?|authorization|cookies?|credentials?"
    r"|private[_-]?keys?|access[_-]?keys?"
)
_HINTS = (
    *("passw", "passphrase", "pwd", "secret", "token", "authorization", "cookie", "credential", "bearer"),
    *(f"{word}{join}key" for word in ("api", "private", "access") for join in ("", "_", "-")),
)
# Not compiled here: a program that only declares tasks needs none of them.
_NAME = rf"(?:^|_)(?:{_WORDS})(?:_|$)"
_URL = r"(\b[A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s:/@\"'<>]{0,200}):[^\s\"'<>]{1,1000}@"
_QUERY = rf"(?i)([?&](?:[\w-]{{0,30}}[_-])?(?:{_WORDS})=)[^&#\s\"'<>]+"
_COOKIE = r"(?i)(\b(?:set-)?cookie:\s{0,3})[^\r\n]+"
_BEARER = r"(?i)(\bbearer\s{1,3})[A-Za-z0-9._~+/=-]{8,}"
_PAIR = rf"""(?ix)
    ( (?:{_WORDS}) (?:[_-][\w-]{{0,30}})? ["']? \s{{0,3}} [=:] \s{{0,3}} )
    ( "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | (?:bearer|basic|digest|token)\s+[^\s,;]+ | [^\s,;&)\]}}"']+ )
    """

_known: dict[str, None] = {}


class JobWithSecrets(Protocol):
    """The running job, as this module sees it."""

    @property
    def secrets(self) -> Sequence[str]:
        """The values to hide in the texts of this job, in each form: see :func:`secrets_in`."""
        ...


def remember(value: Any, *, shortest: int = SHORTEST) -> None:
    """Hide this value from now on wherever :func:`redact` finds it; for a container, each text in it."""
    for form in _forms_of(value, shortest):
        _known.pop(form, None)
        _known[form] = None
    while len(_known) > KNOWN_LIMIT:
        with suppress(RuntimeError, StopIteration):  # another thread has removed it
            _known.pop(next(iter(_known)), None)


def remember_url(url: str) -> None:
    """Hide the password of this URL, also outside of the URL, unless it equals a public part such as the user name.

    The password is hidden as it is written in the URL, and decoded.
    """
    from urllib.parse import unquote

    for written in passwords_in(url):
        if url.count(written) == 1:
            remember([written, unquote(written)])


def secrets_in(mapping: Mapping[str, Any], names: Iterable[str] = ()) -> tuple[str, ...]:
    """The texts under ``names`` and under names that look secret, at any depth, in each form that text can show them.

    >>> secrets_in({"to": "ann", "login": {"password": "hunter2"}})
    ('hunter2',)
    """
    found = list(_under(mapping, frozenset(names), DEPTH))
    return tuple(dict.fromkeys(_forms_of(found, SHORTEST_WORD))) if found else ()


def redact(text: str, job: JobWithSecrets | None = None) -> str:
    """The text with ``***`` for everything that is, or looks like, a secret.

    ``job`` is the job that the text belongs to, for texts that are made outside of its run.

    >>> redact("cannot reach postgresql://shop:hunter2@db/shop, token=abc123")
    'cannot reach postgresql://shop:***@db/shop, token=***'
    """
    here: JobWithSecrets | None = current.get(job)
    own = here.secrets if here is not None else ()
    if _known or own:
        text = _without((*tuple(_known), *own), text)  # together: a value of one may contain a value of the other
    if "://" in text:
        text = re.sub(_URL, rf"\1:{HIDDEN}@", text)
    small = text.lower()
    if any(hint in small for hint in _HINTS):  # most text has no secret; this test is faster than the patterns
        text = re.sub(_PAIR, _pair, text)
        text = re.sub(_COOKIE, rf"\1{HIDDEN}", text)
        text = re.sub(_BEARER, rf"\1{HIDDEN}", text)
    return text


def mask_urls(text: str) -> str:
    """The text with ``***`` for passwords in its URLs, and for values of their parameters with secret names.

    >>> mask_urls("copy postgresql://shop:hunter2@db/shop to https://backup/in?token=abc&day=1")
    'copy postgresql://shop:***@db/shop to https://backup/in?token=***&day=1'
    """
    if "://" not in text:
        return text
    return re.sub(_QUERY, rf"\1{HIDDEN}", re.sub(_URL, rf"\1:{HIDDEN}@", text))


def redact_in(value: Any, job: JobWithSecrets | None = None) -> Any:
    """A copy of plain JSON data with secrets in texts, and values under names that look secret, hidden.

    >>> redact_in({"step": "token=abc123", "apiKey": "k"})
    {'step': 'token=***', 'apiKey': '***'}
    """
    if isinstance(value, str):
        return redact(value, job)
    if isinstance(value, Mapping):
        return {
            redact(name, job): HIDDEN if looks_secret(name) else redact_in(item, job) for name, item in value.items()
        }
    if isinstance(value, list):
        return [redact_in(item, job) for item in value]
    if isinstance(value, int | float) and not isinstance(value, bool) and redact(str(value), job) == HIDDEN:
        return HIDDEN
    return value


def hide(mapping: Mapping[str, Any], names: Iterable[str] = ()) -> dict[str, Any]:
    """A copy with ``***`` for the values under ``names`` and under names that look secret, at any depth.

    Passwords in URLs are hidden in every text.

    >>> hide({"to": "ann", "card": "4111", "login": {"apiKey": "k"}}, ["card"])
    {'to': 'ann', 'card': '***', 'login': {'apiKey': '***'}}
    """
    wanted = frozenset(names)
    return {name: _hidden(name, value, wanted, DEPTH) for name, value in mapping.items()}


def spelled(mapping: Mapping[str, Any], names: Iterable[str] = ()) -> str:
    """``name=value, ...`` for a message, with values hidden as by :func:`hide`."""
    found = hide(mapping, names).items()
    return ", ".join(f"{name}={HIDDEN if value is HIDDEN else shown(value)}" for name, value in found)


@lru_cache(maxsize=4096)
def looks_secret(name: str) -> bool:
    """Whether a field with this name probably contains a secret: ``password``, ``DB_TOKEN``, ``apiKey``.

    >>> looks_secret("DB_TOKEN"), looks_secret("max_tokens")
    (True, False)
    """
    parts = re.sub(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return re.search(_NAME, parts.lower()) is not None


def _pair(found: re.Match[str]) -> str:
    quoted = found[2][0] if found[2][0] in "\"'" else ""
    return f"{found[1]}{quoted}{HIDDEN}{quoted}"


def _hidden(name: Any, value: Any, names: frozenset[str], depth: int) -> Any:
    if isinstance(name, str) and (name in names or looks_secret(name)):
        return HIDDEN
    return _inside(value, names, depth - 1)


def _inside(value: Any, names: frozenset[str], depth: int) -> Any:
    if depth < 0:
        return HIDDEN
    if isinstance(value, Mapping):
        return {name: _hidden(name, item, names, depth) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_inside(item, names, depth - 1) for item in value]
    return mask_urls(value) if isinstance(value, str) else value


def _without(values: Iterable[str], text: str) -> str:
    for value in sorted((value for value in values if value in text), key=len, reverse=True):
        if len(value) >= SHORTEST:
            text = text.replace(value, HIDDEN)
        else:
            text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", HIDDEN, text)
    return text


def _under(value: Any, names: frozenset[str], depth: int) -> Iterator[Any]:
    if depth < 0:
        return
    if isinstance(value, Mapping):
        for name, item in value.items():
            if isinstance(name, str) and (name in names or looks_secret(name)):
                yield item
            else:
                yield from _under(item, names, depth - 1)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _under(item, names, depth - 1)
    elif isinstance(value, str) and "://" in value:
        yield from _url_secrets(value)


def _url_secrets(text: str) -> Iterator[str]:
    """The secrets that :func:`mask_urls` hides, as they are written and decoded."""
    from urllib.parse import unquote

    for pattern in (_URL, _QUERY):
        for found in re.finditer(pattern, text):
            written = found[0][len(found[1]) :].removeprefix(":").removesuffix("@")
            yield from dict.fromkeys((written, unquote(written)))


def _forms_of(value: Any, shortest: int) -> Iterator[str]:
    for text in _texts(value, 8):
        if len(text) >= shortest:
            yield from (text,) if text.isascii() and text.isalnum() else _forms(text)


def _forms(text: str) -> set[str]:
    """The text itself, its forms inside a repr (of bytes too), JSON and a URL, and each of its lines: text may be
    indented."""
    import json
    from urllib.parse import quote

    lines = [line for each in text.splitlines() if len(line := each.strip()) >= SHORTEST] if "\n" in text else ()
    raw = text.encode("utf-8", "surrogatepass")
    return {text, repr(text)[1:-1], repr(raw)[2:-1], json.dumps(text)[1:-1], quote(raw, safe=""), *lines}


def _texts(value: Any, depth: int) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, bytes | bytearray):
        return [value.decode("utf-8", "replace")]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return [str(value)]
    if depth and isinstance(value, Mapping):
        return [text for item in value.values() for text in _texts(item, depth - 1)]
    if depth and isinstance(value, list | tuple | set | frozenset):
        return [text for item in value for text in _texts(item, depth - 1)]
    return []
