"""Chapter: float against double on a Tesla C1060."""
