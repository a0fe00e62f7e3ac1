"""Everything before the first job: configuration, plan, figures, digests."""
