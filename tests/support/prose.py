"""Find phrases that make the project's English hard to read, and count them by kind of text.

    PYTHONPATH=workflow/scripts python tests/support/prose.py [RULE ...]

Without arguments it prints one table of counts. With names of rules (or "all") it also lists each
match. `docs/contributing.md` has the style sheet. On the documentation of httpx, nvbench and
Kernel Tuner (32,864 words) these rules match 0.15 times in 1,000 words.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpushmoo.core.paths import ROOT


@dataclass(frozen=True)
class Rule:
    """A pattern to avoid, a sentence that it matches, and the same sentence in plain English."""

    pattern: str
    bad: str
    better: str
    ignore_case: bool = True

    def matches(self, text: str) -> Iterator[re.Match[str]]:
        """Yield each match in `text`, in which inline code counts as one word."""
        return re.finditer(self.pattern, text, re.IGNORECASE if self.ignore_case else 0)


RULES = {
    "told": Rule(
        r"\b(is|are|was|not|nothing|been|be) (not )?told\b"
        r"|\btold (from|apart|by|to|of|how|which|what|none)\b"
        r"|\btells? (it |them |no |how |of |the |its |whether |that |nothing)",
        "The worker is told of each job.",
        "The server sends each job to the worker.",
    ),
    "held": Rule(
        r"\b(held|hold|holds|holding) (?:\w+ ){0,3}against\b|\bheld (in|to|back|up)\b",
        "Times are held against the model.",
        "gpushmoo compares times with the model.",
    ),
    "stands": Rule(
        r"\bstands? (twice|in|for|before|behind|beside|first|there|still|out)\b|\bstood\b",
        "The size stands twice.",
        "The size is listed twice.",
    ),
    "lies": Rule(
        r"\b(lies?|lay)\b",
        "The median lies in the interval.",
        "The median is inside the interval.",
    ),
    "taken": Rule(
        r"\btak(es?|en|ing) over\b|\b(is|are) (not )?taken\b(?! (by|from|at|in))|\bnot taken\b",
        "Earlier cells are taken over.",
        "The run reuses earlier cells.",
    ),
    "surely": Rule(
        r"\b(surely|certainly|for certain)\b",
        "The kernel surely got slower.",
        "The kernel got significantly slower.",
    ),
    "of its own": Rule(
        r"\bof (its|their|his|one's) own\b",
        "Each job has a process of its own.",
        "Each job has a separate process.",
    ),
    "anew": Rule(
        r"\b(anew|therein|thereof|whereof|mend(ed|s|ing)?|accus\w+)\b",
        "Damaged buffers are mended.",
        "gpushmoo restores damaged buffers.",
    ),
    "what": Rule(
        r"\b(of|by|from|to|for|with|than|as|in|on) what\b|\bthat which\b",
        "It returns the rest of what was read.",
        "It returns the rest of the bytes.",
    ),
    "is no": Rule(
        r"(?<!here )\b(is|are|was|were) no (?!longer|more|less|need|such|way|doubt)[a-z]+"
        r"|\b(is|are|has|have) (?-i:none)\b|\bnone of (the|those|what)\b",
        "A build error is no fault.",
        "A build error does not count as a fault.",
    ),
    "where-clause": Rule(
        r"(?:^|[.;:] |\* )Where (?!to)[a-z]+",
        "Where no device responds, OpenCL is tried.",
        "If no device responds, gpushmoo tries OpenCL.",
        ignore_case=False,
    ),
    "of-clause": Rule(
        r"(?:^|[.;:] |\* )Of (a|an|the|those|each|several|its|cells|what)\b",
        "Of each cell the median is kept.",
        "The file contains the median of each cell.",
        ignore_case=False,
    ),
    "so many": Rule(
        r"\b(so many|as many (cells|seconds|bytes|runs|folders)|in the place of|twice the same"
        r"|many a)\b",
        "So many cells are measured again.",
        "Number of cells that are measured again.",
    ),
}
SEMICOLON = ";"
KINDS = ("docs", "yaml", "docstrings", "comments", "messages", "typ", "experiments", "tests")


@dataclass(frozen=True)
class Text:
    """A paragraph of prose: its kind, its file, the line on which it starts, and its words."""

    kind: str
    file: Path
    line: int
    text: str

    @property
    def words(self) -> int:
        """Return the number of words of letters."""
        return len(re.findall(r"[A-Za-z']+", self.text))

    @property
    def plain(self) -> str:
        """Return the text with one sign for each inline code, address of a link, and gap."""
        without = re.sub(r"``[^`]*``|`[^`]*`|\]\([^)]*\)", "`", self.text)
        return " ".join(without.split())


def texts(root: Path = ROOT) -> Iterator[Text]:
    """Yield all prose of the project: pages, configuration, Python and the report's layout."""
    for pattern in ("*.md", "docs/*.md", "config/*.md", "experiments/*.md"):
        for file in sorted(root.glob(pattern)):
            yield from markdown(file)
    for pattern in ("config/*.yaml", "workflow/**/*.yaml", "profiles/**/*.yaml"):
        for file in sorted(root.glob(pattern)):
            yield from yaml_text(file)
    for folder in ("workflow/scripts", "kernels", "reports", "docs", "examples"):
        for file in sorted((root / folder).rglob("*.py")):
            kind = "tests" if "tests" in file.relative_to(root).parts else None
            yield from python_text(file, kind)
    for folder in ("tests", "experiments"):
        for file in sorted((root / folder).rglob("*.py")):
            if file.name not in ("prose.py", "test_prose.py"):
                yield from python_text(file, folder)
    for file in sorted(root.glob("reports/**/*.typ")):
        yield from ungrouped("typ", file)


