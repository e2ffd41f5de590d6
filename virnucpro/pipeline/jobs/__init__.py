"""What is asked for: the job, its inputs and its precision."""
