"""Reports: what turns stored runs into figures, tables and a page."""

from everlearn.report.build import (
    Report,
    read_comparison,
    read_report,
    summary_lines,
    write_report,
)
from everlearn.results.statistics import Estimate, Resampling, estimate

__all__ = [
    "Estimate",
    "Report",
    "Resampling",
    "estimate",
    "read_comparison",
    "read_report",
    "summary_lines",
    "write_report",
]
