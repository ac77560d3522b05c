"""What an ensemble's members add up to."""

from collections.abc import Iterator, Mapping

from app.triton.model import Model


def capacity(model: Model, steps: Mapping[str, Model]) -> int:
    """How many items are computed at once: those of the narrowest member; 0 where the config of one is not known."""
    members = [steps.get(name) for name, _ in model.steps] if model.steps else [model]
    return min(member.instances * max(1, member.max_batch) if member else 0 for member in members)


def remarks(model: Model, steps: Mapping[str, Model]) -> Iterator[str]:
    members = [steps[name] for name, _ in model.steps if name in steps] if model.steps else [model]
    for member in {member.name: member for member in members}.values():
        if not member.keeps_timeouts:
            yield (
                f"{member.name} ignores the timeouts that are sent: its dynamic_batching needs a queue policy with"
                " default_timeout_microseconds and allow_timeout_override"
            )
        if member.priority_levels < 2:
            yield f"{member.name} ignores the priorities that plans give: its dynamic_batching has no priority_levels"
