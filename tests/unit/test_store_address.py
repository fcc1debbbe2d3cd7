"""What an address says beside the URL: refused where it means nothing, and handed on whole."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.errors import InvalidOption
from mainspring.stores.connect import StoreAddress, connect_to

SQLITE = "sqlite://"
POSTGRES = "postgresql://db/shop"
REDIS = "redis://cache/0"


@pytest.mark.parametrize(
    ("url", "name", "value"),
    [
        (SQLITE, "replicas", 1),
        (POSTGRES, "replicas", 1),
        (SQLITE, "wait_fsync", True),
        (POSTGRES, "wait_fsync", True),
        (SQLITE, "listen_url", POSTGRES),
        (REDIS, "listen_url", POSTGRES),
        (SQLITE, "pooler", True),
        (REDIS, "pooler", True),
    ],
)
def test_an_option_of_another_engine_is_refused(url: str, name: str, value: Any) -> None:
    app = Mainspring(url, **{name: value})
    with pytest.raises(InvalidOption, match=f"{name}.*is not an option of"):
        _ = app.settings.address
    with pytest.raises(InvalidOption, match=f"{name}.*is not an option of"):
        connect_to(StoreAddress(url=url, **{name: value}))


@pytest.mark.parametrize(
    ("url", "given"),
    [
        (POSTGRES, {"strict": True, "listen_url": "postgresql://direct/shop", "pooler": True}),
        (REDIS, {"strict": True, "replicas": 2, "wait_fsync": True}),
    ],
)
def test_every_field_of_the_address_has_a_setting_of_its_name(url: str, given: dict[str, Any]) -> None:
    app = Mainspring(url, namespace="shop", durability="normal", **given)
    assert app.settings.address == StoreAddress(url=url, namespace="shop", durability="normal", **given)
    assert app.parts().store == app.settings.address, "the workers' too"
