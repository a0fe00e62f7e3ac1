"""Where the pages lie that are not in docs/."""

import os.path

# By template, from the root of the project.
PLACES = {
    "README.md": "README.md",
    "documents.md": "reports/chapters/README.md",
    "simulation.md": "reports/chapters/tesla_c1060/README.md",
}


def path_of(page: str) -> str:
    """Return the path of a page from the root of the project."""
    return PLACES.get(page, f"docs/{page}")


def link(page: str, source: str) -> str:
    """Return the address of a page as the page `source` links it."""
    return os.path.relpath(path_of(page), os.path.dirname(path_of(source)))
