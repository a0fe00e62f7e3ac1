"""Whether two versions, or two runs, differ, and by how much."""

from ..core.errors import UserError


class CompareError(UserError, ValueError):
    """What was asked cannot be compared; one sentence."""
