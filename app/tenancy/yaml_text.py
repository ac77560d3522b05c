"""Where in the text of a YAML file an item of a list stands, to put one more there or to take it out.

What is cut and pasted here is a good guess; whoever asks for it must look at what the new text means.
"""

import re
from typing import Any

import yaml

from app.tenancy.yaml_document import YamlInvalid


class NotPlain(ValueError):
    """The place is written in a way that is not understood here."""


def with_item(text: str, at: tuple[str, ...], name: str, item: str) -> str:
    """`item` is in flow style, on one line, and becomes the last of the list `name`, which may be missing."""
    owner = _node(text, at)
    key, values = _entry(owner, name)
    if key is None:
        if owner.flow_style:
            return _insert(text, _end(owner.value[-1][1]), f", {name}: [{item}]")
        return _insert_line(text, _end(owner.value[-1][1]), owner.start_mark.column, f"{name}: [{item}]")
    if isinstance(values, yaml.SequenceNode):
        return _appended(text, values, item)
    raise NotPlain


def without_item(text: str, at: tuple[str, ...], name: str, item_id: str) -> str:
    """Without the item whose member `id` is `item_id`."""
    key, values = _entry(_node(text, at), name)
    if not isinstance(values, yaml.SequenceNode):
        raise NotPlain
    place = next((place for place, item in enumerate(values.value) if _entry(item, "id")[1].value == item_id), None)
    if place is None:
        raise NotPlain
    if values.flow_style:
        return _cut_from_flow(text, values, place)
    start, end = values.value[place].start_mark.index, _end(values.value[place])
    if not re.fullmatch(r"[ \t]*-[ \t]+", text[_line_start(text, start) : start]):
        raise NotPlain
    rest = _cut_lines(text, start, end)
    return rest if len(values.value) > 1 else _insert(rest, _colon(text, key), " []")


def _appended(text: str, values: yaml.SequenceNode, item: str) -> str:
    if values.flow_style and not values.value:
        return _insert(text, values.start_mark.index + 1, item)
    if values.flow_style:
        return _insert(text, values.value[-1].end_mark.index, f", {item}")
    return _insert_line(text, _end(values.value[-1]), values.start_mark.column, f"- {item}")


def _cut_from_flow(text: str, values: yaml.SequenceNode, place: int) -> str:
    items = values.value
    start, end = items[place].start_mark.index, items[place].end_mark.index
    alone = not text[_line_start(text, start) : start].strip()
    if alone and re.fullmatch(r"\s*,?\s*(#.*)?", text[end : _line_end(text, end)]):
        return _cut_lines(text, start, end)
    if place + 1 < len(items):
        return text[:start] + text[items[place + 1].start_mark.index :]
    if place:
        return text[: items[place - 1].end_mark.index] + text[end:]
    return text[:start] + text[values.end_mark.index - 1 :]


def _node(text: str, at: tuple[str, ...]) -> Any:
    try:
        node = yaml.compose(text, Loader=yaml.CSafeLoader)
    except yaml.YAMLError:
        raise YamlInvalid(0, "not YAML") from None
    for name in at:
        _, node = _entry(node, name)
    return node


def _entry(node: Any, name: str) -> tuple[Any, Any]:
    """The nodes of a member's name and of its value."""
    if not isinstance(node, yaml.MappingNode):
        raise NotPlain
    return next(((key, value) for key, value in node.value if key.value == name), (None, None))


def _end(node: Any) -> int:
    """The parser ends a block only where the next one begins, with all comments between them."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        raise NotPlain
    return int(node.end_mark.index)


def _colon(text: str, key: Any) -> int:
    match = re.compile(r"[ \t]*:").match(text, key.end_mark.index)
    if match is None:
        raise NotPlain
    return match.end()


def _line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _insert(text: str, at: int, addition: str) -> str:
    return text[:at] + addition + text[at:]


def _insert_line(text: str, after: int, indent: int, line: str) -> str:
    end = _line_end(text, after)
    if text[end - 1] == "\r":
        end -= 1
    return _insert(text, end, ("\r\n" if "\r\n" in text else "\n") + " " * indent + line)


def _cut_lines(text: str, start: int, end: int) -> str:
    return text[: _line_start(text, start)] + text[_line_end(text, end) + 1 :]
