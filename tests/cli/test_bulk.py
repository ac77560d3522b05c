"""`conch bulk`, as people run it: files in, files out, and what becomes of them when it is broken off."""

import asyncio
import gzip
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import zstandard
from click.testing import CliRunner, Result
from tritonclient.grpc import service_pb2 as pb

from app.cli import main
from app.cli.bulk.agreement import Agreement
from tests.fakes.triton import FakeTriton
from tests.gateway.process import ROOT, RunningGateway

QUICK = ("--lines", "50", "--posts", "3")


def ndjson(path: Path, count: int = 230) -> Path:
    path.write_text("".join(f'{{"id": "r{at}", "text": "{"a" * (at % 9 + 1)}", "more": [1]}}\n' for at in range(count)))
    return path


async def bulk(url: str, key: str, *arguments: str | Path, stdin: bytes = b"") -> Result:
    """In a thread of this process, which saves the start of another one."""
    environment = {"CONCH_URL": url, "CONCH_KEY": key}
    words = ["bulk", *map(str, arguments)]
    return await asyncio.to_thread(CliRunner().invoke, main, words, env=environment, input=stdin)


async def send(gateway: RunningGateway, *arguments: str | Path, tenant: str = "open", stdin: bytes = b"") -> Result:
    return await bulk(gateway.address.url, gateway.tenants.keys[tenant], *arguments, stdin=stdin)


