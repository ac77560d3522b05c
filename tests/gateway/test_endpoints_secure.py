"""A real Triton that speaks TLS, lets in whom it knows, and keeps its protocols shut."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from app.cli.outcome import settings_or_fail
from app.triton.client import CallFailed, ChannelOptions, Endpoint, Tls
from tests.gateway.problems import CANARY, assert_problem
from tests.gateway.process import ROOT, RunningGateway
from tests.peers import Redis, Triton, only
from tests.triton.certificates import Authority

SECRET = "hunter2-opens-it"  # in no log line: the session's logs are searched for it
PROTOCOLS = "inference,model-config,model-repository"


async def heard(address: str, options: ChannelOptions) -> str:
    endpoint = Endpoint(address, options)
    try:
        await endpoint.live()
        await endpoint.model("noop")
    except CallFailed as failed:
        return failed.failure.name
    finally:
        await endpoint.close()
    return "ok"


async def test_a_gateway_with_the_right_certificate_and_header_is_let_in_and_nobody_else(
    start_triton: Callable[..., Awaitable[Triton]],
    start_gateway: Callable[..., Awaitable[RunningGateway]],
    redis: Redis,
    tmp_path: Path,
) -> None:
    authority, stranger = Authority.found(tmp_path), Authority.found(tmp_path, "stranger")
    server, client, forged = authority.issue("triton.example"), authority.issue("conch"), stranger.issue("forged")
    triton = await start_triton(
        ROOT / "tests" / "repository",
        extra=(
            *only("noop"),
            "--grpc-use-ssl=1",
            "--grpc-use-ssl-mutual=1",
            f"--grpc-server-cert={server[0]}",
            f"--grpc-server-key={server[1]}",
            f"--grpc-root-cert={authority.file}",
            f"--grpc-restricted-protocol={PROTOCOLS}:door={SECRET}",
        ),
    )
    ca, header = authority.file.read_bytes(), (("triton-grpc-protocol-door", SECRET),)

    def tls(files: tuple[Path, Path]) -> Tls:
        return Tls(ca, files[0].read_bytes(), files[1].read_bytes(), "triton.example")

    assert await heard(triton.grpc, ChannelOptions(tls=tls(client), metadata=header)) == "ok"
    assert await heard(triton.grpc, ChannelOptions(tls=tls(client))) == "restricted"
    assert (
        await heard(triton.grpc, ChannelOptions(tls=tls(client), metadata=(("triton-grpc-protocol-door", "x"),)))
        == "restricted"
    )
    assert await heard(triton.grpc, ChannelOptions(tls=tls(forged), metadata=header)) in ("unreachable", "cut_off")
    assert await heard(triton.grpc, ChannelOptions(tls=Tls(ca, server_name="triton.example"))) in ("unreachable", "cut_off")
    assert await heard(triton.grpc, ChannelOptions(metadata=header)) in ("unreachable", "cut_off")

    known = {
        "TRITON": triton.grpc,
        "REDIS_URL": redis.url,
        "TRITON_TLS_CA_FILE": str(authority.file),
        "TRITON_TLS_CERT_FILE": str(client[0]),
        "TRITON_TLS_KEY_FILE": str(client[1]),
        "TRITON_TLS_SERVER_NAME": "triton.example",
    }
    gateway = await start_gateway(**known, TRITON_PROTOCOL_HEADER=f"door={SECRET}")
    assert (await gateway.classify(CANARY)).status_code == 200
    expiries = [sample for sample in await gateway.samples() if sample.name == "conch_certificate_expires_seconds"]
    assert {sample.labels["file"] for sample in expiries} == {"triton_tls_ca_file", "triton_tls_cert_file"}

    authority.issue("conch")
    async with asyncio.timeout(10):
        while "renewed certificates" not in gateway.log():
            assert (await gateway.classify(CANARY)).status_code == 200
            await asyncio.sleep(0.1)
    assert (await gateway.classify(CANARY)).status_code == 200

    shut_out = await start_gateway(**known, ready="/livez")
    assert_problem(await shut_out.classify(CANARY), 503, "model_unavailable")
    assert "noop can't be served on" in (faults := await shut_out.faults("noop"))
    assert faults.endswith(": restricted")


REFUSED = {
    "a header without a value": ({"CONCH_TRITON_PROTOCOL_HEADER": f"{SECRET}"}, "name=value"),
    "a header without a name": ({"CONCH_TRITON_PROTOCOL_HEADER": f"={SECRET}"}, "name=value"),
    "a header's name in capitals": ({"CONCH_TRITON_PROTOCOL_HEADER": f"DOOR={SECRET}"}, "name=value"),
    "a header that is no ASCII": ({"CONCH_TRITON_PROTOCOL_HEADER": f"door={SECRET}ä"}, "name=value"),
    "a certificate without its key": ({"CONCH_TRITON_TLS_CERT_FILE": __file__}, "goes together"),
    "a key without its certificate": ({"CONCH_TRITON_TLS_KEY_FILE": __file__}, "goes together"),
    "an authority that is not there": ({"CONCH_TRITON_TLS_CA_FILE": "/no/such/file"}, "not point to a file"),
    "a Triton without a port": ({"CONCH_TRITON": "triton"}, "host:port"),
    "a name without a port": ({"CONCH_TRITON": "dns:///triton"}, "host:port"),
    "a URL": ({"CONCH_TRITON": "http://triton:8001"}, "host:port"),
    "no Triton": ({"CONCH_TRITON": ","}, "host:port"),
}


@pytest.mark.parametrize(("environment", "said"), REFUSED.values(), ids=REFUSED)
def test_a_setting_that_can_not_be_used_ends_the_start_and_tells_no_secret(
    environment: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        settings_or_fail()
    err = capsys.readouterr().err
    assert all(line.startswith("error: CONCH_TRITON") for line in err.splitlines())
    assert said in err
    assert SECRET not in err
