import pytest

from app.admission.ruling import Ruling, verdict
from app.admission.terms import DAY_US, terms_of
from app.tenancy.tenant import Quota, Tenant

NOON = 20_000 * DAY_US + DAY_US // 2


def told(quota: Quota, values: list[int], route: str = "", routes: dict[str, Quota] | None = None) -> list[str]:
    """The values of `RateLimit-Policy` and `RateLimit`, where the limits have come to such values."""
    terms = terms_of(Tenant("x", "plain", ("*",), quota, routes or {}), route)
    return [value.decode() for _, value in verdict(terms, Ruling(True, 0, NOON, values), 0).headers]


@pytest.mark.parametrize(
    ("quota", "value", "policy", "now"),
    [
        (Quota(20, 40), 0, '"requests";q=40;w=2', '"requests";r=40;t=0'),
        (Quota(20, 40), 50_000, '"requests";q=40;w=2', '"requests";r=39;t=1'),
        (Quota(20, 40), 2_000_000, '"requests";q=40;w=2', '"requests";r=0;t=1'),
        (Quota(0.1, 2), 20_000_000, '"requests";q=2;w=20', '"requests";r=0;t=10'),
        (Quota(3, 1), 333_334, '"requests";q=1;w=1', '"requests";r=0;t=1'),
        (
            Quota(characters_per_minute=200_000, characters_burst=400_000),
            120_000_000,
            '"characters";q=400000;qu="characters";w=120',
            '"characters";r=0;t=1',
        ),
        (Quota(in_flight=16), 0, '"in_flight";q=16;qu="concurrent-requests"', '"in_flight";r=16;t=0'),
        (Quota(in_flight=16), 16, '"in_flight";q=16;qu="concurrent-requests"', '"in_flight";r=0;t=1'),
        (Quota(in_flight=16), 20, '"in_flight";q=16;qu="concurrent-requests"', '"in_flight";r=0;t=1'),
        (Quota(characters_per_day=500), 499, '"daily";q=500;qu="characters";w=86400', '"daily";r=1;t=43200'),
        (Quota(characters_per_day=500), 0, '"daily";q=500;qu="characters";w=86400', '"daily";r=500;t=0'),
    ],
)
def test_each_limit_is_one_item_of_a_structured_field(quota: Quota, value: int, policy: str, now: str) -> None:
    assert told(quota, [value]) == [policy, now]


def test_the_name_of_a_route_is_written_as_structured_fields_write_strings() -> None:
    assert told(Quota(), [0], 'a"b\\é', {'a"b\\é': Quota(1, 1)}) == [
        '"a\\"b\\\\?-requests";q=1;w=1',
        '"a\\"b\\\\?-requests";r=1;t=0',
    ]


def test_several_limits_are_a_list_and_none_is_no_header() -> None:
    both = Quota(20, 40, in_flight=2)
    slots = '"in_flight";q=2;qu="concurrent-requests"', '"in_flight";r=1;t=1'
    assert told(both, [50_000, 1]) == [f'"requests";q=40;w=2, {slots[0]}', f'"requests";r=39;t=1, {slots[1]}']
    assert told(Quota(20, 40, in_flight=2, shadow=frozenset({"requests"})), [50_000, 1]) == [*slots]
    assert told(Quota(), []) == []
