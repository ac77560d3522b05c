"""Scripted Tritons, and everything of a gateway that watches them, in the test's own process."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from app.deadline import Deadline
from app.errors import Refusal
from app.routing.chart import read_chart
from app.routing.survey import Survey
from app.triton.budget import RetryBudget
from app.triton.client import ChannelOptions, Endpoint
from app.triton.discovery import Roster
from app.triton.pool import Batch, Observed, Pool
from app.triton.query import Texts
from tests.fakes.triton import REMARKS, FakeTriton, model
from tests.peers import eventually

SCORES = {"SCORES": ("FP32", (3,)), **REMARKS}
PROBE = b"are you well?"
ROUTES = f"""
routes:
  r: {{task: classify, targets: [{{ensemble: m}}], labels: [a, b, c], timeout_ms: {{default: 500}}, probe: {PROBE.decode()}}}
  other: {{task: classify, targets: [{{ensemble: n}}], labels: [a, b, c]}}
"""
MODELS = {"m": model("m", SCORES), "n": model("n", SCORES)}


@dataclass
class Ward:
    """`addresses` is what the name stands for."""

    fakes: tuple[FakeTriton, ...]
    file: Path
    addresses: list[str]
    roster: Roster = field(init=False)
    survey: Survey = field(init=False)
    pool: Pool = field(init=False)
    observed: list[Observed] = field(default_factory=list)
    ejections: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.roster = Roster(("dns:///triton:8001",), self.connect, self.resolve)
        self.survey = Survey(self.file, read_chart(self.file), self.roster)
        self.pool = Pool(self.roster, self.observed.append, self.survey.doubt, RetryBudget())

    def connect(self, address: str, name: str) -> Endpoint:
        return Endpoint(address, ChannelOptions(), name, lambda _, ensemble, why: self.ejections.append((ensemble, why)))

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        return self.addresses

    async def infer(self, ensemble: str = "m", seconds: float = 5) -> str:
        serving = self.survey.table.servings["r" if ensemble == "m" else "other"]
        query = Texts(serving.choose(), ("scores",), [b"x"])
        version, _ = await self.pool.infer(Batch(query, query.request("r", 1, 0)), Deadline.after(seconds))
        return version

    async def tried(self, times: int, ensemble: str = "m") -> list[str]:
        """What came of it: `ok`, or the code of the refusal."""
        answers = await asyncio.gather(*(self.infer(ensemble) for _ in range(times)), return_exceptions=True)
        assert all(isinstance(answer, (str, Refusal)) for answer in answers), answers
        return [answer.code if isinstance(answer, Refusal) else "ok" for answer in answers]

    def serving(self, ensemble: str = "m") -> list[int]:
        by_address = {fake.address: at for at, fake in enumerate(self.fakes)}
        return sorted(by_address[e.address] for e in self.roster.endpoints if ensemble in e.health.serving)

    async def becomes(self, *serving: int, ensemble: str = "m", seconds: float = 10) -> None:
        await eventually(lambda: self.serving(ensemble) == list(serving), seconds)


Open = Callable[..., Awaitable[Ward]]
