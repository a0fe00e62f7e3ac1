"""Which cells of a group are measured, and how often, where not all of them shall be."""
