"""The command line: what it says, and the exit codes that scripts can use."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from app.cli import main
from app.local.address import Address
from app.routing.chart import read_chart
from tests.gateway.fixtures import ROUTES
from tests.gateway.process import ROOT, RunningGateway, conch
from tests.gateway.tenants import Tenants
from tests.peers import Redis, Triton

REPOSITORY = ROOT / "tests" / "repository"


def run(*arguments: str | Path, stdin: str = "", **environment: str) -> Result:
    """In this process: for what asks nobody else."""
    return CliRunner().invoke(main, list(map(str, arguments)), input=stdin, env=environment)


def tenants_with(path: Path, *keys: dict[str, object]) -> Path:
    tenant = {"plan": "plain", "models": ["*"], "keys": list(keys)}
    path.write_text(yaml.safe_dump({"plans": {"plain": {}}, "tenants": {"acme": tenant}}))
    return path


def test_a_new_key_is_known_once_its_entry_is_in_the_file(tmp_path: Path) -> None:
    made = run("keys", "new", "k1", "--env", "test")
    assert made.exit_code == 0
    assert made.stdout.startswith("ck_test_k1_")
    [entry] = yaml.safe_load(made.stderr[made.stderr.index("- id") :])
    file = tenants_with(tmp_path / "tenants.yaml", entry)
    verified = run("keys", "verify", "--tenants", file, stdin=made.stdout)
    assert (verified.exit_code, verified.output) == (0, "tenant acme, key k1, scopes infer\n")


def test_a_key_that_is_not_valid_is_told_apart_and_not_repeated(tmp_path: Path) -> None:
    made = run("keys", "new", "k1")
    key = made.stdout.strip()
    [entry] = yaml.safe_load(made.stderr[made.stderr.index("- id") :])
    mistyped = key[:-1] + ("x" if key[-1] != "x" else "y")
    expired = {**entry, "expires_at": datetime.now(UTC) - timedelta(days=1)}
    for text, keys, words in (
        ("hunter2", [entry], "not a key"),
        (mistyped, [entry], "mistyped"),
        (key, [], "no tenant has it"),
        (key, [expired], "expired"),
    ):
        answer = run("keys", "verify", "--tenants", tenants_with(tmp_path / "t.yaml", *keys), stdin=text)
        assert (answer.exit_code, answer.stdout) == (1, "")
        assert words in answer.stderr
        assert text not in answer.stderr


COMMANDS = [
    (("keys", "new", "Not An Id"), 1, "lower-case"),
    (("keys", "new"), 2, "ID"),
    (("nothing",), 2, "nothing"),
    (("check", "--x"), 2, "--x"),
]


@pytest.mark.parametrize(("arguments", "code", "words"), COMMANDS)
def test_a_command_that_is_not_understood_says_why(arguments: tuple[str, ...], code: int, words: str) -> None:
    answer = run(*arguments)
    assert (answer.exit_code, answer.stdout) == (code, "")
    assert words in answer.stderr


@pytest.mark.parametrize(
    "command", [(), ("serve",), ("check",), ("routes", "draft"), ("keys", "new"), ("keys", "verify"), ("up",)]
)
def test_every_command_explains_itself(command: tuple[str, ...]) -> None:
    answer = run(*command, "--help")
    assert answer.exit_code == 0
    assert len(answer.stdout.splitlines()) > 6


def test_check_finds_nothing_wrong_where_nothing_is(tenants: Tenants) -> None:
    answer = run("check", "--routes", ROUTES, "--tenants", tenants.path, "--repository", REPOSITORY)
    assert (answer.exit_code, answer.stderr) == (0, "")
    assert "13 routes" in answer.stdout
    assert "tenant terse: characters_burst 500 is below" in answer.stdout
    assert answer.stdout.endswith("all is well\n")


def test_check_reads_what_is_named_and_no_default_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    answer = run("check", "--tenants", tenants_with(Path("tenants.yaml")))
    assert (answer.exit_code, answer.output) == (0, "tenants.yaml: 1 tenant\nall is well\n")
    assert "config/routes.yaml" in run("check").stderr
    assert "config/routes.yaml" in run("check", "--tenants", "tenants.yaml", CONCH_ROUTES_FILE="config/routes.yaml").stderr


def test_check_says_every_fault_of_every_file(tmp_path: Path) -> None:
    routes, tenants = tmp_path / "routes.yaml", tmp_path / "tenants.yaml"
    routes.write_text("routes: {r: {task: classify, targets: [{ensemble: noop}], colour: red}}")
    tenants.write_text("plans: {}\ntenants: {acme: {plan: gold, models: []}}")
    answer = run("check", "--routes", routes, "--tenants", tenants)
    assert answer.exit_code == 1
    assert "routes.r.colour" in answer.stderr
    assert "no such plan" in answer.stderr


def test_check_says_which_setting_is_wrong() -> None:
    answer = run("check", CONCH_LISTEN="nowhere", CONCH_REPLICAS="0", CONCH_REDIS_URL="http://hunter2@redis")
    assert answer.exit_code == 1
    for name in ("CONCH_LISTEN: ", "CONCH_REPLICAS: ", "CONCH_REDIS_URL: "):
        assert name in answer.stderr
    assert "hunter2" not in answer.output


WRONG = """
routes:
  absent: {task: classify, targets: [{ensemble: gone}]}
  other: {task: embeddings, targets: [{ensemble: noop}], tensors: {embedding: TOKENS}}
  unlabelled: {task: classify, targets: [{ensemble: foreign}], tensors: {text: utterance, scores: probs}}
