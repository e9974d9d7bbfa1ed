"""Does the theorem hold on your run? Regret, its growth, its bound, and the assumptions."""

from everlearn.audit.measure import audit_stream
from everlearn.audit.page import page_lines, write_report
from everlearn.audit.result import Audit, Point, StepLosses
from everlearn.audit.run import audit_run, model_for
from everlearn.audit.schedule import AuditConfig
from everlearn.audit.stream import TransitionStream, read_stream
from everlearn.audit.synthetic import SYNTHETIC, SyntheticCase, synthetic_case

__all__ = [
    "SYNTHETIC",
    "Audit",
    "AuditConfig",
    "Point",
    "StepLosses",
    "SyntheticCase",
    "TransitionStream",
    "audit_run",
    "audit_stream",
    "model_for",
    "page_lines",
    "read_stream",
    "synthetic_case",
    "write_report",
]
