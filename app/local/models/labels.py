"""The labels of each task as lists of strings, from the files that define them. `model_repository/labels/` holds the result."""

import json

from app.local.models import bayes
from app.local.models.assets import Material


def topics(material: Material) -> list[str]:
    return [f"{' > '.join(topic['path'])} ({topic['id']})" for topic in _taxonomy(material)]


def topic_phrases(material: Material) -> list[str]:
    """The sentence whose vector stands for each topic: the path from its end, e.g. "sedan, auto body styles, automotive"."""
    return [f"This text is about {', '.join(reversed(topic['path'])).lower()}." for topic in _taxonomy(material)]


def languages(material: Material) -> list[str]:
    return bayes.labels(material.language_tables)


def pii(material: Material) -> list[str]:
    """Entity types. Token labels are O, then B- and I- of each type in turn: label i is of type (i - 1) // 2."""
    names: dict[str, str] = material.config("rampart/config.json")["id2label"]
    return [names[str(i)].removeprefix("B-") for i in range(1, len(names), 2)]


def _taxonomy(material: Material) -> list[dict[str, list[str]]]:
    return list(json.loads(material.member("iab/taxonomy.json")))
