"""Does the theorem hold on your run? Regret, its growth, its bound, and the assumptions.

`stream` reads transitions and encodes them; `measure` lets a model learn them and compares it with
the exact solution (`leader`) and with the bound and the assumptions (`theory`); `result` holds what
was measured; `page` and `figures` show it. `synthetic` makes streams whose answer is known.
"""

from everlearn.audit.measure import audit_run, audit_stream
from everlearn.audit.page import page_lines, progress_bar, write_report
from everlearn.audit.result import Audit, Point, StepLosses
from everlearn.audit.stream import AuditConfig, TransitionStream, model_for, read_stream
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
    "progress_bar",
    "read_stream",
    "synthetic_case",
    "write_report",
]
