"""How an endpoint's deeds are remembered: what makes it suspected, what makes it hung, and when it is looked at again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.triton.record import Record


def answered(record: Record, *seconds: float, at: float = 0.0) -> None:
    for took in seconds:
        record.succeed(record.begin(at), at + took)


def given_up(record: Record, began: float, ended: float, *, late: bool = True) -> None:
    record.give_up(record.begin(began), ended, late=late)


def test_a_good_answer_ends_a_row_of_failures() -> None:
    record = Record()
    for _ in range(4):
        record.fail(record.begin(0))
    assert record.failures == 4
    answered(record, 0.01)
    assert record.failures == 0


def test_a_deadline_counts_only_where_it_was_longer_than_answers_take() -> None:
    record = Record()
    given_up(record, 0, 0.5)
    assert record.failures == 0
    given_up(record, 0, 2)
    assert record.failures == 1
    answered(record, *[3.0] * 50)
    given_up(record, 10, 12)
    assert record.failures == 0
    given_up(record, 10, 14)
    assert record.failures == 1


def test_a_caller_who_leaves_is_no_failure() -> None:
    record = Record()
    given_up(record, 0, 5, late=False)
    assert record.failures == 0


def test_what_answers_take_is_about_the_slowest_hundredth() -> None:
    record = Record()
    for at in range(100_000):
        answered(record, 0.5 if at % 100 == 0 else 0.01)
    assert 0.05 < record.slow < 0.5
    assert record.in_flight == 0


HUNG: dict[str, tuple[list[tuple[float, float]], float, bool]] = {
    # calls that were given up, when it is looked at, and whether it hangs
    "nothing was asked": ([], 100, False),
    "one late call": ([(0, 2)], 100, False),
    "late calls for less than ten seconds": ([(at, at + 2) for at in range(7)], 9, False),
    "late calls for ten seconds": ([(at, at + 2) for at in range(9)], 10, True),
    "two late calls a minute apart": ([(0, 2), (60, 62)], 62, False),
    "callers who leave at once": ([(at / 10, at / 10 + 0.1) for at in range(300)], 30, False),
}


@pytest.mark.parametrize(("calls", "now", "hung"), HUNG.values(), ids=HUNG)
@pytest.mark.parametrize("late", [True, False], ids=["deadlines", "callers who left"])
def test_an_ensemble_hangs_when_calls_are_waited_for_in_vain_for_long(
    calls: list[tuple[float, float]], now: float, hung: bool, late: bool
) -> None:
    record = Record()
    answered(record, 0.01)
    for began, ended in calls:
        given_up(record, began + 0.1, ended + 0.1, late=late)
    assert record.hung(now + 0.1) is hung


def test_a_call_that_still_waits_shows_that_it_hangs_though_none_has_ended() -> None:
    record = Record()
    record.begin(0)
    assert not record.hung(9)
    assert record.hung(10.5)


def test_one_call_that_hangs_among_good_answers_is_no_hang() -> None:
    record = Record()
    record.begin(0)
    for at in range(1, 40):
        answered(record, 0.01, at=float(at))
        assert not record.hung(at + 0.5)


def test_a_queue_that_is_full_for_ever_hangs_and_one_that_is_full_between_answers_does_not() -> None:
    wedged, busy = Record(), Record()
    for tenth in range(110):
        now = tenth / 10
        for record in (wedged, busy):
            record.shed(record.begin(now), now + 0.001)
        if tenth % 20 == 0:
            answered(busy, 0.01, at=now)
    assert wedged.hung(11)
    assert not busy.hung(11)


def test_a_slow_ensemble_is_waited_for_longer() -> None:
    record = Record()
    answered(record, *[8.0] * 10)
    record.begin(10)
    assert not record.hung(30)
    assert record.hung(10 + 24.1)


def test_probes_are_tried_more_and_more_seldom_and_half_a_minute_apart_at_most() -> None:
    record, now, pauses = Record(), 0.0, []
    for _ in range(8):
        record.eject("failed", 1.0, now)
        pauses.append(record.probe_at - now)
        now = record.probe_at
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]


def test_one_that_falls_ill_again_soon_is_not_tried_as_soon_as_before() -> None:
    record = Record()
    record.eject("failed", 1.0, 100)
    record.reinstate(101)
    record.eject("failed", 1.0, 110)
    assert record.pause == 2
    record.reinstate(112)
    record.eject("failed", 1.0, 1000)
    assert record.pause == 1


def test_another_process_at_the_same_address_starts_afresh() -> None:
    record = Record()
    for at in range(6):
        record.eject("unreachable", 1.0, at)
    record.renew(50)
    assert record.probe_at == 50
    record.eject("failed", 1.0, 50)
    assert record.pause == 1


@given(st.lists(st.tuples(st.sampled_from(["begin", "succeed", "fail", "shed", "late", "left", "close"]), st.floats(0, 15))))
def test_whatever_happens_every_call_is_accounted_for(steps: list[tuple[str, float]]) -> None:
    record, now, calls = Record(), 0.0, list[int]()
    for step, passed in steps:
        now += passed
        if step == "begin" or not calls:
            calls.append(record.begin(now))
            continue
        call = calls.pop(len(calls) // 2)
        match step:
            case "succeed":
                record.succeed(call, now)
                assert record.failures == 0
                assert not record.hung(now)
            case "fail":
                record.fail(call)
            case "shed":
                record.shed(call, now)
            case "close":
                record.close(call)
            case _:
                record.give_up(call, now, late=step == "late")
        assert record.in_flight == len(calls)
        assert record.slow >= 0
