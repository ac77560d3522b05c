"""The gateway against its own documents, by schemathesis: whatever it thinks of gets an answer that is documented."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from tests.fakes.triton import FakeTriton
from tests.gateway.process import RunningGateway

MODELS = {
    "ClassifyRequest": ["words", "lax", "brief"],
    "EntitiesRequest": ["spans"],
    "EmbeddingsRequest": ["vectors"],
    "AnalyzeRequest": ["heads"],
    "RerankRequest": ["pairs"],
}
# A valid request may be outside a model's own rules, and a millisecond may pass; a 500 or 502 has no excuse.
SETTINGS = f"""
hooks = "{Path(__file__).with_name("schemathesis") / "ndjson.py"}"

[checks]
positive_data_acceptance.enabled = false
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", "503", "504"]
"""


@pytest.mark.parametrize(
    ("document", "phases"), [("/openapi.json", "examples,coverage"), ("/openapi-3.0.json", "examples,fuzzing")]
)
async def test_every_answer_is_as_documented(
    staged: RunningGateway, stage: FakeTriton, document: str, phases: str, tmp_path: Path
) -> None:
    content = (await staged.client.get(document)).json()
    for name, models in MODELS.items():  # a name out of thin air would be a 404 each time
        content["components"]["schemas"][name]["properties"]["model"]["enum"] = [*models, "missing"]
    schema = tmp_path / "openapi.json"
    schema.write_text(json.dumps(content))
    (tmp_path / "schemathesis.toml").write_text(SETTINGS)
    process = await asyncio.create_subprocess_exec(
        *(Path(sys.executable).parent / "st", "run", schema, "--url", staged.address.url, "--phases", phases),
        *("--header", f"Authorization: Bearer {staged.tenants.keys['open']}", "--max-examples", "6", "--seed", "1"),
        *("--exclude-path-regex", "/versions/", "--no-color", "--generation-database", "none"),
        cwd=tmp_path,
        stdout=-1,
        stderr=-2,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
