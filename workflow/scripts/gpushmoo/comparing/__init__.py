"""Whether two versions, or two runs, differ, and by how much."""
