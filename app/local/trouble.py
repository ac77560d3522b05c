"""What stands in the way of the embedded stack."""

from enum import IntEnum


class Exit(IntEnum):
    """The exit codes of `conch up`; `docs/local.md` explains them."""

    STOPPED = 0
    FAILED = 1
    UNSUITABLE = 3
    TAKEN = 4
    NOT_READY = 5
    INTERRUPTED = 130


class Trouble(Exception):
    """A sentence for a person, and a second one that says how to mend it."""

    def __init__(self, what: str, mend: str, code: Exit = Exit.FAILED) -> None:
        super().__init__(what)
        self.what = what
        self.mend = mend
        self.code = code

    def __str__(self) -> str:
        return f"{self.what}\n{self.mend}"
