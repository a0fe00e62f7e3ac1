"""Chapter: a dot product of data that live on the host, by streams."""
