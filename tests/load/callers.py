"""So many callers, each on a connection of its own, each asking again as soon as it is answered."""

import asyncio
from dataclasses import dataclass
from time import perf_counter


@dataclass(frozen=True, slots=True)
class Load:
    requests: int
    failures: int
    seconds: float
    latencies: tuple[float, ...]

    def percentile(self, share: float) -> float:
        """Seconds."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def drive(address: str, request: bytes, *, callers: int, requests: int) -> Load:
    """`request` is a whole HTTP/1.1 request; every answer must have a Content-Length. What is not 200 is a failure."""
    host, _, port = address.rpartition(":")
    left = iter(range(requests))
    latencies: list[float] = []
    failures = 0

    async def call() -> None:
        nonlocal failures
        reader, writer = await asyncio.open_connection(host, int(port))
        for _ in left:
            started = perf_counter()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(_length(head))
            latencies.append(perf_counter() - started)
            failures += not head.startswith(b"HTTP/1.1 200")
        writer.close()
        await writer.wait_closed()

    started = perf_counter()
    await asyncio.gather(*(call() for _ in range(callers)))
    return Load(requests, failures, perf_counter() - started, tuple(latencies))


def _length(head: bytes) -> int:
    fields = head.lower()
    at = fields.index(b"content-length:") + len(b"content-length:")
    return int(fields[at : fields.index(b"\r\n", at)])


def post(path: str, key: str, body: bytes, *fields: str) -> bytes:
    head = [f"POST {path} HTTP/1.1", "Host: bench", f"Authorization: Bearer {key}", "Content-Type: application/json", *fields]
    return "\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode() + body
