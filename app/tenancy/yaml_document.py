"""YAML with two manners that PyYAML lacks: a name that stands twice is a fault, and a large file costs little memory.

PyYAML keeps a node with two marks for every word of a file: 100 MB for 10,000 tenants, which the process never gives back
whole, and most of the time to load them. Here values come straight from the parser's events; nodes, which know the lines, are
made only to tell of a fault.
"""

from collections.abc import Callable, Hashable
from typing import Any

import yaml

_MERGE = "tag:yaml.org,2002:merge"
_MOST_PLAIN = 1000


class YamlInvalid(ValueError):
    def __init__(self, line: int, sentence: str) -> None:
        super().__init__(sentence)
        self.line = line
        self.sentence = sentence


class YamlDocument:
    """`value` is None where there is nothing in the file."""

    def __init__(self, text: bytes) -> None:
        """Raises `YamlInvalid`."""
        self._text = text
        self._root: yaml.Node | None = None
        try:
            self.value = _Composer(text).document()
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 0
            raise YamlInvalid(line, error.problem or error.context or type(error).__name__) from None
        except RecursionError:
            raise YamlInvalid(0, "nested too deeply") from None
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise YamlInvalid(0, "not UTF-8, or with characters that YAML does not allow") from error

    def line(self, at: tuple[int | str, ...]) -> int:
        """The line, from 1, of the deepest part of the path that is there."""
        if self._root is None:
            self._root = yaml.compose(self._text, Loader=yaml.CSafeLoader)
        node, line = self._root, 0
        for part in at:
            found = _child(node, part)
            if found is None:
                break
            line, node = found
        return line + 1


class _Composer:
    def __init__(self, text: bytes) -> None:
        self._loader = yaml.CSafeLoader(text)
        self._next: Callable[[], Any] = self._loader.get_event
        self._anchors: dict[str, Any] = {}
        self._plain: dict[str, Any] = {}

    def document(self) -> Any:
        self._next()
        if self._loader.check_event(yaml.StreamEndEvent):
            return None
        self._next()
        value = self._value(self._next())
        self._next()
        if not self._loader.check_event(yaml.StreamEndEvent):
            raise _fault("only one document is expected", self._next())
        return value

    def _value(self, event: Any) -> Any:
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise _fault("an alias without its anchor", event)
            return self._anchors[event.anchor]
        if isinstance(event, yaml.ScalarEvent):
            value = self._scalar(event)
        elif isinstance(event, yaml.MappingStartEvent):
            value = self._mapping()
        else:
            value = self._sequence()
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        return value

    def _scalar(self, event: Any) -> Any:
        if event.tag is None and not event.implicit[0]:
            return event.value
        if event.tag is None and event.value in self._plain:
            return self._plain[event.value]
        try:
            value = self._constructed(event)
        except (ValueError, TypeError, LookupError, AttributeError):  # PyYAML's constructors raise any of them
            raise _fault("not a value of its kind", event) from None
        if event.tag is None and len(self._plain) < _MOST_PLAIN:
            self._plain[event.value] = value
        return value

    def _constructed(self, event: Any) -> Any:
        loader: Any = self._loader
        tag = event.tag or loader.resolve(yaml.ScalarNode, event.value, event.implicit)
        return event.value if tag == _MERGE else loader.construct_object(yaml.ScalarNode(tag, event.value, event.start_mark))

    def _sequence(self) -> list[Any]:
        values = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            values.append(self._value(event))
        return values

    def _mapping(self) -> dict[Any, Any]:
        values: dict[Any, Any] = {}
        merged: dict[Any, Any] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key, value = self._value(event), self._value(self._next())
            if key == "<<" and event.implicit[0]:
                merged = {**_merged(value, event), **merged}
            elif not isinstance(key, Hashable):
                raise _fault("a name can't be a list or a mapping", event)
            elif key in values:
                raise _fault(f"{key} is there twice", event)
            else:
                values[key] = value
        return {**merged, **values} if merged else values


def _merged(value: Any, event: Any) -> dict[Any, Any]:
    """Of several mappings the first wins, as in YAML 1.1."""
    mappings = value if isinstance(value, list) else [value]
    if not all(isinstance(mapping, dict) for mapping in mappings):
        raise _fault("only a mapping can be merged", event)
    return {name: of for mapping in reversed(mappings) for name, of in mapping.items()}


def _fault(sentence: str, event: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=sentence, problem_mark=event.start_mark)


def _child(node: yaml.Node | None, part: int | str) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        return next(((key.start_mark.line, value) for key, value in node.value if key.value == str(part)), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part].start_mark.line, node.value[part]
    return None
