"""Finds and loads chapters. A chapter is one folder; nothing else names it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from ..core.display import one_line
from ..workloads.loader import is_folder, once
from ..workloads.user_code import blamed
from .contract import Chapter


class ChapterFolderError(ValueError):
    """A chapter's folder is missing or does not keep the contract; one sentence."""


@dataclass(frozen=True)
class ChapterFolder:
    """A chapter loaded from its folder: what ``chapter.py`` defines, and its options' schema."""

    path: Path
    chapter: Chapter
    # JSON schema of what the configuration may tell the chapter.
    options: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The folder's name, which is the chapter's and that of its Python package."""
        return self.path.name

    @property
    def rules(self) -> Path | None:
        """The chapter's ``rules.smk``, which the Snakefile includes; None where it has no rules."""
        path = self.path / "rules.smk"
        return path if path.is_file() else None


def find_chapters(folders: Iterable[Path]) -> dict[str, Path]:
    """Folders of chapters by name; a folder is a chapter when it holds ``chapter.py``."""
    chapters: dict[str, Path] = {}
    for folder in once(folders):
        if not is_folder(folder):
            raise ChapterFolderError(f"chapter_folders: '{folder}' is not a folder.")
        for path in sorted(p.parent for p in folder.glob("*/chapter.py")):
            if path.name in chapters:
                raise ChapterFolderError(
                    f"chapter_folders: chapter '{path.name}' exists twice, in "
                    f"'{chapters[path.name].parent}' and '{folder}'; rename one."
                )
            chapters[path.name] = path
    return chapters


def load_chapter(path: Path) -> ChapterFolder:
    """Import a chapter's ``chapter.py`` and read its options' schema. Or ChapterFolderError."""
    if not path.name.isidentifier():
        raise ChapterFolderError(
            f"Chapter '{path.name}': its folder's name must consist of letters, digits and '_'."
        )
    try:
        module = import_module(f"{package(path)}.chapter")
    except (Exception, SystemExit) as err:
        raise ChapterFolderError(
            f"Chapter '{path.name}': chapter.py does not load "
            f"({blamed(path / 'chapter.py', 'it', err)})."
        ) from err
    chapter = getattr(module, "CHAPTER", None)
    if not isinstance(chapter, Chapter):
        raise ChapterFolderError(
            f"Chapter '{path.name}': chapter.py must define CHAPTER, an instance of Chapter."
        )
    lacking = [name for name in ("document", "kernels") if not hasattr(chapter, name)]
    if lacking:
        raise ChapterFolderError(
            f"Chapter '{path.name}': its CHAPTER does not define '{lacking[0]}'."
        )
    return ChapterFolder(path, chapter, _options(path))


def _options(path: Path) -> Mapping[str, Any]:
    file = path / "options.schema.yaml"
    if not file.is_file():
        return {"type": "object", "additionalProperties": False}
    try:
        return _schema(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeError, jsonschema.SchemaError) as err:
        why = one_line(getattr(err, "message", str(err)))
        raise ChapterFolderError(
            f"Chapter '{path.name}': options.schema.yaml is no JSON schema ({why})."
        ) from err


@cache
def _schema(text: str) -> Mapping[str, Any]:
    """The schema that is written so. Raises yaml.YAMLError, jsonschema.SchemaError."""
    schema: Mapping[str, Any] = yaml.CSafeLoader(text).get_single_data()
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema


def package(path: Path) -> str:
    """Name under which the chapter in `path` can be imported from now on."""
    folder = str(path.parent.resolve())
    if folder not in sys.path:
        sys.path.append(folder)
    return path.name
