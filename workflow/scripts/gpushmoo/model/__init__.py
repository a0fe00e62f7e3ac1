"""Model a GPU: the resources that launches need, the time that takes, and the limiting resource."""
