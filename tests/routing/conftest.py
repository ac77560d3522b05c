"""What the tests of routing may ask for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from app.routing.probe import Prober
from app.triton import pool
from tests.fakes.triton import FakeTriton
from tests.routing.ward import MODELS, ROUTES, Open, Ward


@pytest_asyncio.fixture(loop_scope="session")
async def ward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Open]:
    """`await ward(2)`: two Tritons, of which `named` are found by the name at first."""
    monkeypatch.setattr(pool, "_PAUSE", 0.2)
    async with AsyncExitStack() as stack:

        async def open_ward(count: int, named: int | None = None) -> Ward:
            fakes = [await stack.enter_async_context(FakeTriton.serving(MODELS)) for _ in range(count)]
            file = tmp_path / "routes.yaml"
            file.write_text(ROUTES)
            ward = Ward(tuple(fakes), file, [fake.address for fake in fakes[:named]])
            await ward.roster.refresh()
            stack.push_async_callback(ward.roster.close)
            await ward.survey.look()
            watches = (ward.survey.watch(), Prober(ward.survey, ward.pool).watch(), ward.roster.watch(ward.survey.alarm))
            for task in [asyncio.create_task(watch) for watch in watches]:
                stack.push_async_callback(asyncio.wait, [task])
                stack.callback(task.cancel)
            return ward

        yield open_ward
