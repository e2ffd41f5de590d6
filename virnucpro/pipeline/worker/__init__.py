"""What a worker process (a rank) does with its units."""
