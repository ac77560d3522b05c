"""Which Tritons are fit for production."""

import re

FLOOR = (2, 70)
"""Triton 26.06 calls itself 2.70. Below it there are known holes, and faults that deadlines bring out; `docs/triton.md`."""


def is_outdated(version: str) -> bool:
    """Whether it is known to be older; a version that can't be read is not."""
    match = re.match(r"(\d{1,6})\.(\d{1,6})", version)
    return match is not None and (int(match[1]), int(match[2])) < FLOOR
