"""Which rule adds Tritons in time: `python tests/load/scaling.py`. Poisson arrivals, batches, Conch's berths, and an autoscaler
as Kubernetes has it, on a clock of its own. docs/scaling.md draws the conclusions.
"""

import heapq
import random
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil

BATCH, FIXED, EACH = 8, 0.020, 0.0175
"""The slowest member's largest batch, and the seconds that a batch takes: so 50 texts a second. A GPU is another unit."""
MODELS = 25
"""That are loaded: the common rule takes the mean over them."""
DEPTH, PATIENCE = 2, 1.0
FIRST, MOST = 2, 10
START_SECONDS = 120.0
"""From the decision to the first answer: a pod, maybe a node, and loading the models."""
SCRAPE, WINDOW = 15.0, 60.0
SLO_SECONDS, SLO = 1.0, 0.99
CURVE = ((0, 40), (300, 40), (900, 190), (1500, 190), (1560, 280), (1860, 280), (2100, 60), (3000, 60))
"""Seconds and texts per second, joined by lines: a morning, a campaign, and the evening."""


def rate(at: float) -> float:
    for (start, low), (end, high) in pairwise(CURVE):
        if start <= at < end:
            return low + (high - low) * (at - start) / (end - start)
    return 0.0


@dataclass
class Triton:
    queue: deque[tuple[float, float]] = field(default_factory=deque)
    """When each was sent, and when its request began."""
    running: int = 0
    waited: float = 0.0
    done: int = 0
    busy: float = 0.0

    @property
    def in_flight(self) -> int:
        return len(self.queue) + self.running


@dataclass
class Totals:
    """What Prometheus reads."""

    waited: float = 0.0
    done: int = 0
    busy: float = 0.0
    berth_waited: float = 0.0
    berths_given: int = 0

    def since(self, other: "Totals") -> "Totals":
        return Totals(*(getattr(self, name) - getattr(other, name) for name in self.__dataclass_fields__))


Rule = Callable[[Totals, int], float]
"""From what was counted in a minute, and the number of Tritons: the measured value over its target."""


def member_queue(seen: Totals) -> float:
    return seen.waited / max(1, seen.done)


def shipped(seen: Totals) -> float:
    return member_queue(seen) + seen.berth_waited / max(1, seen.berths_given)


COMMON, SHIPPED = "mean queue of all models, 30 ms", "slowest member and berth, 30 ms"
RULES: dict[str, Rule] = {
    "none, 2 Tritons": lambda seen, tritons: 1.0,
    COMMON: lambda seen, tritons: member_queue(seen) / MODELS / 0.03,
    "GPU utilisation, 80 %": lambda seen, tritons: seen.busy / WINDOW / tritons / 0.8,
    SHIPPED: lambda seen, tritons: shipped(seen) / 0.03,
    "the same, 200 ms": lambda seen, tritons: shipped(seen) / 0.2,
    "slowest member alone, 200 ms": lambda seen, tritons: member_queue(seen) / 0.2,
}


class World:
    def __init__(self, rule: Rule, seed: int = 1) -> None:
        self.rule = rule
        self.chance = random.Random(seed)
        self.events: list[tuple[float, int, Callable[[float], None]]] = []
        self.order = 0
        self.tritons = [Triton() for _ in range(FIRST)]
        self.gone: list[Triton] = []
        self.coming = 0
        self.waiting: deque[float] = deque()
        self.totals = Totals()
        self.history: deque[Totals] = deque(maxlen=int(WINDOW / SCRAPE) + 1)
        self.wishes: deque[tuple[float, int]] = deque()
        self.grown_at = self.shrunk_at = -1e9
        self.good = self.asked = self.refused = 0
        self.triton_seconds = 0.0
        self.most = FIRST

    def at(self, when: float, what: Callable[[float], None]) -> None:
        self.order += 1
        heapq.heappush(self.events, (when, self.order, what))

    def run(self) -> "World":
        end = CURVE[-1][0]
        self.at(0.0, self.arrive)
        self.at(SCRAPE, self.scrape)
        while self.events and self.events[0][0] < end:
            when, _, what = heapq.heappop(self.events)
            what(when)
        return self

    def arrive(self, now: float) -> None:
        self.asked += 1
        self.waiting.append(now)
        self.admit(now)
        self.at(now + self.chance.expovariate(rate(now)), self.arrive)

    def admit(self, now: float) -> None:
        """Whoever waits gets a berth, or is told to come again."""
        while self.waiting and now - self.waiting[0] > PATIENCE:
            self.totals.berth_waited += PATIENCE
            self.totals.berths_given += 1
            self.waiting.popleft()
            self.refused += 1
        berths = DEPTH * BATCH
        while self.waiting:
            triton = min(self.tritons, key=lambda triton: triton.in_flight)
            if triton.in_flight >= berths:
                break
            began = self.waiting.popleft()
            self.totals.berth_waited += now - began
            self.totals.berths_given += 1
            triton.queue.append((now, began))
            self.begin(triton, now)

    def begin(self, triton: Triton, now: float) -> None:
        if triton.running or not triton.queue:
            return
        batch = [triton.queue.popleft() for _ in range(min(BATCH, len(triton.queue)))]
        seconds = FIXED + EACH * len(batch)
        triton.running = len(batch)
        waited = sum(now - sent for sent, _ in batch)

        def finish(now: float) -> None:
            triton.running = 0
            self.totals.waited += waited
            self.totals.done += len(batch)
            self.totals.busy += seconds
            self.good += sum(now - began <= SLO_SECONDS for _, began in batch)
            self.begin(triton, now)
            self.admit(now)

        self.at(now + seconds, finish)

    def scrape(self, now: float) -> None:
        self.triton_seconds += SCRAPE * (len(self.tritons) + self.coming)
        self.history.append(Totals(**vars(self.totals)))
        self.scale(now, self.rule(self.totals.since(self.history[0]), len(self.tritons)))
        self.at(now + SCRAPE, self.scrape)

    def scale(self, now: float, ratio: float) -> None:
        """As an HPA does: not for a tenth; at most twice as many in 3 minutes; one less in 2 minutes, if 10 minutes long."""
        there = len(self.tritons) + self.coming
        wish = there if abs(ratio - 1) <= 0.1 else ceil(len(self.tritons) * ratio)
        wish = min(MOST, max(FIRST, wish))
        self.wishes.append((now, wish))
        while self.wishes[0][0] < now - 600:
            self.wishes.popleft()
        if wish > there and now - self.grown_at >= 180:
            more = min(wish - there, max(2, there))
            self.grown_at = now
            self.coming += more
            self.most = max(self.most, there + more)
            self.at(now + START_SECONDS, lambda now: self.join(more, now))
        elif max(count for _, count in self.wishes) < there and not self.coming and now - self.shrunk_at >= 120:
            self.shrunk_at = now
            self.tritons.pop()  # what it had begun it ends

    def join(self, more: int, now: float) -> None:
        self.coming -= more
        self.tritons += [Triton() for _ in range(more)]
        self.admit(now)


def row(name: str, world: World) -> str:
    hours = world.triton_seconds / 3600
    return f"{name:<34}{world.good / world.asked:>9.2%}{world.refused / world.asked:>9.2%}{world.most:>6}{hours:>14.1f}"


def main() -> int:
    print(f"{'scaled by':<34}{'in time':>9}{'refused':>9}{'most':>6}{'Triton-hours':>14}")
    for name, rule in RULES.items():
        print(row(name, World(rule).run()))
    print(f"\nin time: within {SLO_SECONDS:g} s; the objective is {SLO:.0%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
