"""What Snakemake cannot read: looked at before it does, which would end in a traceback."""

from __future__ import annotations

from pathlib import Path

import yaml


class UnreadableError(ValueError):
    """A folder or file that Snakemake cannot read; one sentence that begins with its name."""


def refuse_braces(path: Path | str) -> None:
    """Raise UnreadableError for a path in which Snakemake sees wildcards."""
    if set("{}") & set(str(path)):
        raise UnreadableError(
            f"'{path}' has '{{' or '}}' in its name, which Snakemake takes for wildcards; rename "
            "it."
        )


def refuse_unreadable(path: Path | str) -> None:
    """Raise UnreadableError for a YAML file that is no text, or whose values YAML cannot make.

    That it is missing, is no YAML or no mapping, its readers say in sentences of their own.
    """
    try:
        yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (FileNotFoundError, yaml.YAMLError):
        return
    except UnicodeDecodeError as err:
        line = err.object[: err.start].count(b"\n") + 1
        raise UnreadableError(f"'{path}', line {line}: not UTF-8; save it as that.") from err
    except OSError as err:
        raise UnreadableError(f"'{path}' cannot be read ({err.strerror}).") from err
    except RecursionError as err:
        raise UnreadableError(f"'{path}' holds lists or mappings nested too deep.") from err
    except ValueError as err:
        raise UnreadableError(
            f"'{path}' holds a number of too many digits, or a date that there is not."
        ) from err
