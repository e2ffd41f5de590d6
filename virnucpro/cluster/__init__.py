"""One run on many machines: plan, tasks, merge, rescue, and the engines that start them."""
