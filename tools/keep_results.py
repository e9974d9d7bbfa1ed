"""Keep what is needed of runs: ``python tools/keep_results.py runs/quick results/quick``.

Copies config, environment, metrics, variants and videos of every run, without snapshots and
transitions.
"""

import shutil
import sys
from pathlib import Path

from everlearn.report.build import VIDEOS
from everlearn.results.read import find_runs
from everlearn.runs.metrics_file import CONFIG, ENVIRONMENT, METRICS, STRUCTURE, VARIANTS

source, target = map(Path, sys.argv[1:])
for run in find_runs(source):
    place = target / run.relative_to(source)
    names = (CONFIG, ENVIRONMENT, METRICS, STRUCTURE, VARIANTS)
    files = [run / name for name in names if (run / name).exists()]
    for file in [*files, *(run / VIDEOS).glob("*.mp4")]:
        kept = place / file.relative_to(run)
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, kept)
