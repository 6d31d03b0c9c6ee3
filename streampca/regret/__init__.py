"""Regret of released subspaces against the best in hindsight: exact for the curator, noisy for publication."""
