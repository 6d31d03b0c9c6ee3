"""Speed beside others, in one process, taking turns: a busy machine is busy for all."""
