"""What is wrong with what was asked to be exported."""

from ..core.errors import UserError


class ExportError(UserError, ValueError):
    """What was asked cannot be exported; one sentence."""
