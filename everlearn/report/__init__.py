"""Reports: what turns stored runs into figures, tables and a page."""

from everlearn.report.build import write_report
from everlearn.report.content import Report, read_comparison, read_report, summary_lines
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
