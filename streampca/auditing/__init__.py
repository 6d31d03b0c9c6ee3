"""Check privacy claims from outside: run neighbouring streams, and see how well they can be told apart."""

from streampca.auditing.audit import Audit, audit
from streampca.auditing.experiment import Experiment, neighbours, of_algorithm, of_mechanism, of_runs, of_samples

__all__ = ["Audit", "Experiment", "audit", "neighbours", "of_algorithm", "of_mechanism", "of_runs", "of_samples"]
