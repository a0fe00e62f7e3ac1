"""The site: every page of the repository, in the order of the README's section "Documentation".

make site
"""

import re
import shutil
import sys
from pathlib import Path

from sphinx.application import Sphinx

project = "gpushmoo"
html_title = "gpushmoo"
# The functions of api.md come from the library's docstrings.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workflow/scripts"))
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
autodoc_typehints = "none"
autodoc_member_order = "bysource"
# Types of arguments are words there, not names of Python.
napoleon_use_param = False
napoleon_use_rtype = False
# Return annotations and base classes name the library's inner modules, which have no page.
nitpick_ignore_regex = [("py:.*", ".*")]
root_doc = "README"
# Pages have the same paths as on GitHub, so links work on both. Other files are downloads.
include_patterns = [
    "*.md",
    "docs/*.md",
    "config/*.md",
    "experiments/*.md",
    "reports/chapters/README.md",
    "reports/chapters/*/README.md",
]
exclude_patterns = [".*", "results", "docs/_build", "docs/templates", "tests"]
myst_heading_anchors = 3
html_theme = "furo"
html_css_files = ["site.css"]
html_static_path = html_css_files
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_use_index = False


# A page whose sections have moved: it keeps old addresses alive, and is not in the contents.
MOVED = "<!-- moved -->"
# Where the site shows a function or a class by its docstring.
DOCUMENTED = re.compile(r"<!-- auto(function|class): ([\w.]+) -->")


def add_contents(_app: Sphinx, name: str, text: list[str]) -> None:
    """Give pages what GitHub would show as code: contents, docstrings, and marks of moved pages."""
    if MOVED in text[0]:
        text[0] = f"---\norphan: true\n---\n{text[0]}"
    text[0] = DOCUMENTED.sub(_documented, text[0])
    if name == root_doc:
        listed = text[0].partition("\n## Documentation\n")[2]
        for purpose, links in re.findall(r"(?ms)^\* \*\*(.+?):\*\*(.+?)(?=^\*|^$)", listed):
            pages = re.findall(r"\[([^]]+)\]\(([\w/.-]+)\.md\)", " ".join(links.split()))
            entries = (f"{title[0].upper()}{title[1:]} <{page}>" for title, page in pages)
            tree = "\n".join([f":caption: {purpose}", ":hidden:", "", *entries])
            text[0] += f"\n```{{toctree}}\n{tree}\n```\n"


def _documented(match: re.Match[str]) -> str:
    """Return the directive that shows a function, or a class with its members."""
    kind, name = match.groups()
    members = "   :members:\n   :inherited-members: tuple\n" if kind == "class" else ""
    return f"```{{eval-rst}}\n.. auto{kind}:: {name}\n{members}```"


def add_index(app: Sphinx, failed: Exception | None) -> None:
    """Give the first page the name that a server looks for."""
    if not failed and app.builder.format == "html":
        shutil.copy(Path(app.outdir) / f"{root_doc}.html", Path(app.outdir) / "index.html")


def setup(app: Sphinx) -> None:
    """Connect this file's functions to Sphinx."""
    app.connect("source-read", add_contents)
    app.connect("build-finished", add_index)
