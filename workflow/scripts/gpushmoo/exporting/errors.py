"""What is wrong with what was asked to be exported."""


class ExportError(ValueError):
    """What was asked cannot be exported; one sentence."""
