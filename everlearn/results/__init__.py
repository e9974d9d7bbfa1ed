"""Reading stored runs: lines, metrics, statistics. Needs neither simulator nor compiler."""

from everlearn.results.methods import Method, Study, studies_of
from everlearn.results.read import RunRecord, find_runs, read_run, read_runs, run_state
from everlearn.results.statistics import Estimate, Resampling, estimate
from everlearn.results.summary import Summary, summarize

__all__ = [
    "Estimate",
    "Method",
    "Resampling",
    "RunRecord",
    "Study",
    "Summary",
    "estimate",
    "find_runs",
    "read_run",
    "read_runs",
    "run_state",
    "studies_of",
    "summarize",
]