"""


async def test_check_holds_routes_against_a_repository_and_against_a_live_triton(
    tmp_path: Path, tenants: Tenants, small_triton: Triton
) -> None:
    file = tmp_path / "routes.yaml"
    file.write_text(WRONG)
    files = ("--routes", str(file), "--tenants", str(tenants.path))
    code, out, err = await conch("check", *files, "--repository", str(REPOSITORY), "--triton", small_triton.grpc)
    assert code == 1
    assert "Triton 2.51.0" in out
    assert "not for production" in out
    offline, live = err.strip().splitlines()[:3], err.strip().splitlines()[3:]
    for lines, absent in ((offline, "No such file"), (live, "not ready")):
        for line, route, words in zip(
            lines, ("absent", "other", "unlabelled"), (absent, "role embedding", "no labels"), strict=True
        ):
            assert f"route {route}: " in line
            assert words in line


async def test_a_triton_that_is_not_there_is_said_in_a_line(tenants: Tenants) -> None:
    for command in (("check", "--routes", str(ROUTES), "--tenants", str(tenants.path)), ("routes", "draft")):
        code, _, err = await conch(*command, "--triton", "127.0.0.1:1")
        assert code == 1
        assert "127.0.0.1:1: the model server can't be reached" in err
        assert "Traceback" not in err


async def test_a_drafted_file_can_be_used_and_serves(
    tmp_path: Path, small_triton: Triton, redis: Redis, start_gateway: Callable[..., Awaitable[RunningGateway]]
) -> None:
    code, drafted, err = await conch("routes", "draft", "--triton", small_triton.grpc)
    assert (code, err) == (0, "")
    file = tmp_path / "routes.yaml"
    file.write_text(drafted)
    tasks = {name: route.task.name for name, route in read_chart(file).items()}
    vectors_and_spans = {"echo": "embeddings", "witness-of-texts": "entities"}
    assert tasks == {**vectors_and_spans, **dict.fromkeys(("faulty", "foreign", "noop", "sleepy"), "classify")}
    assert "foreign-model: left out; it is a step" in drafted
    assert "label_0" in drafted, "the foreign model publishes no labels"

    gateway = await start_gateway(TRITON=small_triton.grpc, REDIS_URL=redis.url, ROUTES_FILE=str(file))
    for model, text, label in (("noop", "a" * 9, "red"), ("foreign", "why?", "label_1")):
        answer = await gateway.classify(text, model=model)
        assert answer.json()["results"][0]["labels"][0]["label"] == label
    assert (await gateway.post("/v1/embeddings", {"model": "echo", "input": "a"})).status_code == 200


async def test_a_gateway_that_can_not_start_says_why_in_a_line(tenants: Tenants, gateway: RunningGateway) -> None:
    settings = {"CONCH_ROUTES_FILE": str(ROUTES), "CONCH_TENANTS_FILE": str(tenants.path)}
    addresses = {"CONCH_LISTEN": str(Address.free()), "CONCH_ADMIN_LISTEN": "127.0.0.1:0"}
    for name, value, words in (
        ("CONCH_ROUTES_FILE", "/nowhere/routes.yaml", "No such file"),
        ("CONCH_ADMIN_LISTEN", gateway.admin.removeprefix("http://"), "CONCH_ADMIN_LISTEN: nothing can listen at"),
    ):
        code, out, err = await conch("serve", **{**settings, **addresses, name: value})
        assert code == 1, (name, out, err)
        assert words in out + err
        assert "Traceback" not in out + err
