"""How many second tries there may be."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from app.triton.budget import RetryBudget


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def granted(events: Iterable[float | str], clock: Clock, budget: RetryBudget) -> int:
    """Numbers let time pass."""
    count = 0
    for event in events:
        if isinstance(event, float):
            clock.now += event
        elif event == "call":
            budget.deposit()
        else:
            count += budget.spend()
    return count


EVENTS = st.lists(st.one_of(st.sampled_from(["call", "retry", "retry"]), st.floats(0, 20)), max_size=400)


@given(EVENTS)
def test_there_are_never_more_than_a_tenth_of_the_calls_and_the_floor(events: list[float | str]) -> None:
    clock = Clock()
    count = granted(events, clock, RetryBudget(clock=clock))
    assert count <= 10 + 0.1 * events.count("call") + clock.now + 1e-6


@given(EVENTS)
def test_whatever_came_before_a_burst_is_bounded(events: list[float | str]) -> None:
    clock = Clock()
    budget = RetryBudget(clock=clock)
    granted(events, clock, budget)
    assert granted(["retry"] * 1000, clock, budget) <= 100


@given(EVENTS)
def test_after_ten_quiet_seconds_there_are_ten_again(events: list[float | str]) -> None:
    clock = Clock()
    budget = RetryBudget(clock=clock)
    granted(events, clock, budget)
    clock.now += 10.001
    assert granted(["retry"] * 10, clock, budget) == 10


def test_a_busy_service_may_try_every_tenth_call_again_and_no_more() -> None:
    clock = Clock()
    budget = RetryBudget(clock=clock)
    granted(["retry"] * 10, clock, budget)
    assert granted(["call", "retry"] * 1000, clock, budget) in (99, 100)
