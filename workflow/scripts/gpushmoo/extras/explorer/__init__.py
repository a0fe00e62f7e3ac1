"""Shows all cells on one page for a browser: the command ``explore`` and a page of each run."""

from ...registry import Extra

_PAGE = "explorer.html"

EXTRA = Extra(products=[_PAGE], compared=[_PAGE], cells_page=_PAGE)
