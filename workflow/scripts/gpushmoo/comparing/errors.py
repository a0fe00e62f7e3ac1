"""What is wrong with what was asked to be compared."""


class CompareError(ValueError):
    """What was asked cannot be compared; one sentence."""
