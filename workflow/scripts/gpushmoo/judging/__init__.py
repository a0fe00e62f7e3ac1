"""Results of other tuners: read, and told what they show and what they cannot tell."""

from ..core.errors import UserError


class JudgeError(UserError, ValueError):
    """A file cannot be read or judged; one sentence."""
