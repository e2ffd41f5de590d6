"""One run on many machines: plan, work, merge, rescue, and the engines that start tasks."""
