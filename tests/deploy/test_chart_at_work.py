"""What the chart hands to programs, given to those programs."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest
import yaml
from tritonclient.grpc import InferenceServerException
from tritonclient.grpc.aio import InferenceServerClient
from tritonclient.http.aio import InferenceServerClient as OverHttp

from app.local.address import Address
from app.local.redis import answers, server
from app.tenancy.key import digest, new_key
from tests.deploy.chart import NEEDS_HELM, pods
from tests.gateway.fixtures import ROUTES
from tests.gateway.process import RunningGateway
from tests.peers import Redis, Triton

pytestmark = NEEDS_HELM

SECRET = "door=hunter2-of-the-chart"


def arguments(part: str, case: str, variables: Mapping[str, str]) -> list[str]:
    """As a kubelet expands them."""
    told = [str(argument) for argument in pods(case)[part]["spec"]["containers"][0]["args"]]
    for name, value in variables.items():
        told = [argument.replace(f"$({name})", value) for argument in told]
    return told


async def test_triton_takes_its_arguments_and_lets_in_nobody_but_the_gateway(
    start_triton: Callable[..., Awaitable[Triton]],
    start_gateway: Callable[..., Awaitable[RunningGateway]],
    redis: Redis,
    small_repository: Path,
) -> None:
    told = arguments("triton", "everything", {"POD_UID": "9f0c", "PROTOCOL_HEADER": SECRET})
    other = ("--model-repository", "--model-config-name", "--grpc-use-ssl", "--grpc-server", "--grpc-root", "--trace-config")
    extra = tuple(argument for argument in told if not argument.startswith(other))
    assert sum("restricted" in argument for argument in extra) == 3
    triton = await start_triton(small_repository, extra=extra)

    knowing = {"triton-grpc-protocol-door": SECRET.partition("=")[2]}
    async with InferenceServerClient(triton.grpc) as client, OverHttp(triton.http) as http:
        assert await http.is_server_ready()
        assert await client.is_server_live(headers=knowing)
        assert await client.get_model_config("noop", headers=knowing)
        refused = [
            client.get_model_config("noop"),
            client.get_model_repository_index(headers=knowing),
            client.load_model("noop", headers=knowing),
            client.get_inference_statistics(headers=knowing),
            client.get_trace_settings(headers=knowing),
            client.register_system_shared_memory("mine", "/mine", 8, headers=knowing),
            http.get_model_config("noop"),
            http.load_model("noop"),
        ]
        for call in refused:
            with pytest.raises(InferenceServerException, match="restricted"):
                await call
        with pytest.raises(
            InferenceServerException, match="load / unload is not allowed"
        ):  # by the mode, and no more by the door
            await http.load_model("noop", headers={"closed": "9f0c"})
    gateway = await start_gateway(TRITON=triton.grpc, REDIS_URL=redis.url, TRITON_PROTOCOL_HEADER=SECRET)
    assert (await gateway.classify("a text")).status_code == 200


async def test_redis_takes_its_arguments(tmp_path: Path) -> None:
    address = Address.free()
    place = ("--bind", address.host, "--port", str(address.port), "--dir", str(tmp_path))
    process = await asyncio.create_subprocess_exec(server(), *arguments("redis", "least", {}), *place, stdout=-1)
    try:
        async with asyncio.timeout(20):
            while not await answers(address):
                await asyncio.sleep(0.05)
    finally:
        process.terminate()
        await process.communicate()


class Mount:
    """A volume of a ConfigMap or a Secret, as a kubelet writes it: links to a hidden folder, which is exchanged as a whole."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._count = 0

    def write(self, files: Mapping[str, str]) -> None:
        self._count += 1
        real = self.folder / f"..2027_{self._count}"
        real.mkdir(parents=True)
        for name, text in files.items():
            (real / name).write_text(text)
        (self.folder / "..data_tmp").symlink_to(real.name)
        (self.folder / "..data_tmp").rename(self.folder / "..data")
        for name in files:
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(f"..data/{name}")


async def call(gateway: RunningGateway, key: str = "") -> tuple[int | None, str]:
    """What `helm test` runs."""
    script = pods("everything")["test"]["spec"]["containers"][0]
    rendered = {variable["name"]: variable.get("value", "") for variable in script["env"]} | {"KEY": key}
    environment = {**os.environ, **rendered, "URL": gateway.address.url}
    command = (sys.executable, *script["command"][1:], *script["args"])
    process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=-1, stderr=-2)
    said, _ = await process.communicate()
    return process.returncode, said.decode()


async def test_mounted_files_are_read_again_and_helm_test_sees_the_models_of_its_key(
    start_gateway: Callable[..., Awaitable[RunningGateway]], small_triton: Triton, redis: Redis, tmp_path: Path
) -> None:
    first, second = new_key("test", "first")[0], new_key("test", "second")[0]

    def tenants(*keys: str) -> dict[str, str]:
        entries = [{"id": f"k{at}", "sha256": digest(key.encode()).hex()} for at, key in enumerate(keys)]
        return {
            "tenants.yaml": yaml.safe_dump(
                {"plans": {"plain": {}}, "tenants": {"a": {"plan": "plain", "models": ["*"], "keys": entries}}}
            )
        }

    who, what = Mount(tmp_path / "tenants"), Mount(tmp_path / "routes")
    routes = yaml.safe_load(ROUTES.read_text())["routes"]
    who.write(tenants(first))
    what.write({"routes.yaml": yaml.safe_dump({"routes": {"noop": routes["noop"]}})})
    gateway = await start_gateway(
        TRITON=small_triton.grpc,
        REDIS_URL=redis.url,
        ALLOWED_HOSTS="conch.example.com,127.0.0.1",
        TENANTS_FILE=str(who.folder),
        ROUTES_FILE=str(what.folder / "routes.yaml"),
    )
    assert {"name": "HOST", "value": "conch.example.com"} in pods("everything")["test"]["spec"]["containers"][0]["env"]
    assert await call(gateway) == (0, "ok\n")
    assert await call(gateway, first) == (0, "models: noop\nok\n")
    assert (await call(gateway, second))[0] == 1

    who.write(tenants(first, second))
    what.write({"routes.yaml": yaml.safe_dump({"routes": {"noop": routes["noop"], "noop-too": routes["noop"]}})})
    async with asyncio.timeout(20):
        while await call(gateway, second) != (0, "models: noop noop-too\nok\n"):
            await asyncio.sleep(0.2)
