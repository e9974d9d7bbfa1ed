"""From a run's folder to an audit of the model that its agent had."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from everlearn.audit.measure import Progress, audit_stream
from everlearn.audit.result import Audit
from everlearn.audit.schedule import AuditConfig
from everlearn.audit.stream import read_stream
from everlearn.online import OnlineWorldModel
from everlearn.runs.config import RunConfig
from everlearn.runs.loop import make
from everlearn.runs.metrics_file import CONFIG
from everlearn.runs.options import parse_options
from everlearn.support.errors import InvalidInputError


def model_for(
    run: str | Path, agent: str | None = None, options: Iterable[str] = ()
) -> OnlineWorldModel:
    """Make the model, new, that the agent of a run started with.

    Parameters
    ----------
    run
        Folder of the run.
    agent
        Name of an agent whose model is to be audited instead, such as ``oa`` on the
        transitions of a run of ``random``.
    options
        Settings that differ, as ``name=value``: ``features=20`` is a smaller model.
    """
    config = RunConfig.read(Path(run) / CONFIG)
    if agent is not None and agent != config.agent:
        config = dataclasses.replace(config, agent=agent, options={}, resolved=None)
    chosen = {**config.agent_options, **parse_options(config.agent, options)}
    env, made = make(dataclasses.replace(config, options=chosen, resolved=None))
    with closing(env):
        model = getattr(made, "model", None)
    if not isinstance(model, OnlineWorldModel):
        raise InvalidInputError(
            f"agent {config.agent!r} has no online world model; its transitions can be audited "
            "with the model of another one: --agent oa"
        )
    return model


def audit_run(
    run: str | Path,
    *,
    agent: str | None = None,
    options: Iterable[str] = (),
    steps: int | None = None,
    config: AuditConfig | None = None,
    progress: Progress = lambda done, steps: None,
) -> Audit:
    """Audit the transitions that a run recorded, with the model that its agent had.

    Parameters
    ----------
    run, agent, options
        See `model_for`.
    steps
        How many of the transitions; all if None.
    config, progress
        See `audit_stream`.
    """
    model = model_for(run, agent, options)
    return audit_stream(model, read_stream(run, steps), config, progress)