def answers(path: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [line["index"] for line in lines] == list(range(len(lines)))
    return lines


async def test_every_record_has_its_line_whatever_the_file_is(
    staged: RunningGateway, stage: FakeTriton, tmp_path: Path
) -> None:
    plain = ndjson(tmp_path / "a.ndjson")
    rows = [json.loads(line) for line in plain.read_text().splitlines()]
    (tmp_path / "b.ndjson.gz").write_bytes(gzip.compress(plain.read_bytes()))
    (tmp_path / "c.csv").write_text("id,text\n" + "".join(f'{row["id"]},"{row["text"]}"\n' for row in rows))
    (tmp_path / "d.tsv.gz").write_bytes(
        gzip.compress("".join(f"{row['id']}\t{row['text']}\n" for row in [{"id": "id", "text": "text"}, *rows]).encode())
    )
    written = set()
    half = len(plain.read_bytes()) // 2
    frames = (zstandard.compress(part) for part in (plain.read_bytes()[:half], plain.read_bytes()[half:]))
    (tmp_path / "e.ndjson.zst").write_bytes(b"".join(frames))
    for name in ("a.ndjson", "b.ndjson.gz", "c.csv", "d.tsv.gz", "e.ndjson.zst"):
        result = await send(staged, tmp_path / name, "--model", "words", *QUICK)
        assert result.exit_code == 0, result.output
        assert "230 lines, 0 of them errors" in result.stderr
        written.add((tmp_path / f"{name[0]}.words.ndjson").read_bytes())
    piped = tmp_path / "piped"
    assert (await send(staged, "-", "--model", "words", "-o", piped, stdin=plain.read_bytes())).exit_code == 0
    assert written == {piped.read_bytes()}
    assert [line["id"] for line in answers(piped)] == [f"r{at}" for at in range(230)]
    assert all(len(line["result"]["labels"]) == 3 for line in answers(piped))


async def test_records_that_are_broken_have_their_error_and_the_exit_code_says_so(
    staged: RunningGateway, stage: FakeTriton, tmp_path: Path
) -> None:
    file = tmp_path / "a.ndjson"
    file.write_bytes(b'{"text":"a"}\nno JSON\n\n["a"]\n{"id":"x"}\n{"text":"\xff"}\n{"text":"b"}')
    result = await send(staged, file, "--model", "words", "--lines", "2")
    assert result.exit_code == 3
    assert "7 lines, 5 of them errors (malformed_request 3, invalid_input 2)" in result.stderr
    codes = [line.get("error", {}).get("code") for line in answers(tmp_path / "a.words.ndjson")]
    assert codes == [
        None,
        "malformed_request",
        "malformed_request",
        "invalid_input",
        "invalid_input",
        "malformed_request",
        None,
    ]


async def test_options_and_columns_are_what_was_said(staged: RunningGateway, stage: FakeTriton, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("key,body\nk1,hello\n")
    out = tmp_path / "out"
    command = ("--model", "words", "--column", "body", "--id", "key", "--set", "top_k=1", "-o", out)
    assert (await send(staged, file, *command)).exit_code == 0
    [line] = answers(out)
    assert line["id"] == "k1"
    assert len(line["result"]["labels"]) == 1
    assert stage.asked[-1].texts == [b"hello"]


async def test_what_is_done_is_not_done_again(staged: RunningGateway, stage: FakeTriton, tmp_path: Path) -> None:
    command = (ndjson(tmp_path / "a.ndjson"), "--model", "words", *QUICK)
    assert (await send(staged, *command)).exit_code == 0
    written, asked = (tmp_path / "a.words.ndjson").read_bytes(), len(stage.asked)
    assert (await send(staged, *command)).exit_code == 0
    assert (tmp_path / "a.words.ndjson").read_bytes() == written
    assert len(stage.asked) == asked
    assert (await send(staged, *command, "--restart")).exit_code == 0
    assert (tmp_path / "a.words.ndjson").read_bytes() == written
    assert len(stage.asked) > asked


async def running(gateway: RunningGateway, *arguments: str | Path) -> Process:
    environment = {**os.environ, "CONCH_URL": gateway.address.url, "CONCH_KEY": gateway.tenants.keys["open"]}
    command = (sys.executable, "-m", "app.cli", "bulk", *map(str, arguments))
    return await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=environment, stdout=PIPE, stderr=PIPE)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
async def test_broken_off_and_run_again_it_writes_the_same_bytes(
    staged: RunningGateway, stage: FakeTriton, tmp_path: Path, end: signal.Signals
) -> None:
    held = asyncio.Event()
    stuck = asyncio.Event()

    async def hold(request: pb.ModelInferRequest, context: grpc.aio.ServicerContext) -> pb.ModelInferResponse:
        if len(stage.asked) > 3:
            stuck.set()
            await held.wait()
        return stage.well_formed(request)

    file, once, out = ndjson(tmp_path / "a.ndjson"), tmp_path / "once", tmp_path / "out"
    assert (await send(staged, file, "--model", "words", *QUICK, "-o", once)).exit_code == 0
    stage.asked.clear()
    stage.behaviours["words"] = hold
    process = await running(staged, file, "--model", "words", *QUICK, "-o", out)
    async with asyncio.timeout(30):
        await stuck.wait()
        while not out.exists() or not out.stat().st_size:
            await asyncio.sleep(0.02)
        process.send_signal(end)
        _, said = await process.communicate()
    assert process.returncode == (-9 if end == signal.SIGKILL else 130), said
    begun = out.read_bytes()
    assert once.read_bytes().startswith(begun)
    assert 0 < begun.count(b"\n") < 230
    with out.open("ab") as torn:
        torn.write(b'{"index":' * 20_000)  # what a machine that lost its power may leave
    held.set()
    stage.behaviours.clear()
    result = await send(staged, file, "--model", "words", *QUICK, "-o", out)
    assert result.exit_code == 0, result.output
    assert out.read_bytes() == once.read_bytes()


async def test_an_output_that_is_another_s_is_left_alone(staged: RunningGateway, stage: FakeTriton, tmp_path: Path) -> None:
    file, out = ndjson(tmp_path / "a.ndjson", 3), tmp_path / "out"
    command = (file, "--model", "words", "-o", out)
    out.write_text("precious\n")
    assert "none of ours" in (await send(staged, *command)).stderr
    assert out.read_text() == "precious\n"
    out.unlink()
    assert (await send(staged, *command)).exit_code == 0
    for other in ((ndjson(tmp_path / "b.ndjson", 4), *command[1:]), (*command, "--set", "top_k=1")):
        result = await send(staged, *other)
        assert result.exit_code == 1
        assert "of another file, model or option" in result.stderr
    out.write_text("")
    assert "shorter than its journal says" in (await send(staged, *command)).stderr


async def test_what_stands_in_the_way_is_said_in_a_line(staged: RunningGateway, stage: FakeTriton, tmp_path: Path) -> None:
    file = ndjson(tmp_path / "a.ndjson", 3)
    out = ("-o", tmp_path / "out")
    url, key = staged.address.url, staged.tenants.keys["open"]
    odd = tmp_path / "a.csv"
    odd.write_text("id,body\n")
    torn = tmp_path / "torn.gz"
    torn.write_bytes(gzip.compress(file.read_bytes())[:-9])
    zst = tmp_path / "a.zst"
    zst.write_bytes(zstandard.compress(file.read_bytes())[:-5])
    bad = tmp_path / "bad.zst"
    bad.write_bytes(b"no zstd")
    for words, result in (
        ("401", await bulk(url, "ck_nobody", file, "--model", "words", *out)),
        ("404", await bulk(url, key, file, "--model", "nothing", *out)),
        ("known are model, top_k", await bulk(url, key, file, "--model", "words", "--set", "colour=red", *out)),
        ("not every task has bulk posts", await bulk(url, key, file, "--model", "pairs", *out)),
        ("there is no key", await bulk(url, "", file, "--model", "words", *out)),
        ("can't be reached", await bulk("http://127.0.0.1:1", key, file, "--model", "words", *out)),
        ("no Conch", await bulk(staged.admin, key, file, "--model", "words", *out)),
        ("no column text", await bulk(url, key, odd, "--model", "words", "-o", tmp_path / "odd")),
        ("ended before", await bulk(url, key, torn, "--model", "words", "-o", tmp_path / "torn.out")),
        ("ended before", await bulk(url, key, zst, "--model", "words", "-o", tmp_path / "z")),
        ("bad.zst", await bulk(url, key, bad, "--model", "words", "-o", tmp_path / "bad")),
    ):
        assert result.exit_code == 1, result.output
        assert words in result.stderr
        assert "Traceback" not in result.output
    assert (await bulk(url, key, "-", "--model", "words")).exit_code == 2
    unnamed = await bulk("localhost:1", key, file, "--model", "words", *out)
    assert (unnamed.exit_code, "say http://HOST:PORT" in unnamed.stderr) == (2, True)


async def test_a_column_to_compare_with_that_is_not_there_is_said_also_when_all_is_answered(
    staged: RunningGateway, stage: FakeTriton, tmp_path: Path
) -> None:
    file = tmp_path / "a.csv"
    file.write_text("text,old\na,red\n")
    for expect in ("new", "old", "new"):
        result = await send(staged, file, "--model", "words", "--expect", expect)
        assert (result.exit_code, "no column new" in result.stderr) == ((0, False) if expect == "old" else (1, True))


async def test_at_the_limit_it_waits_and_at_the_end_of_the_day_it_says_when(
    staged: RunningGateway, stage: FakeTriton, tmp_path: Path
) -> None:
    file = tmp_path / "a.ndjson"
    file.write_text('{"text":"aaaaaaa"}\n' * 4)
    result = await send(staged, file, "--model", "brief", "--lines", "1", "--posts", "1", tenant="cli-frugal")
    assert result.exit_code == 1
    assert "goes on from line 3" in result.stderr
    assert len(answers(tmp_path / "a.brief.ndjson")) == 3
    paced = tmp_path / "b.ndjson"
    paced.write_text('{"text":"a"}\n' * 24)
    result = await send(staged, paced, "--model", "brief", "--timeout", "1", "--lines", "8", tenant="bulk-paced")
    assert result.exit_code == 0, result.output
    assert len(answers(tmp_path / "b.brief.ndjson")) == 24


class Scripted:
    """A gateway that does what it is told, an answer after the other; what it answers at the end of the script is right."""

    def __init__(self, *script: bytes | None) -> None:
        self.script = list(script)
        self.posts: list[int] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"GET"):
            writer.write(whole(b'{"task":"classify"}', 200))
        else:
            length = next(field for field in head.split(b"\r\n") if field.lower().startswith(b"content-length:"))
            lines = (await reader.readexactly(int(length.split(b":")[1]))).count(b"\n")
            self.posts.append(lines)
            answer = self.script.pop(0) if self.script else None
            writer.write(answer or chunked(*[b'{"index":%d,"result":{}}\n' % at for at in range(lines)]))
        await writer.drain()
        writer.close()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Scripted"]:
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0, limit=2**22)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield self
        server.close()
        await server.wait_closed()


