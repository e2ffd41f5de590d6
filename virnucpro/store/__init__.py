"""What a run writes to disk: segments, shards, coverage, aggregation."""
