"""Speed beside other software, measured in one process in alternation, so that a busy machine slows all alike."""