def whole(body: bytes, status: int, *fields: str) -> bytes:
    head = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Connection: close", *fields]
    return "\r\n".join([*head, "", ""]).encode() + body


def chunked(*lines: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%b\r\n" % (len(line), line) for line in lines) + end


def failed(at: int, **error: Any) -> bytes:
    return (
        json.dumps({"index": at, "error": {"code": "some_code", "detail": "Some.", **error}}, separators=(",", ":")).encode()
        + b"\n"
    )


GOOD = b'{"index":0,"result":{}}\n'
LARGE = whole(b'{"status":413,"code":"too_large","detail":"Too large."}', 413)
AGAIN: dict[str, tuple[tuple[bytes, ...], list[int], int]] = {
    "a pause that is asked for": ((whole(b"{}", 429, "Retry-After: 1"),), [4, 4], 0),
    "a gateway without places": ((whole(b"{}", 503, "Retry-After: 0"),), [4, 4], 0),
    "a proxy that gave up": ((whole(b"<html>", 504),), [4, 4], 0),
    "an answer that is cut between lines": ((chunked(GOOD, GOOD, end=b""),), [4, 2], 0),
    "an answer that is cut in a line": ((chunked(GOOD, GOOD[:9], end=b""),), [4, 3], 0),
    "a whole answer with lines missing": ((chunked(GOOD),), [4, 3], 0),
    "a connection that breaks": ((b"HTTP/1.1 ",), [4, 4], 0),
    "a line to be asked for again": ((chunked(GOOD, failed(1, status=503, retry_after=1), GOOD, GOOD),), [4, 1], 0),
    "a line that failed once": ((chunked(failed(0, status=502), GOOD, GOOD, GOOD),), [4, 1], 0),
    "a line that failed twice": ((chunked(failed(0, status=504), GOOD, GOOD, GOOD), chunked(failed(0, status=504))), [4, 1], 3),
    "a line that can't be answered": ((chunked(GOOD, failed(1, status=422), GOOD, GOOD),), [4], 3),
    "a post that is too large": ((LARGE,), [4, 2, 2], 0),
    "a line that is too large": ((LARGE, LARGE, LARGE), [4, 2, 1, 1, 2], 3),
}


@pytest.mark.parametrize(("script", "posts", "code"), AGAIN.values(), ids=AGAIN)
async def test_what_can_be_got_by_asking_again_is(
    tmp_path: Path, script: tuple[bytes, ...], posts: list[int], code: int
) -> None:
    async with Scripted(*script).serving() as gateway:
        result = await bulk(gateway.url, "key", ndjson(tmp_path / "a.ndjson", 4), "--model", "m")
    assert result.exit_code == code, result.output
    assert gateway.posts == posts
    assert sum("error" in line for line in answers(tmp_path / "a.m.ndjson")) == (code == 3)


STRANGE = {
    "a page for people": whole(b"<html>Log in,\nplease,\nhere, or\nthere,\n</html>", 200, "Content-Type: text/html"),
    "lines of something else": chunked(b"one, two\n", GOOD, GOOD, GOOD),
    "a list with an error": chunked(b'{"index":["error",{"error":1}]}\n', GOOD, GOOD, GOOD),
    "an error that is a word": chunked(b'{"index":0,"error":"some"}\n', GOOD, GOOD, GOOD),
    "a pause that is no number": chunked(failed(0, status=503, retry_after=[1]), GOOD, GOOD, GOOD),
    "a pause without end": chunked(b'{"index":0,"error":{"retry_after":1e999}}\n', GOOD, GOOD, GOOD),
    "more lines than were sent": chunked(*[GOOD] * 5),
    "no gzip": whole(b"abc", 200, "Content-Type: application/x-ndjson", "Content-Encoding: gzip"),
    "problems without details": whole(b'{"errors":[{}],"detail":5}', 422),
}


@pytest.mark.parametrize("answer", STRANGE.values(), ids=STRANGE)
async def test_what_no_conch_would_answer_is_kept_by_nobody(tmp_path: Path, answer: bytes) -> None:
    async with Scripted(answer).serving() as gateway:
        result = await bulk(gateway.url, "key", ndjson(tmp_path / "a.ndjson", 4), "--model", "m")
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 1
    assert "no Conch" in result.stderr or "no problem details" in result.stderr
    assert set((tmp_path / "a.m.ndjson").read_bytes().splitlines()) <= {b'{"index":%d,"result":{}}' % at for at in range(4)}


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"errand":{},"lines":-1}', "\0"])
async def test_a_journal_that_was_tampered_with_is_not_believed(tmp_path: Path, content: str) -> None:
    out = tmp_path / "a.m.ndjson"
    async with Scripted().serving() as gateway:
        command = (gateway.url, "key", ndjson(tmp_path / "a.ndjson", 4), "--model", "m")
        await bulk(*command)
        written = out.read_bytes()
        (tmp_path / "a.m.ndjson.journal").write_text(content)
        result = await bulk(*command)
        assert (result.exit_code, "--restart begins anew" in result.stderr) == (1, True), result.output
        assert out.read_bytes() == written
        assert (await bulk(*command, "--restart")).exit_code == 0


