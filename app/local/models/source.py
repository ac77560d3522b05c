"""`model_repository/`: the models as they are written, and how they become a repository that Triton loads."""

import ast
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

CHECKSUMS = "checksums.txt"
PLACEHOLDER = "An ensemble has no files, it is its config.pbtxt alone; but Triton and S3 want this folder not to be empty.\n"
LABELS = re.compile(r'"@(labels/[\w.-]+)"')
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc")


@dataclass(frozen=True, slots=True)
class Source:
    """A folder per model, and beside them what they share: steps, labels, heads, and the checksums of what is made."""

    root: Path

    def models(self) -> list[Path]:
        return sorted(config.parent for config in self.root.glob("*/config.pbtxt"))

    def checksums(self) -> dict[str, str]:
        """The SHA-256 of each made file by its path. The format is that of sha256sum, which can read it as well."""
        lines = (self.root / CHECKSUMS).read_text().splitlines()
        return {path: sha256 for sha256, path in (line.split("  ", 1) for line in lines)}

    def assemble(self, made: Mapping[str, Path], target: Path) -> None:
        """`made` are the files that the source lacks, by their paths in the repository; they are linked, not copied."""
        for model in self.models():
            shutil.copytree(model, target / model.name, ignore=LEFT_OUT)
            self._complete(target / model.name)
        for path, file in made.items():
            _link(file, target / path)

    def _complete(self, model: Path) -> None:
        for config in model.rglob("*.pbtxt"):
            config.write_text(with_labels(config.read_text(), self.root))
        for script in list(model.glob("*/model.py")):
            for module in steps_of(script, self.root / "steps"):
                shutil.copyfile(module, script.with_name(module.name))
        if not any(child.name.isdecimal() for child in model.iterdir()):
            (model / "1").mkdir()
            (model / "1" / "placeholder").write_text(PLACEHOLDER)


def with_labels(config: str, root: Path) -> str:
    """Puts the lists of labels where the config names them: it can hold them as one line of quoted JSON only."""
    return LABELS.sub(lambda match: json.dumps(_one_line(root / match[1])), config)


def _one_line(labels: Path) -> str:
    return json.dumps(json.loads(labels.read_text()))


def steps_of(script: Path, steps: Path) -> set[Path]:
    """The shared modules that a script imports, and those that they import in turn."""
    direct = {steps / f"{name}.py" for name in _imports(script) if (steps / f"{name}.py").is_file()}
    return direct.union(*(steps_of(module, steps) for module in direct))


def _imports(script: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(script.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _link(file: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, target)
    except OSError:  # another file system, or one without hard links
        shutil.copyfile(file, target)
