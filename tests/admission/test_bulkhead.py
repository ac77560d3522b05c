import pytest

from app.admission.bulkhead import Bulkhead
from app.errors import Overloaded


def test_a_full_bulkhead_refuses_at_once_and_a_berth_is_free_again_after_an_error() -> None:
    bulkhead = Bulkhead("sentiment", 2, retry_after=3)
    with bulkhead.berth(), bulkhead.berth():
        assert bulkhead.taken == 2
        with pytest.raises(Overloaded) as caught, bulkhead.berth():
            pytest.fail("there was no berth left")
        assert caught.value.retry_after == 3
        assert bulkhead.taken == 2
    with pytest.raises(KeyError), bulkhead.berth():
        raise KeyError
    assert bulkhead.taken == 0


def test_a_bulkhead_without_berths_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Bulkhead("sentiment", 0)
