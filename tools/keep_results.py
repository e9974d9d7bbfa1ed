"""Keep what is needed of runs: ``python tools/keep_results.py runs/quick results/quick``.

Copies config, environment and metrics of every run, without snapshots and transitions.
"""

import shutil
import sys
from pathlib import Path

from everlearn.experiment.store import CONFIG, ENVIRONMENT, METRICS
from everlearn.experiment.table import find_runs

source, target = map(Path, sys.argv[1:])
for run in find_runs(source):
    place = target / run.relative_to(source)
    place.mkdir(parents=True, exist_ok=True)
    for name in (CONFIG, ENVIRONMENT, METRICS):
        if (run / name).exists():
            shutil.copyfile(run / name, place / name)
