"""Check files before Snakemake reads them, because an unreadable file ends it in a traceback."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from .errors import UnreadableError


def refuse_braces(path: Path | str) -> None:
    """Raise UnreadableError for a path in which Snakemake sees wildcards."""
    if set("{}") & set(str(path)):
        raise UnreadableError(
            f"'{path}' has '{{' or '}}' in its name, which Snakemake takes for wildcards; rename "
            "it."
        )


def refuse_configfiles(arguments: Sequence[str]) -> None:
    """Raise UnreadableError for an invalid --configfile, which Snakemake loads first."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--configfile", "--configfiles", nargs="+", action="extend", default=[])
    for path in parser.parse_known_args(arguments)[0].configfile:
        read_mapping(path)


def read_mapping(path: Path | str) -> dict[Any, Any]:
    """Return the mapping in a YAML or JSON file.

    Raises UnreadableError, if possible with the line.
    """
    try:
        value = _parse(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as err:
        raise UnreadableError(f"'{path}' does not exist.") from err
    except UnicodeDecodeError as err:
        line = err.object[: err.start].count(b"\n") + 1
        raise UnreadableError(f"'{path}', line {line}: not UTF-8; save it as that.") from err
    except OSError as err:
        raise UnreadableError(f"'{path}' cannot be read ({err.strerror}).") from err
    except RecursionError as err:
        raise UnreadableError(
            f"'{path}' contains lists or mappings that are nested too deep."
        ) from err
    except _FaultyLineError as err:
        raise UnreadableError(f"'{path}', {err}.") from err
    if value is None:
        raise UnreadableError(f"'{path}' is empty; write keys and values, such as 'run: mine'.")
    if not isinstance(value, dict):
        raise UnreadableError(
            f"'{path}' must be a mapping of keys to values, such as 'run: mine' with a blank after "
            "the colon."
        )
    return value


# Words of a command line that are not texts, by YAML 1.2. In YAML 1.1, `on` is a truth value and
# `010` an octal number, but not here. A number with more digits than Python converts stays a text.
_WHOLE = re.compile(r"[-+]?[0-9]{1,300}")
_NUMBER = re.compile(
    r"[-+]?([0-9]{1,300}(\.[0-9]{,300})?|\.[0-9]{1,300})(e[-+]?[0-9]{1,4})?", re.IGNORECASE
)
_WORDS = {"true": True, "True": True, "false": False, "False": False, "null": None}


def typed(value: Any) -> Any:
    """Convert a text from a command line to a number, a truth value or null if it is one."""
    if isinstance(value, dict):
        return {key: typed(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [typed(inner) for inner in value]
    if not isinstance(value, str):
        return value
    if _WHOLE.fullmatch(value):
        return int(value)
    return float(value) if _NUMBER.fullmatch(value) else _WORDS.get(value, value)


class _FaultyLineError(Exception):
    """Fault of a text: the number of its line, and the fault as a clause."""

    def __init__(self, line: int, fault: str) -> None:
        super().__init__(f"line {line + 1}: {fault}")


class _Loader(yaml.SafeLoader):
    """YAML loader that rejects duplicate keys and reports the line of an invalid value."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag.endswith(":merge"):
                continue
            line = key.start_mark.line
            if (key.tag, key.value) in lines:
                first = lines[key.tag, key.value]
                raise _FaultyLineError(
                    line,
                    f"the key '{key.value}' is already in line {first + 1}; remove one",
                )
            lines[key.tag, key.value] = line
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except ValueError as err:
            fault = "a number of too many digits, or a date that there is not"
            raise _FaultyLineError(node.start_mark.line, fault) from err


def _parse(text: str) -> Any:
    """Parse YAML, or else JSON; raise _FaultyLineError if `text` is neither."""
    try:
        return _Loader(text).get_single_data()
    except yaml.YAMLError as err:
        try:
            # Tabs may indent JSON, but not YAML.
            return json.loads(text)
        except ValueError:
            raise _fault_of(err, text) from err


def _fault_of(err: yaml.YAMLError, text: str) -> _FaultyLineError:
    if isinstance(err, yaml.reader.ReaderError):
        # Its position is that of a character.
        return _FaultyLineError(text.count("\n", 0, err.position), f"not valid YAML: {err.reason}")
    if not isinstance(err, yaml.MarkedYAMLError) or err.problem_mark is None:
        return _FaultyLineError(0, f"not valid YAML: {' '.join(str(err).split())}")
    fault = f"{err.problem}"
    if err.context and err.context_mark:
        fault = f"{err.context} that begins in line {err.context_mark.line + 1}, {fault}"
    hint = "; indent by spaces" if "'\\t'" in fault else ""
    return _FaultyLineError(err.problem_mark.line, f"not valid YAML: {fault}{hint}")
