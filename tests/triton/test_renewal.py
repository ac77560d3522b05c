"""Certificates that change on disk while a gateway runs."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc.aio
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc.service_pb2_grpc import add_GRPCInferenceServiceServicer_to_server

from app.deadline import Deadline
from app.triton.client import CallFailed, ChannelOptions, Endpoint, Tls
from app.triton.discovery import Roster
from app.triton.renewal import Renewal
from tests.fakes.triton import FakeTriton
from tests.gateway.stage import staged_models
from tests.triton.certificates import Authority

REQUEST = pb.ModelInferRequest(model_name="words", inputs=[{"shape": [1, 1]}]).SerializeToString()
NAME = "triton.example"


@dataclass(slots=True)
class Guarded(FakeTriton):
    """Asks every caller for a certificate, and writes down whose it was."""

    folder: Path = Path()
    seen: list[str] = field(default_factory=list)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    async def start(self) -> None:
        self._server = grpc.aio.server()
        add_GRPCInferenceServiceServicer_to_server(self, self._server)
        port = self._server.add_secure_port("127.0.0.1:0", self.credentials())
        self.address = f"127.0.0.1:{port}"
        await self._server.start()

    def credentials(self) -> grpc.ServerCredentials:
        """Of the files there are when a connection begins."""

        def read() -> grpc.ServerCertificateConfiguration:
            pair = (self.folder / f"{NAME}.key").read_bytes(), (self.folder / f"{NAME}.pem").read_bytes()
            trusted = b"".join(path.read_bytes() for path in sorted(self.folder.glob("trusted-*")))
            return grpc.ssl_server_certificate_configuration([pair], trusted)

        return grpc.dynamic_ssl_server_credentials(read(), read, require_client_authentication=True)

    async def answer(self, request: pb.ModelInferRequest, context: grpc.aio.ServicerContext) -> pb.ModelInferResponse:
        self.seen.append(context.auth_context()["x509_common_name"][0].decode())
        if request.id == "slow":
            self.arrived.set()
            await self.released.wait()
        return self.well_formed(request)


@dataclass
class Stage:
    """`ours` are the files that the gateway is told of."""

    folder: Path
    server: Guarded
    roster: Roster
    renewal: Renewal

    def show(self, authority: Authority, name: str) -> None:
        """From now on, this is the gateway's certificate."""
        pem, key = authority.issue(name)
        shutil.copy(pem, self.folder / "ours.pem")
        shutil.copy(key, self.folder / "ours.key")

    def trust(self, *authorities: Authority) -> None:
        (self.folder / "ours-ca").write_bytes(b"".join(authority.file.read_bytes() for authority in authorities))

    @property
    def endpoint(self) -> Endpoint:
        [endpoint] = self.roster.endpoints
        return endpoint

    async def asked(self) -> str:
        """The name that Triton sees."""
        await self.endpoint.infer(REQUEST, Deadline.after(5), ())
        return self.server.seen[-1]


@asynccontextmanager
async def stage(folder: Path, authority: Authority) -> AsyncIterator[Stage]:
    authority.issue(NAME)
    shutil.copy(authority.file, folder / "trusted-1")
    server = Guarded(staged_models(), folder=folder)
    await server.start()

    def read() -> ChannelOptions:
        ca, certificate, key = ((folder / name).read_bytes() for name in ("ours-ca", "ours.pem", "ours.key"))
        return ChannelOptions(tls=Tls(ca, certificate, key, NAME))

    roster = Roster((server.address,), lambda address, name: Endpoint(address, read(), name))
    scene = Stage(folder, server, roster, Renewal(roster, read))
    scene.show(authority, "before")
    scene.trust(authority)
    await roster.refresh()
    try:
        yield scene
    finally:
        await roster.close()
        await server.stop()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.found(tmp_path)


async def test_a_living_endpoint_shows_the_new_certificate_and_finishes_what_it_had_begun(
    tmp_path: Path, authority: Authority
) -> None:
    async with stage(tmp_path, authority) as scene:
        assert await scene.asked() == "before"
        await scene.renewal.renew()
        assert await scene.asked() == "before", "nothing has changed"

        slow = pb.ModelInferRequest(model_name="words", id="slow", inputs=[{"shape": [1, 1]}]).SerializeToString()
        running = asyncio.create_task(scene.endpoint.infer(slow, Deadline.after(20), ()))
        await scene.server.arrived.wait()
        endpoint, health = scene.endpoint, scene.endpoint.health
        scene.show(authority, "after")
        await scene.renewal.renew()
        assert await scene.asked() == "after"
        assert scene.endpoint is endpoint
        assert endpoint.health is health
        assert not running.done()
        scene.server.released.set()
        assert (await running).model_version == "1", "what had begun is finished"
        await endpoint.retire()
        with pytest.raises(CallFailed, match="unreachable"):
            await endpoint.live()


@pytest.mark.parametrize("broken", ["another key", "no certificate", "unknown to Triton", "does not trust Triton", "no file"])
async def test_files_that_do_not_work_change_nothing_and_are_tried_again(
    tmp_path: Path, authority: Authority, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = Authority.found(tmp_path, "stranger")
    async with stage(tmp_path, authority) as scene:
        assert await scene.asked() == "before"
        match broken:
            case "another key":
                shutil.copy(authority.issue("other")[1], tmp_path / "ours.key")
            case "no certificate":
                (tmp_path / "ours.pem").write_text("not a certificate")
            case "unknown to Triton":
                scene.show(stranger, "stranger's")
            case "does not trust Triton":
                scene.trust(stranger)
            case _:
                (tmp_path / "ours.pem").unlink()
        for _ in range(2):
            await scene.renewal.renew()
        assert await scene.asked() == "before"
        assert len(caplog.records) == 1, "it is said once"
        assert "certificates" in caplog.text

        scene.show(authority, "after")
        scene.trust(authority)
        await scene.renewal.renew()
        assert await scene.asked() == "after"


async def test_an_authority_is_replaced_in_any_order(tmp_path: Path, authority: Authority) -> None:
    """Triton first, here: what is connected stays, and a new connection waits for nobody but the files."""
    second = Authority.found(tmp_path, "second")
    async with stage(tmp_path, authority) as scene:
        await scene.asked()
        second.issue(NAME)
        shutil.copy(second.file, tmp_path / "trusted-2")
        assert await scene.asked() == "before"
        scene.show(second, "after")
        await scene.renewal.renew()
        assert await scene.asked() == "before", "the gateway does not trust the new one yet"
        scene.trust(authority, second)
        await scene.renewal.renew()
        assert await scene.asked() == "after"
