"""What is wrong with what was asked to be explored."""

from ..core.errors import UserError


class ExplorerError(UserError, ValueError):
    """What was asked cannot be explored; one sentence."""