def ungrouped(kind: str, file: Path) -> Iterator[Text]:
    """Yield each line of a file by itself."""
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        yield Text(kind, file, number, line)


def markdown(file: Path) -> Iterator[Text]:
    """Yield the paragraphs of a page, list items and table rows, without its code blocks."""
    is_code = False
    lines: list[str] = []
    start = 0
    for number, line in enumerate([*file.read_text(encoding="utf-8").splitlines(), ""], 1):
        is_fence = line.lstrip().startswith("```")
        if lines and (is_fence or not line.strip() or re.match(r"\s*([*|#-]|\d+\.) ?", line)):
            yield Text("docs", file, start, " ".join(lines))
            lines = []
        if is_fence:
            is_code = not is_code
        elif not is_code and line.strip():
            start = start if lines else number
            lines.append(line.strip())


def yaml_text(file: Path) -> Iterator[Text]:
    """Yield comments and the values of describing keys, line by line."""
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if found := re.search(r"#\s?(.*)|(?:description|does|means|help): *(.*)", line):
            yield Text("yaml", file, number, found.group(1) or found.group(2) or "")


def python_text(file: Path, kind: str | None = None) -> Iterator[Text]:
    """Yield docstrings by paragraph, comments by block, and string literals with a blank."""
    source = file.read_text(encoding="utf-8")
    tree = ast.parse(source)
    documented = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                documented.add(first.value)
                line = first.value.lineno
                for part in re.split(r"\n\s*\n", str(first.value.value)):
                    yield Text(kind or "docstrings", file, line, part)
                    line += part.count("\n") + 2
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and node not in documented and " " in node.value.strip():
            yield Text(kind or "messages", file, node.lineno, node.value)
    yield from comments(source, kind or "comments", file)


def comments(source: str, kind: str, file: Path) -> Iterator[Text]:
    """Yield the comments of Python source; those on successive lines are one text."""
    lines = source.splitlines()
    block: list[str] = []
    start = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row = token.start[0]
            if block and (row != start + len(block) or not lines[row - 1].lstrip().startswith("#")):
                yield Text(kind, file, start, " ".join(block))
                block = []
            start = start if block else row
            block.append(token.string[1:].strip())
    if block:
        yield Text(kind, file, start, " ".join(block))


@dataclass
class Count:
    """The words and matches of one kind of text; `rules` has the matches of each rule."""

    words: int = 0
    semicolons: int = 0
    rules: Counter[str] | None = None

    @property
    def errors(self) -> int:
        """Return the number of matches of all rules."""
        return self.rules.total() if self.rules else 0


def counted(found: Iterator[Text]) -> dict[str, Count]:
    """Return the counts of each kind of text."""
    counts = {kind: Count(rules=Counter()) for kind in KINDS}
    for text in found:
        count = counts[text.kind]
        count.words += text.words
        count.semicolons += text.plain.count(SEMICOLON)
        for name, rule in RULES.items():
            assert count.rules is not None
            count.rules[name] += sum(1 for _ in rule.matches(text.plain))
    return counts


def main(names: list[str]) -> None:
    """Print the table of counts, and the matches of the rules called `names`."""
    found = list(texts())
    for text in found:
        for name, rule in RULES.items():
            if name in names or "all" in names:
                for match in rule.matches(text.plain):
                    part = text.plain[max(0, match.start() - 40) : match.end() + 50]
                    print(f"{text.file.relative_to(ROOT)}:{text.line}: {name}: … {part} …")
    counts = counted(iter(found))
    print(f"{'':14}" + "".join(f"{kind:>12}" for kind in KINDS))
    for name in RULES:
        row = [c.rules[name] if c.rules else 0 for c in counts.values()]
        print(f"{name:14}" + "".join(f"{n:>12}" for n in row))
    for label, row in (
        ("errors", [c.errors for c in counts.values()]),
        ("semicolons", [c.semicolons for c in counts.values()]),
        ("words", [c.words for c in counts.values()]),
    ):
        print(f"{label:14}" + "".join(f"{n:>12}" for n in row))


if __name__ == "__main__":
    main(sys.argv[1:])
