"""When it is worth asking again."""

from dataclasses import dataclass
from time import monotonic

import pytest

from app.triton.health import Health, soonest


@dataclass(frozen=True)
class Case:
    """`lost` so many seconds ago; or the model is `ill`, and looked at again in so many seconds; or it is not loaded."""

    lost: float | None = None
    ill: float | None = None
    loaded: bool = True

    def health(self, now: float) -> Health:
        health = Health("a:1")
        if self.lost is not None:
            health.lose("unreachable")
            health.since = now - self.lost
            return health
        health.greet()
        health.check(frozenset({"m"} if self.loaded else ()))
        if self.ill is not None:
            health.eject("m", "step_dead", self.ill)
            health.record("m").probe_at = now + self.ill
        return health


WAITS = {
    "it was lost just now": ([Case(lost=0)], 1),
    "it was lost a while ago": ([Case(lost=12)], 12),
    "it was lost long ago": ([Case(lost=9000)], 30),
    "it is probed soon": ([Case(ill=0.1)], 1),
    "it is probed late": ([Case(ill=20)], 20),
    "one of them is probed sooner": ([Case(ill=20), Case(ill=5), Case(lost=12)], 5),
    "one of them never had it": ([Case(ill=20), Case(loaded=False)], 20),
    "nobody has it": ([Case(loaded=False)], 1),
    "there is nobody": ([], 1),
}


@pytest.mark.parametrize(("cases", "seconds"), WAITS.values(), ids=WAITS)
def test_one_should_ask_again_when_something_can_have_changed(cases: list[Case], seconds: float) -> None:
    now = monotonic()
    assert soonest([case.health(now) for case in cases], ("m",), now) == pytest.approx(seconds)