async def test_it_gives_up_after_so_long_without_an_answer_and_goes_on_when_told(tmp_path: Path) -> None:
    command = (ndjson(tmp_path / "a.ndjson", 4), "--model", "m", "--lines", "2", "--posts", "1", "--patience", "0")
    async with Scripted(chunked(GOOD, GOOD), *[whole(b"{}", 502)] * 9).serving() as gateway:
        result = await bulk(gateway.url, "key", *command)
        assert result.exit_code == 1
        assert "goes on from line 2" in result.stderr
        gateway.script.clear()
        assert (await bulk(gateway.url, "key", *command)).exit_code == 0
    assert len(answers(tmp_path / "a.m.ndjson")) == 4


async def test_answers_are_compared_with_those_of_an_earlier_system(
    staged: RunningGateway, stage: FakeTriton, tmp_path: Path
) -> None:
    file = tmp_path / "a.ndjson"
    old = ["red", "red", "blue", None]
    file.write_text("".join(json.dumps({"id": f"r{at}", "text": "a", "old": label}) + "\n" for at, label in enumerate(old)))
    result = await send(staged, file, "--model", "words", "--expect", "old", "--at-least", "0.9")
    assert result.exit_code == 4
    assert "3 lines compared, 2 agree (66.67%); 1 could not be compared" in result.stdout
    assert "line 2 (r2): expected blue, got red with 0.0000" in result.stdout
    result = await send(staged, file, "--model", "words", "--expect", "old", "--at-least", "0.6")
    assert result.exit_code == 0


