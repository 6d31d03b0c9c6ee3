"""Check privacy claims: whether neighbors can be told apart beyond what is claimed, and whether that would be seen."""

from streampca.auditing.instrument import Audit, Report
from streampca.auditing.runs import Case
from streampca.auditing.suite import audit, audit_named

__all__ = ["Audit", "Case", "Report", "audit", "audit_named"]
