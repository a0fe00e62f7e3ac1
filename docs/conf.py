"""The site: every page of the repository, in the order of the README's section "Documentation".

make site
"""

import re
import shutil
from pathlib import Path

from sphinx.application import Sphinx

project = "gpushmoo"
html_title = "gpushmoo"
extensions = ["myst_parser"]
root_doc = "README"
# Pages have the same paths as on GitHub, so links work on both. Other files are downloads.
include_patterns = ["*.md", "docs/*.md", "config/*.md", "experiments/*.md"]
exclude_patterns = [".*", "results", "docs/_build", "docs/templates", "reports", "tests"]
myst_heading_anchors = 3
html_theme = "furo"
html_css_files = ["site.css"]
html_static_path = html_css_files
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_use_index = False


def add_contents(_app: Sphinx, name: str, text: list[str]) -> None:
    """Give the first page the contents that its list of purposes says; GitHub would show code."""
    if name == root_doc:
        listed = text[0].partition("\n## Documentation\n")[2]
        for purpose, links in re.findall(r"(?ms)^\* \*\*(.+?):\*\*(.+?)(?=^\*|^$)", listed):
            pages = re.findall(r"\[([^]]+)\]\(([\w/.-]+)\.md\)", " ".join(links.split()))
            entries = (f"{title[0].upper()}{title[1:]} <{page}>" for title, page in pages)
            tree = "\n".join([f":caption: {purpose}", ":hidden:", "", *entries])
            text[0] += f"\n```{{toctree}}\n{tree}\n```\n"


def add_index(app: Sphinx, failed: Exception | None) -> None:
    """Give the first page the name that a server looks for."""
    if not failed and app.builder.format == "html":
        shutil.copy(Path(app.outdir) / f"{root_doc}.html", Path(app.outdir) / "index.html")


def setup(app: Sphinx) -> None:
    """Connect this file's functions to Sphinx."""
    app.connect("source-read", add_contents)
    app.connect("build-finished", add_index)