BEST = {"labels": [{"label": "good", "score": 0.8}, {"label": "bad", "score": 0.2}]}
PAIRS: list[tuple[Any, dict[str, Any], str]] = [
    ("good", BEST, "agrees"),
    ("bad", BEST, "differs"),
    (0.805, BEST, "agrees"),
    ("0.805", BEST, "agrees"),
    (0.7, BEST, "differs"),
    ({"good": 0.8, "bad": 0.2}, BEST, "agrees"),
    ('{"bad": 0.3}', BEST, "differs"),
    ({"odd": 0.5}, BEST, "incomparable"),
    (None, BEST, "incomparable"),
    ("", {}, "incomparable"),
    ([1.0, 0.0], {"embedding": [2.0, 0.0]}, "agrees"),
    ("[1, 0]", {"embedding": [0.0, 1.0]}, "differs"),
    ([1.0], {"embedding": [0.0, 1.0]}, "incomparable"),
    ([0, 0], {"embedding": [0.0, 1.0]}, "differs"),
]


@pytest.mark.parametrize(("expected", "result", "outcome"), PAIRS)
def test_a_value_is_compared_by_what_it_is(expected: Any, result: dict[str, Any], outcome: str) -> None:
    agreement = Agreement(0.01)
    agreement.add(expected, {"index": 0, "result": result})
    counts = (agreement.agreed, agreement.compared - agreement.agreed, agreement.left_out)
    assert counts == {"agrees": (1, 0, 0), "differs": (0, 1, 0), "incomparable": (0, 0, 1)}[outcome]


def test_the_worst_come_first_and_no_more_than_ten() -> None:
    agreement = Agreement(0.01, "bad")
    for at in range(100):
        agreement.add(at / 100, {"index": at, "id": f"r{at}", "result": BEST})
    [summary, *worst] = agreement.report()
    assert "100 lines compared, 2 agree" in summary
    assert len(worst) == 10
    assert worst[0] == "  line 99 (r99): expected bad with 0.9900, got 0.2000"
