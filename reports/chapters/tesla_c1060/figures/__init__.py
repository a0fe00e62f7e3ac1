"""The document's figures, drawn from a simulated device."""
