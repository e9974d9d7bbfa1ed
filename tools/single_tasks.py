"""Run the tasks of kept runs alone: ``python tools/single_tasks.py results/quick runs/alone oa``.

Forward transfer compares with them. `everlearn run --single-tasks` makes them beside a run of its
own; this is for runs of which only what `keep_results.py` keeps is there. Only runs of the agents
named, without options, are taken; with no name, all of those. The same command goes on where it was
stopped, and `python tools/keep_results.py runs/alone results/quick` keeps what it made.
"""

import sys
from pathlib import Path

from everlearn.results.read import find_runs
from everlearn.results.summary import single_task_configs, single_task_folder
from everlearn.runs.config import RunConfig
from everlearn.runs.loop import execute
from everlearn.runs.metrics_file import CONFIG, SINGLE
from everlearn.runs.progress import Screen

source, target, agents = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
for run in find_runs(source):
    config = RunConfig.read(run / CONFIG)
    if run.parent.name == SINGLE or config.options or (agents and config.agent not in agents):
        continue
    for task, alone in single_task_configs(config).items():
        place = single_task_folder(target / run.relative_to(source), task)
        stopped_by = execute(alone, place, listeners=[Screen(quiet=True)]).stopped_by
        if stopped_by is not None:
            sys.exit(128 + stopped_by)
