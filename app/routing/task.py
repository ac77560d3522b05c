"""What each task needs of an ensemble: the roles that tensors play."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from app.routing.spans import verify_spans
from app.triton.ensemble import Verify

Kind = Literal["vector", "scalar", "rows"]
"""`vector`: a fixed number of values for each item; `scalar`: one; `rows`: any number, of a fixed width."""

_FLOATS = ("FP32", "FP64")
_INTEGERS = ("INT32", "INT64")


@dataclass(frozen=True, slots=True)
class Role:
    name: str
    dtypes: tuple[str, ...]
    kind: Kind
    required: bool = True
    width: int = 1
    """Of `rows`: how many values each has."""
    labelled: bool = False
    """Its values are scores, one for each label, or hold indices of labels."""


TOKENS = Role("tokens", _INTEGERS, "scalar", required=False)
TRUNCATED = Role("truncated", ("BOOL",), "scalar", required=False)
ERROR = Role("error", ("BYTES",), "scalar", required=False)
_REMARKS = (TOKENS, TRUNCATED, ERROR)
"""What any ensemble may say of an item beside its answer. An `error` that is not empty refuses that item and no other."""


@dataclass(frozen=True, slots=True)
class Task:
    """`open`: any further role is a head, whose values are scores, one for each label; a caller may choose among heads."""

    name: str
    roles: tuple[Role, ...]
    open: bool = False
    bare: bool = False
    """It needs nothing: any model will do, and is asked by its own tensors."""
    inputs: tuple[str, ...] = ("text",)
    """The roles of the tensors that it fills: BYTES, one for each item."""
    verify: Verify | None = None
    """Whether rows that are well-formed can be true."""

    def role(self, name: str) -> Role | None:
        for role in self.roles:
            if role.name == name:
                return role
        return Role(name, _FLOATS, "vector", required=False, labelled=True) if self.open else None


TASKS = {
    task.name: task
    for task in (
        Task("classify", (Role("scores", _FLOATS, "vector", labelled=True), *_REMARKS)),
        Task("embeddings", (Role("embedding", ("FP32",), "vector"), *_REMARKS)),
        Task(
            "entities",
            (Role("spans", _INTEGERS, "rows", width=3, labelled=True), Role("span_scores", _FLOATS, "rows"), *_REMARKS),
            verify=verify_spans,
        ),
        Task("analyze", (Role("embedding", ("FP32",), "vector", required=False), *_REMARKS), open=True),
        Task("rerank", (Role("score", _FLOATS, "scalar"), *_REMARKS), inputs=("text", "query")),
        Task("infer", (), bare=True),
    )
}


def features(roles: Iterable[str]) -> tuple[str, ...]:
    """The roles that are answers, and not remarks on the item."""
    return tuple(role for role in roles if role not in ("tokens", "truncated", "error"))
