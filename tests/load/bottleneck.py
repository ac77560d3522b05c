"""What the gateway leaves of a model's throughput where the model is the bottleneck: `python tests/load/bottleneck.py`.

The same callers ask a real Triton by gRPC, and then through the gateway, in turns; the ratio of their rates is what counts. The
model sleeps, as a GPU would keep it waiting, and takes no CPU from whom it is compared with; `sentiment`, which computes on the
same cores as the gateway and the callers, is asked too, if it was built.
"""

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import grpc.aio
import tritonclient.grpc.aio as triton_client
from google.protobuf.json_format import MessageToJson
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

from app.local.triton import install
from app.local.watchdog import Watchdog
from app.triton.tensor import pack_texts
from tests.gateway.process import ROOT, RunningGateway
from tests.gateway.tenants import Tenants
from tests.load.callers import drive, post
from tests.peers import Redis, Triton

ROUNDS, CALLERS = 4, 48
INSTANCES, BATCH, SECONDS = 2, 8, 0.2
ROUTES = """
routes:
  sleepy: {task: classify, targets: [{ensemble: sleepy}], timeout_ms: {default: 20000, max: 20000}, required: true}
  sentiment: {task: classify, targets: [{ensemble: sentiment}], timeout_ms: {default: 20000, max: 20000}}
"""


@dataclass
class Case:
    """`requests` are those of one round."""

    model: str
    text: str
    requests: int
    rates: dict[str, list[float]] = field(default_factory=dict)

    async def round(self, stub: GRPCInferenceServiceStub, gateway: RunningGateway) -> None:
        message = pb.ModelInferRequest(model_name=self.model, raw_input_contents=[pack_texts([self.text.encode()])])
        message.inputs.add(name="TEXT", datatype="BYTES", shape=(1, 1))
        body = f'{{"model":"{self.model}","inputs":["{self.text}"]}}'.encode()
        request = post("/v1/classify", gateway.tenants.keys["open"], body)

        async def through_the_gateway() -> None:
            load = await drive(str(gateway.address), request, callers=CALLERS, requests=self.requests)
            if load.failures:
                raise SystemExit(f"{self.model}: {load.failures} of {self.requests} answers were not 200")

        await self._timed("direct", lambda: self._directly(stub, message))
        await self._timed("gateway", through_the_gateway)

    async def _directly(self, stub: GRPCInferenceServiceStub, message: pb.ModelInferRequest) -> None:
        left = iter(range(self.requests))

        async def call() -> None:
            for _ in left:
                await stub.ModelInfer(message, timeout=20)

        await asyncio.gather(*(call() for _ in range(CALLERS)))

    async def _timed(self, how: str, load: Callable[[], Awaitable[None]]) -> None:
        started = perf_counter()
        await load()
        self.rates.setdefault(how, []).append(self.requests / (perf_counter() - started))

    def row(self) -> str:
        direct, gateway = (
            len(rates) / sum(1 / rate for rate in rates) for rates in (self.rates["direct"], self.rates["gateway"])
        )
        return f"{self.model:<34}{direct:>10.0f}{gateway:>10.0f}{gateway / direct:>9.2f}"


async def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="conch-bottleneck-"))
    (folder / "routes.yaml").write_text(ROUTES)
    home = Path(os.environ.get("CONCH_HOME", ".conch")).resolve()
    repositories = [ROOT / "tests" / "repository", *([home / "models"] if (home / "models").is_dir() else [])]
    wanted = ("sleepy", *(("sentiment",) if len(repositories) > 1 else ()))
    async with AsyncExitStack() as stack:
        watchdog = stack.enter_context(Watchdog())
        extra = ("--model-control-mode=explicit", *(f"--load-model={name}" for name in wanted))
        triton = await Triton.start(install(home), repositories, folder, watchdog, extra=extra)
        stack.push_async_callback(triton.peer.kill)
        await _shrink(triton)
        redis = await Redis.start(folder, watchdog)
        stack.push_async_callback(redis.peer.stop)
        settings = {
            "CONCH_TRITON": triton.grpc,
            "CONCH_REDIS_URL": redis.url,
            "CONCH_ROUTES_FILE": str(folder / "routes.yaml"),
            "CONCH_BERTH_WAIT_MS": "20000",
        }
        gateway = await RunningGateway.start(Tenants.write(folder / "tenants.yaml", {"open": {}}), settings, folder, watchdog)
        stack.push_async_callback(gateway.stop)
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(triton.grpc))
        cases = [Case("sleepy", str(SECONDS), 240), Case("sentiment", "I absolutely love this phone", 160)][: len(wanted)]
        for case in cases:  # a gateway that has seen no answer yet keeps a short queue
            await gateway.classify(case.text, model=case.model)
        for _ in range(ROUNDS):
            for case in cases:
                await case.round(GRPCInferenceServiceStub(channel), gateway)
    print(f"{'the model is the bottleneck':<34}{'direct/s':>10}{'gateway/s':>10}{'ratio':>9}")
    for case in cases:
        print(case.row())


async def _shrink(triton: Triton) -> None:
    """The sleepy model, so that it is slower than any gateway."""
    control = triton_client.InferenceServerClient(triton.grpc)
    config = (await control.get_model_config("sleepy")).config
    config.max_batch_size, config.instance_group[0].count = BATCH, INSTANCES
    config.dynamic_batching.ClearField("preferred_batch_size")
    await control.load_model("sleepy", config=MessageToJson(config, preserving_proto_field_name=True))
    await control.close()


if __name__ == "__main__":
    asyncio.run(main())
