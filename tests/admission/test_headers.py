import pytest

from app.admission.headers import rate_limit_headers
from app.admission.limiter import Standing


@pytest.mark.parametrize(
    ("standing", "policy", "now"),
    [
        (Standing("requests", "requests", 40, 39, 2, 1), '"requests";q=40;w=2', '"requests";r=39;t=1'),
        (
            Standing("characters", "characters", 400000, 0, 120, 7),
            '"characters";q=400000;qu="characters";w=120',
            '"characters";r=0;t=7',
        ),
        (Standing("in_flight", "in_flight", 16, 16, 0, 0), '"in_flight";q=16;qu="concurrent-requests"', '"in_flight";r=16;t=0'),
        (Standing("daily", "daily", 500, 1, 86400, 30983), '"daily";q=500;qu="characters";w=86400', '"daily";r=1;t=30983'),
        (Standing('a"b\\é-requests', "requests", 1, 1, 1, 0), '"a\\"b\\\\?-requests";q=1;w=1', '"a\\"b\\\\?-requests";r=1;t=0'),
    ],
)
def test_each_limit_is_one_item_of_a_structured_field(standing: Standing, policy: str, now: str) -> None:
    assert rate_limit_headers([standing]) == [(b"ratelimit-policy", policy.encode()), (b"ratelimit", now.encode())]


def test_several_limits_are_a_list_and_none_is_no_header() -> None:
    standings = [Standing("requests", "requests", 40, 39, 2, 1), Standing("in_flight", "in_flight", 2, 1, 0, 1)]
    assert rate_limit_headers(standings) == [
        (b"ratelimit-policy", b'"requests";q=40;w=2, "in_flight";q=2;qu="concurrent-requests"'),
        (b"ratelimit", b'"requests";r=39;t=1, "in_flight";r=1;t=1'),
    ]
    assert rate_limit_headers([]) == []
