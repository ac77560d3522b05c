"""Which Tritons there are, while names change what they stand for."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import pytest
import pytest_asyncio

from app.deadline import Deadline
from app.triton.client import ChannelOptions, Endpoint
from app.triton.discovery import Resolve, Roster, Target, resolved
from tests.fakes.triton import FakeTriton, never
from tests.gateway.stage import staged_models


@dataclass
class Names:
    """A name server."""

    addresses: list[str] | OSError = field(default_factory=list)
    asked: list[tuple[str, int]] = field(default_factory=list)

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.asked.append((host, port))
        if isinstance(self.addresses, OSError):
            raise self.addresses
        return self.addresses


def roster_of(*targets: str, resolve: Resolve) -> Roster:
    return Roster(targets, lambda address, name: Endpoint(address, ChannelOptions(), name), resolve)


def addresses(roster: Roster) -> list[str]:
    return [endpoint.address for endpoint in roster.endpoints]


@pytest_asyncio.fixture(loop_scope="session")
async def names() -> AsyncIterator[Names]:
    yield Names()


async def test_a_name_stands_for_all_its_addresses_and_an_address_for_itself(names: Names) -> None:
    names.addresses = ["10.0.0.2:8001", "10.0.0.1:8001", "10.0.0.2:8001"]
    roster = roster_of("dns:///triton:8001", "10.9.9.9:8001", resolve=names.resolve)
    assert await roster.refresh()
    assert addresses(roster) == ["10.0.0.1:8001", "10.0.0.2:8001", "10.9.9.9:8001"]
    assert names.asked == [("triton", 8001)]
    await roster.close()


async def test_what_stays_keeps_its_endpoint_and_nothing_changes_where_nothing_did(names: Names) -> None:
    names.addresses = ["10.0.0.1:8001", "10.0.0.2:8001"]
    roster = roster_of("dns:///triton:8001", resolve=names.resolve)
    await roster.refresh()
    before = roster.endpoints
    assert not await roster.refresh()
    names.addresses = ["10.0.0.3:8001", "10.0.0.2:8001"]
    assert await roster.refresh()
    assert addresses(roster) == ["10.0.0.2:8001", "10.0.0.3:8001"]
    assert roster.endpoints[0] is before[1]
    await roster.close()


@pytest.mark.parametrize("error", [OSError("no such name"), TimeoutError()], ids=["no such name", "no answer"])
async def test_a_name_server_that_fails_takes_nothing_away(
    names: Names, error: OSError, caplog: pytest.LogCaptureFixture
) -> None:
    names.addresses = ["10.0.0.1:8001"]
    roster = roster_of("dns:///triton:8001", resolve=names.resolve)
    await roster.refresh()
    names.addresses = error
    for _ in range(3):
        assert not await roster.refresh()
    assert addresses(roster) == ["10.0.0.1:8001"]
    assert caplog.text.count("can't be looked up") == 1
    await roster.close()


async def test_an_endpoint_that_vanished_is_closed_when_its_calls_are_over_and_not_before(names: Names) -> None:
    async with FakeTriton.serving(staged_models()) as fake:
        fake.behaviours["words"] = never
        names.addresses = [fake.address]
        roster = roster_of("dns:///triton:8001", resolve=names.resolve)
        await roster.refresh()
        [endpoint] = roster.endpoints
        call = asyncio.create_task(endpoint.infer(b"\x0a\x05words", Deadline.after(30), ()))
        await fake.arrived.wait()
        names.addresses = []
        await roster.refresh()
        assert roster.endpoints == ()
        await asyncio.sleep(0.1)
        assert not call.done()
        await endpoint.live()
        call.cancel()
        while not endpoint.closed:
            await asyncio.sleep(0)
        await roster.close()


async def test_closing_does_not_wait_for_what_still_runs(names: Names) -> None:
    async with FakeTriton.serving(staged_models()) as fake:
        fake.behaviours["words"] = never
        roster = roster_of(fake.address, resolve=names.resolve)
        await roster.refresh()
        call = asyncio.create_task(roster.endpoints[0].infer(b"\x0a\x05words", Deadline.after(30), ()))
        await fake.arrived.wait()
        async with asyncio.timeout(2):
            await roster.close()
            with pytest.raises(asyncio.CancelledError):
                await call


async def test_the_system_s_resolver_is_asked() -> None:
    assert "127.0.0.1:8001" in await resolved("localhost", 8001)
    with pytest.raises(OSError, match=r"[Nn]ame|address"):
        await resolved("no-such-name.invalid", 8001)


TARGETS = {
    "127.0.0.1:8001": Target("127.0.0.1", 8001, resolved=False),
    "triton.svc:8001": Target("triton.svc", 8001, resolved=False),
    "[::1]:8001": Target("[::1]", 8001, resolved=False),
    "dns:///triton.svc:8001": Target("triton.svc", 8001, resolved=True),
}


@pytest.mark.parametrize(("text", "target"), TARGETS.items())
def test_an_entry_of_the_setting_is_an_address_or_a_name(text: str, target: Target) -> None:
    assert Target.parse(text) == target
