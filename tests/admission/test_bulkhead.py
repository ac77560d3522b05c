"""The bulkhead on a real event loop; its times are the loop's."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from app.admission.bulkhead import Bulkhead
from app.deadline import Deadline
from app.errors import ClientClosed, DeadlineExceeded, Overloaded


def soon() -> Deadline:
    return Deadline.after(5)


class Guest:
    """Holds a berth until it is told to leave."""

    def __init__(self, bulkhead: Bulkhead, priority: int = 2, deadline: Deadline | None = None) -> None:
        self.inside = asyncio.Event()
        self.leave = asyncio.Event()
        self.task = asyncio.create_task(self._stay(bulkhead, priority, deadline or soon()))

    async def _stay(self, bulkhead: Bulkhead, priority: int, deadline: Deadline) -> None:
        async with bulkhead.berth(priority, deadline):
            self.inside.set()
            await self.leave.wait()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_berth_is_free_again_whatever_happens_inside() -> None:
    bulkhead = Bulkhead("b", 2)
    with suppress(KeyError):
        async with bulkhead.berth(2, soon()), bulkhead.berth(2, soon()):
            assert bulkhead.taken == 2
            raise KeyError
    assert bulkhead.taken == 0


async def test_what_fails_at_once_tells_nothing_of_how_long_an_answer_takes() -> None:
    bulkhead = Bulkhead("b", 1)
    async with bulkhead.berth(2, soon()):
        await asyncio.sleep(0.02)
    service = bulkhead.service
    assert service >= 0.02
    for _ in range(20):
        with suppress(KeyError):
            async with bulkhead.berth(2, soon()):
                raise KeyError
    assert bulkhead.service == service
    async with bulkhead.berth(2, soon()):
        pass
    assert bulkhead.service < service


async def test_who_finds_no_berth_waits_for_one_and_gets_it() -> None:
    bulkhead = Bulkhead("b", 1)
    first, second = Guest(bulkhead), Guest(bulkhead)
    await settle()
    assert (first.inside.is_set(), second.inside.is_set(), bulkhead.waiting) == (True, False, 1)
    first.leave.set()
    await settle()
    assert second.inside.is_set()
    second.leave.set()
    await second.task
    assert (bulkhead.taken, bulkhead.waiting) == (0, 0)


async def test_patience_ends_in_a_refusal_that_says_when_to_come_back() -> None:
    bulkhead = Bulkhead("b", 1, patience=0.01)
    guest = Guest(bulkhead)
    await settle()
    with pytest.raises(Overloaded) as refused:
        async with bulkhead.berth(2, soon()):
            pytest.fail("there was no berth")
    assert refused.value.retry_after == 1
    guest.leave.set()
    await guest.task
    assert (bulkhead.taken, bulkhead.waiting) == (0, 0)


async def test_the_queue_holds_as_many_as_there_are_berths_and_refuses_more_at_once() -> None:
    bulkhead = Bulkhead("b", 2)
    guests = [Guest(bulkhead) for _ in range(4)]
    await settle()
    with pytest.raises(Overloaded):
        await bulkhead.take(2, soon())
    assert bulkhead.waiting == 2
    for guest in guests:
        guest.leave.set()
    await asyncio.gather(*(guest.task for guest in guests))
    assert (bulkhead.taken, bulkhead.waiting) == (0, 0)


async def test_the_queue_is_as_long_as_can_be_served_in_the_time_that_one_waits() -> None:
    bulkhead = Bulkhead("b", 1, patience=0.5)
    bulkhead.service = 0.1
    guests = [Guest(bulkhead) for _ in range(1 + 5)]
    await settle()
    assert bulkhead.waiting == 5
    with pytest.raises(Overloaded):
        await bulkhead.take(2, soon())
    for guest in guests:
        guest.leave.set()
    await asyncio.gather(*(guest.task for guest in guests))


async def test_a_full_queue_sends_the_lowest_priority_away_for_a_higher_one_and_never_the_other_way_round() -> None:
    bulkhead = Bulkhead("b", 1)
    holder = Guest(bulkhead)
    await settle()
    low = Guest(bulkhead, priority=3)
    await settle()
    high = Guest(bulkhead, priority=1)
    await settle()
    with pytest.raises(Overloaded):
        await low.task
    with pytest.raises(Overloaded):
        await bulkhead.take(3, soon())
    holder.leave.set()
    await settle()
    assert high.inside.is_set()
    high.leave.set()
    await high.task
    assert (bulkhead.taken, bulkhead.waiting) == (0, 0)


async def test_the_higher_priority_goes_first_and_equals_in_the_order_they_came() -> None:
    bulkhead = Bulkhead("b", 4)
    holders = [Guest(bulkhead) for _ in range(4)]
    await settle()
    order: list[str] = []

    async def visit(name: str, priority: int) -> None:
        async with bulkhead.berth(priority, soon()):
            order.append(name)

    visits = [asyncio.create_task(visit(name, priority)) for name, priority in (("c", 3), ("b1", 2), ("b2", 2), ("a", 1))]
    await settle()
    holders[0].leave.set()
    await asyncio.gather(*visits)
    assert order == ["a", "b1", "b2", "c"]
    for holder in holders:
        holder.leave.set()
    await asyncio.gather(*(holder.task for holder in holders))


async def test_nearly_all_who_were_refused_at_once_and_come_again_as_told_are_served_then() -> None:
    bulkhead = Bulkhead("b", 1)
    bulkhead.service = 0.1

    async def tries() -> int:
        for count in range(1, 30):
            try:
                async with bulkhead.berth(2, Deadline.after(30)):
                    await asyncio.sleep(0.1)
                    return count
            except Overloaded as refusal:
                await asyncio.sleep(refusal.retry_after or 0)
        raise AssertionError("refused again and again")

    counts = await asyncio.gather(*(tries() for _ in range(30)))
    assert len([count for count in counts if count <= 2]) >= 25, "10 of a second are served, so that 10 may come again in one"


async def test_who_is_refused_is_sent_behind_those_refused_before_of_no_lower_priority_for_a_while_at_most() -> None:
    bulkhead = Bulkhead("b", 1, patience=0)
    bulkhead.service = 2.0
    guest = Guest(bulkhead)
    await settle()

    async def told(priority: int) -> int:
        with pytest.raises(Overloaded) as refused:
            await bulkhead.take(priority, soon())
        return refused.value.retry_after or 0

    assert [await told(priority) for priority in (2, 2, 3, 2, 1)] == [2, 4, 6, 6, 2]
    assert max([await told(2) for _ in range(100)]) == 10 + 2
    guest.leave.set()
    await guest.task


async def test_berths_that_are_more_or_fewer_than_before_count_for_those_in_line() -> None:
    bulkhead = Bulkhead("b", 2)
    guests = [Guest(bulkhead) for _ in range(4)]
    await settle()
    bulkhead.berths = 3
    guests.append(Guest(bulkhead))
    await settle()
    assert [guest.inside.is_set() for guest in guests] == [True, True, True, False, False]
    bulkhead.berths = 1
    for guest in guests[:2]:
        guest.leave.set()
    await settle()
    assert (bulkhead.taken, bulkhead.waiting) == (1, 2)
    for guest in guests:
        guest.leave.set()
    await asyncio.gather(*(guest.task for guest in guests))
    assert (bulkhead.taken, bulkhead.waiting) == (0, 0)


async def test_nobody_waits_into_the_time_that_the_call_itself_needs() -> None:
    bulkhead = Bulkhead("b", 1)
    bulkhead.service = 2.0
    guest = Guest(bulkhead)
    await settle()
    with pytest.raises(Overloaded) as refused:
        await bulkhead.take(2, Deadline.after(1))
    assert refused.value.retry_after == 2
    guest.leave.set()
    await guest.task


async def cancelled() -> None:
    raise asyncio.CancelledError


async def left() -> None:
    raise ClientClosed("left")


async def late() -> None:
    raise DeadlineExceeded("late")


@pytest.mark.parametrize("abandon", [cancelled, left, late])
async def test_an_abandoned_call_holds_its_berth_until_it_would_have_ended(
    abandon: Callable[[], Awaitable[None]],
) -> None:
    bulkhead = Bulkhead("b", 1)
    bulkhead.service = 0.05
    with suppress(asyncio.CancelledError, ClientClosed, DeadlineExceeded):
        async with bulkhead.berth(2, soon()):
            await abandon()
    assert bulkhead.taken == 1
    async with bulkhead.berth(2, soon()):
        assert bulkhead.taken == 1
    assert bulkhead.taken == 0


async def test_a_waiter_who_leaves_takes_no_berth_along() -> None:
    bulkhead = Bulkhead("b", 1)
    guest = Guest(bulkhead)
    await settle()
    waiter = Guest(bulkhead)
    await settle()
    waiter.task.cancel()
    with suppress(asyncio.CancelledError):
        await waiter.task
    guest.leave.set()
    await guest.task
    assert (bulkhead.taken, bulkhead.waiting) == (0, 0)


async def test_a_storm_of_short_visits_and_cancellations_loses_no_berth() -> None:
    bulkhead = Bulkhead("b", 5, patience=0.005)

    async def visit(at: int) -> None:
        with suppress(Overloaded):
            async with bulkhead.berth(at % 3, soon()):
                await asyncio.sleep(0.0001 * (at % 7))

    tasks = [asyncio.create_task(visit(at)) for at in range(2_000)]
    await settle()
    for task in tasks[::3]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(bulkhead.service * 2)
    assert (bulkhead.taken, bulkhead.waiting) == (0, 0)


def test_a_bulkhead_without_berths_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Bulkhead("b", 0)
