"""Continual release of running sums: correlated noise that grows with log t."""
