"""What a verdict tells of each limit, as a caller reads it."""

import re

from app.admission.limiter import Verdict


def left(verdict: Verdict) -> dict[str, int]:
    """What remains, by the name of the limit."""
    told = dict(verdict.headers).get(b"ratelimit", b"").decode()
    return {name: int(remaining) for name, remaining in re.findall(r'"([^"]*)";r=(\d+);t=\d+', told)}
