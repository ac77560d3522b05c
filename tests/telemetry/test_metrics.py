"""What Prometheus reads, and that no stranger can make it more."""

import asyncio
from secrets import token_hex

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.edge.raw import connected
from tests.fakes.triton import FakeTriton, aborting
from tests.gateway.problems import CANARY
from tests.gateway.process import RunningGateway
from tests.gateway.stage import STAGED


async def series(gateway: RunningGateway) -> set[str]:
    return {f"{sample.name}{sorted(sample.labels.items())}" for sample in await gateway.samples()}


async def settled(gateway: RunningGateway) -> set[str]:
    """Once the gauges, which are read each second, tell of all that was before."""
    before: set[str] = set()
    while before != (now := await series(gateway)):
        before = now
        await asyncio.sleep(1.5)
    return before


async def test_random_paths_models_methods_and_keys_add_no_series(staged: RunningGateway, stage: FakeTriton) -> None:
    async def probe(at: int) -> None:
        await staged.get(f"/{CANARY}/{at}")
        await staged.client.get(f"/v1/{at}")
        await staged.get(f"/v1/models/{at}")
        await staged.classify("a", model=f"m{at}")
        await staged.client.get("/v1/models", headers={"x-api-key": f"k{at}", "x-request-id": f"r{at}"})

    await probe(-1)
    before = await settled(staged)
    for start in range(0, 40, 20):
        await asyncio.gather(*(probe(at) for at in range(start, start + 20)))
    assert await series(staged) == before
    assert CANARY not in str(before)


async def test_ten_thousand_random_paths_add_no_series(staged: RunningGateway) -> None:
    key = staged.tenants.authorization("open")["authorization"]

    async def ask(paths: range) -> None:
        heads = (f"GET /v1/{token_hex(4)}{at} HTTP/1.1\r\nhost: a\r\nauthorization: {key}\r\n\r\n" for at in paths)
        async with connected(staged.address) as line:
            await line.send("".join(heads).encode())
            assert {answer.status_code for answer in await line.answers(len(paths))} == {404}

    await staged.get("/v1/nowhere")
    before = await settled(staged)
    await asyncio.gather(*(ask(range(start, start + 100)) for start in range(0, 10_000, 100)))
    assert await series(staged) == before


@pytest.mark.parametrize(
    ("path", "route"), [("/problems/rate_limited", "/problems/{code}"), ("/v1/models/words", "/v1/models/{model}"), ("/", "/")]
)
async def test_a_path_with_a_parameter_is_counted_by_its_template(staged: RunningGateway, path: str, route: str) -> None:
    before = await staged.count("conch_requests_total", route=route)
    await staged.client.get(path, headers=staged.tenants.authorization("open"))
    assert await staged.count("conch_requests_total", route=route) == before + 1


async def test_what_was_answered_is_counted_by_path_status_and_code(staged: RunningGateway, stage: FakeTriton) -> None:
    async def counts() -> list[float]:
        return [
            await staged.count("conch_requests_total", route="/v1/classify", status="200", code="ok"),
            await staged.count("conch_requests_total", route="/v1/classify", status="502", code="upstream_error"),
            await staged.count("conch_requests_total", route="/v1/classify", status="422", code="invalid_input"),
            await staged.count("conch_requests_total", route="unmatched", status="404", code="not_found"),
            await staged.count("conch_inputs_total", model="words"),
            await staged.count("conch_characters_total", model="words"),
            await staged.count("conch_request_seconds_count", route="/v1/classify"),
            await staged.count("conch_triton_calls_total", ensemble="words", outcome="ok"),
            await staged.count("conch_triton_calls_total", ensemble="words", outcome="failed"),
            await staged.count("conch_limiter_decisions_total", decision="admitted"),
        ]

    before = await counts()
    await staged.classify("abc", "de", model="words")
    stage.behaviours["words"] = aborting(grpc.StatusCode.INTERNAL, "boom")
    await staged.classify("abc", model="words")
    await staged.classify("", model="words")
    await staged.get("/nowhere")
    assert [after - was for after, was in zip(await counts(), before, strict=True)] == [1, 1, 1, 1, 2, 5, 3, 1, 1, 2]


async def test_a_model_s_card_is_counted_under_its_template(staged: RunningGateway) -> None:
    before = await staged.count("conch_requests_total", route="/v1/models/{model}", status="200")
    await staged.get("/v1/models/words")
    assert await staged.count("conch_requests_total", route="/v1/models/{model}", status="200") == before + 1


async def test_the_exposition_is_what_prometheus_reads(staged: RunningGateway) -> None:
    answer = await staged.client.get(f"{staged.admin}/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    assert all(family.documentation for family in families.values())
    assert all(name.startswith(("conch_", "process_")) for name in families)
    assert await staged.count("conch_build_info") == 1
    assert await staged.count("conch_routes_served") == STAGED.count("task:")
    assert await staged.count("conch_triton_endpoints_reachable") == 1
    assert await staged.count("conch_limiter_degraded") == 0


async def test_metrics_and_status_are_on_the_private_listener_alone(staged: RunningGateway) -> None:
    for path in ("/metrics", "/status"):
        assert (await staged.get(path)).status_code == 404
    for path in ("/v1/models", "/docs", "/v1/classify"):
        assert (await staged.client.get(f"{staged.admin}{path}")).status_code == 404
    for path in ("/livez", "/readyz"):
        assert (await staged.client.get(f"{staged.admin}{path}")).status_code == 200


async def test_every_phase_of_a_request_is_measured(staged: RunningGateway) -> None:
    async def counts() -> dict[str, float]:
        return {
            sample.labels["phase"]: sample.value
            for sample in await staged.samples()
            if sample.name == "conch_phase_seconds_count"
        }

    before = await counts()
    assert (await staged.classify("a", model="words")).status_code == 200
    grown = {phase: count - before[phase] for phase, count in (await counts()).items()}
    assert grown == dict.fromkeys(("auth", "parse", "admission", "queue", "triton", "encode"), 1)


async def test_a_request_that_is_split_is_counted_by_its_parts(staged: RunningGateway) -> None:
    before = await staged.count("conch_request_parts_sum"), await staged.count("conch_triton_call_seconds_count")
    await staged.classify(*"abcdefghij", model="brief")
    assert await staged.count("conch_request_parts_sum") - before[0] == 3
    assert await staged.count("conch_triton_call_seconds_count") - before[1] == 3


async def test_a_tenant_s_requests_are_counted_under_its_name(staged: RunningGateway) -> None:
    before = await staged.count("conch_tenant_requests_total", tenant="first", code="ok")
    await staged.classify("abc", model="words", tenant="first")
    assert await staged.count("conch_tenant_requests_total", tenant="first", code="ok") == before + 1


async def test_who_speaks_openmetrics_gets_it(staged: RunningGateway) -> None:
    answer = await staged.client.get(
        f"{staged.admin}/metrics", headers={"accept": "application/openmetrics-text;version=1.0.0"}
    )
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert answer.text.endswith("# EOF\n")
