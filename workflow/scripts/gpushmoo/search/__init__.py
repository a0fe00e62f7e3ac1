"""Choose which cells of a group to sample next, and how often, without access to a device."""
