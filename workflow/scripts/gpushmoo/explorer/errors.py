"""What is wrong with what was asked to be explored."""


class ExplorerError(ValueError):
    """What was asked cannot be explored; one sentence."""
