"""What a setting takes, and what it refuses before anything starts."""

import pytest
from pydantic import ValidationError

from app.settings import Settings

REDIS = [
    ("redis://h", True),
    ("redis://user:pa%40ss@h:6379/3?ssl_cert_reqs=none", True),
    ("rediss://[::1]:6379", True),
    ("unix:///run/redis.sock?db=1", True),
    ("redis+sentinel://h1,h2:26379/mymaster/0", True),
    ("rediss+sentinel://:p@h1:1/m?sentinel_password=x", True),
    ("redis+cluster://h1:1,h2:2,[::1]:3", True),
    ("rediss+cluster://h1", True),
    ("http://h", False),
    ("h:6379", False),
    ("redis+other://h", False),
    ("redis://h:0", False),
    ("redis://h:port", False),
    ("redis+cluster://h1:1,h2:x", False),
    ("", False),
]


def is_taken(**settings: object) -> bool:
    try:
        Settings(**settings)  # type: ignore[arg-type]
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize(("url", "taken"), REDIS)
def test_where_redis_is(url: str, taken: bool) -> None:
    assert is_taken(redis_url=url) is taken


@pytest.mark.parametrize(
    ("replicas", "taken"), [("auto", True), ("3", True), ("1", True), ("0", False), ("-1", False), ("many", False)]
)
def test_how_many_replicas_there_are(replicas: str, taken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONCH_REPLICAS", replicas)
    assert is_taken() is taken
    if replicas.isdecimal() and taken:
        assert Settings().replicas == int(replicas)
