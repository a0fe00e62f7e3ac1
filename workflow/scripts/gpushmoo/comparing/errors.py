"""What is wrong with what was asked to be compared."""

from ..core.errors import UserError


class CompareError(UserError, ValueError):
    """What was asked cannot be compared; one sentence."""
