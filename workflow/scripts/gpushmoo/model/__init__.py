"""The one model of a device: what launches ask of it, how long that takes, what limits them."""
