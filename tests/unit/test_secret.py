"""A Secret is never shown, and passes through the codec as the value it holds."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest

from mainspring import Secret
from mainspring.codec import Signature, encode_result
from mainspring.common.redact import redact
from mainspring.errors import ArgumentNotSerializable, WrongArgument

CANARY = "canary-9f2c-41"


@dataclass
class Login:
    user: str
    token: Secret[str]


def nested(login: Login, keys: list[Secret[bytes]], day: Secret[date] | None = None) -> Secret[str]:
    raise NotImplementedError


@pytest.mark.parametrize("shown", [repr, str, format, "{:>5}".format, "%s".__mod__, lambda s: str([s, {1: s}])])
def test_a_secret_is_shown_as_stars(shown: Any) -> None:
    assert CANARY not in shown(Secret(CANARY))
    assert "***" in shown(Secret(CANARY))


def test_reveal_returns_the_value() -> None:
    assert Secret(CANARY).reveal() == CANARY


def test_secrets_are_equal_by_value_and_never_equal_to_a_plain_value() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a")}) == 1


def test_a_secret_can_be_copied_and_pickled_and_not_changed() -> None:
    secret = Secret({"a": [CANARY]})
    assert pickle.loads(pickle.dumps(secret)) == copy.deepcopy(secret) == secret
    with pytest.raises(AttributeError):
        secret.value = 1


def test_the_payload_holds_the_plain_value_and_the_worker_gets_a_secret() -> None:
    signature = Signature.of(nested)
    sent = (Login("ann", Secret(CANARY)), [Secret(b"12345678")], Secret(date(2030, 1, 1)))
    data = signature.encode_call(sent, {})
    assert data == b'{"login":{"user":"ann","token":"canary-9f2c-41"},"keys":["MTIzNDU2Nzg="],"day":"2030-01-01"}'
    assert signature.decode_call(data) == (sent, {})


def test_parameters_that_hold_a_secret_are_found() -> None:
    def fn(plain: str, bare: Secret, deep: dict[str, Login | None]) -> None: ...  # type: ignore[type-arg]  # bare is allowed

    assert Signature.of(fn).secrets == ("bare", "deep")
    assert Signature.of(nested).secrets == ("login", "keys", "day")


def test_a_plain_value_is_accepted_for_a_secret() -> None:
    """So a command line or another language can call the task."""

    def fn(token: Secret[str]) -> None: ...

    assert Signature.of(fn).encode_call((CANARY,), {}) == b'{"token":"canary-9f2c-41"}'


def test_the_value_of_a_secret_is_checked_and_no_error_shows_it() -> None:
    def fn(number: Secret[int], anything: Any = None) -> None: ...

    signature = Signature.of(fn)
    with pytest.raises(WrongArgument, match="expected int, got str") as wrong:
        signature.encode_call((Secret(CANARY),), {})
    with pytest.raises(ArgumentNotSerializable, match=r"anything: Secret") as lost:
        signature.encode_call((Secret(1), Secret(CANARY)), {})
    assert CANARY not in f"{wrong.value}{lost.value}"


def test_a_result_can_be_a_secret() -> None:
    signature = Signature.of(nested)
    data, note = signature.encode_result(Secret(CANARY))
    assert (data, note) == (b'"canary-9f2c-41"', None)
    assert signature.decode_result(b'"canary-9f2c-41"') == Secret(CANARY)


def test_an_undeclared_secret_result_is_refused_without_showing_it() -> None:
    data, note = encode_result(Secret(CANARY))
    assert data is None
    assert CANARY not in str(note)


def test_the_value_of_a_secret_is_redacted_from_then_on() -> None:
    """Also when it is only decoded, as in a worker."""
    value = "decoded-canary-7781"
    assert value in redact(f"the value is {value}")
    Signature.of(nested).decode_call(b'{"login":{"user":"u","token":"%b"},"keys":[]}' % value.encode())
    assert redact(f"the value is {value}") == "the value is ***"
