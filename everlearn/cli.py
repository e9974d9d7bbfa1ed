"""The command line; the only place that parses one."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import os
import select
import signal
import sys
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from everlearn.support.errors import EverlearnError, InvalidInputError, MissingExtraError


def video(
    task: str,
    out: Path = Path("videos/episode.mp4"),
    seed: int = 0,
    noise: float = 0.0,
    every: int = 4,
    width: int = 480,
    height: int = 480,
) -> None:
    """Record an episode of a task, played by its script, to an mp4 or gif file.

    Example: everlearn video --task door-open --out videos/door.gif

    Args:
        task: Name of the task; `everlearn list` shows them.
        out: File to write; its ending decides the format.
        seed: Seed of the reset and of the noise.
        noise: Standard deviation of noise added to the script's actions.
        every: Steps between frames; 4 is real time.
        width: Width of a frame in pixels.
        height: Height of a frame in pixels.
    """
    from everlearn.continual_bench.env import ContinualBenchEnv
    from everlearn.continual_bench.scripts import ScriptedController
    from everlearn.continual_bench.video import film_episode

    controller = ScriptedController(task, noise, seed)
    env = ContinualBenchEnv(task, render_mode="rgb_array", width=width, height=height)
    success, steps = film_episode(env, controller.act, out, seed=seed, every=every)
    env.close()
    print(f"{task}: {'solved' if success else 'not solved'} in {steps} steps -> {out}")


def run(
    agent: str | None = None,
    tasks: str | None = None,
    episodes_per_task: int | None = None,
    seed: int | None = None,
    out: Path | None = None,
    preset: str | None = None,
    config: Path | None = None,
    option: tuple[str, ...] = (),
    max_steps: int | None = None,
    threads: int | None = None,
    evaluators: int | None = None,
    reset_noise: float | None = None,
    evaluate_every: int | None = None,
    evaluate_episodes: int | None = None,
    evaluate_at_switches: int | None = None,
    heldout: int | None = None,
    snapshot_seconds: float | None = None,
    record: bool | None = None,
    tensorboard: bool | None = None,
    wandb: bool | None = None,
    single_tasks: bool = False,
    fresh: bool = False,
    quiet: bool = False,
) -> None:
    """Run an agent through a sequence of tasks; the same command again goes on where it stopped.

    Example: everlearn run --agent oa --tasks window-close,button-press --episodes-per-task 2
    --seed 0 --out runs/demo

    Args:
        agent: Name of the agent (oa if not given); `everlearn list` shows them.
        tasks: Names of the tasks in the order of learning, with commas; they may repeat.
        episodes_per_task: Training episodes of each.
        seed: Seed of everything.
        out: Folder of the run; runs/PRESET-AGENT-SEED if not given.
        preset: Settings to start from: paper, quick or smoke.
        config: JSON file to start from, such as the config.json of a run.
        option: Option of the agent as name=value; may be given many times.
        max_steps: Longest episode.
        threads: Threads to compute with; all processors if not given.
        evaluators: Processes that share an evaluation; one a thread in long runs if not given.
        reset_noise: How far resets spread hand and objects, in metres.
        evaluate_every: Episodes between evaluations inside a task; 0 for none.
        evaluate_episodes: Episodes a task at those.
        evaluate_at_switches: Episodes a task at switches and at the end; 0 for none.
        heldout: Transitions a task that measure the world model's error; 0 for none.
        snapshot_seconds: Longest time between snapshots.
        record: Whether to keep every transition.
        tensorboard: Whether to write TensorBoard events too.
        wandb: Whether to send the metrics to Weights & Biases too.
        single_tasks: Then run each task alone for a tenth of its budget, for forward transfer.
        fresh: Overwrite a run that is in the folder.
        quiet: Show messages only.
    """
    from everlearn.results.summary import (
        result_lines,
        single_task_configs,
        single_task_folder,
        summarize,
    )
    from everlearn.runs.loop import execute
    from everlearn.runs.presets import compose_config
    from everlearn.runs.progress import Screen

    settings = {
        "tasks": None if tasks is None else tuple(tasks.split(",")),
        "episodes_per_task": episodes_per_task,
        "seed": seed,
        "max_steps": max_steps,
        "threads": threads,
        "evaluators": evaluators,
        "reset_noise": reset_noise,
        "snapshot_seconds": snapshot_seconds,
        "record": record,
        "tensorboard": tensorboard,
        "wandb": wandb,
    }
    evaluation = {
        "every": evaluate_every,
        "episodes": evaluate_episodes,
        "boundary_episodes": evaluate_at_switches,
        "heldout": heldout,
    }
    chosen = compose_config(
        preset=preset,
        config=config,
        agent=agent,
        options=option,
        evaluation={name: value for name, value in evaluation.items() if value is not None},
        **{name: value for name, value in settings.items() if value is not None},
    )
    folder = out or Path("runs") / f"{chosen.preset or 'run'}-{chosen.agent}-{chosen.seed}"
    jobs = {folder: chosen}
    if single_tasks:
        for task, alone in single_task_configs(chosen).items():
            jobs[single_task_folder(folder, task)] = alone
    for place, job in jobs.items():
        result = execute(job, place, fresh=fresh, listeners=[Screen(quiet=quiet)])
        if result.stopped_by is not None:
            print(f"stopped after episode {result.state.episode}; the same command goes on")
            sys.exit(128 + result.stopped_by)
    for line in result_lines(summarize(folder)):
        print(line)
    print(f"-> {folder}")


def sweep(
    agents: str,
    seeds: str,
    out: str,
    preset: str | None = None,
    config: Path | None = None,
    tasks: str | None = None,
    episodes_per_task: int | None = None,
    option: tuple[str, ...] = (),
    vary: tuple[str, ...] = (),
    threads: int = 1,
    workers: int | None = None,
    memory_gb: float | None = None,
    ray: str | None = None,
    retries: int = 5,
    snapshot_seconds: float | None = None,
    single_tasks: bool = False,
    quiet: bool = False,
) -> None:
    """Run agents times seeds, on this machine or on a Ray cluster; the same command goes on.

    Example: everlearn sweep --agents oa,random --seeds 0-6 --preset paper --out runs/paper

    Args:
        agents: Names of agents, with commas; `everlearn list` shows them.
        seeds: Seeds like 0-6 or 0,3,10-12.
        out: Folder of the sweep, or a URL of shared storage such as s3://bucket/sweep.
        preset: Settings to start from: paper, quick or smoke.
        config: JSON file to start from, such as the config.json of a run.
        tasks: Names of the tasks in the order of learning, with commas.
        episodes_per_task: Training episodes of each.
        option: Option of every agent as name=value; may be given many times.
        vary: Option to try several values of, such as bins=5,7,9,11; may be given many times.
        threads: Threads of each run.
        workers: Runs at a time; as many as there are processors for if not given.
        memory_gb: Memory that a run may need; fewer run at a time where there is less.
        ray: Address of a Ray cluster, or local, instead of processes of this machine.
        retries: Crashes in a row without a new snapshot after which a run has failed.
        snapshot_seconds: Longest time between snapshots.
        single_tasks: Also run each task alone for a tenth of its budget, for forward transfer.
        quiet: Show messages only.
    """
    from everlearn.sweeps.grid import parse_seeds, sweep_jobs
    from everlearn.sweeps.job import Resources
    from everlearn.sweeps.launch import run_sweep
    from everlearn.sweeps.progress import SweepProgress

    settings = {
        "tasks": None if tasks is None else tuple(tasks.split(",")),
        "episodes_per_task": episodes_per_task,
        "snapshot_seconds": snapshot_seconds,
    }
    resources = Resources(threads, memory_gb)
    jobs = sweep_jobs(
        agents.split(","),
        parse_seeds(seeds),
        out,
        vary=vary,
        threads=threads,
        single_tasks=single_tasks,
        preset=preset,
        config=config,
        options=option,
        **{name: value for name, value in settings.items() if value is not None},
    )
    result = run_sweep(
        jobs, out, resources, SweepProgress(quiet=quiet), ray=ray, workers=workers, retries=retries
    )
    print(f"{len(result.finished)} of {len(jobs)} runs finished -> {out}")
    for name, error in result.failed.items():
        print(f"failed: {name}: {error}")
    if result.stopped_by is not None:
        print("stopped; the same command goes on")
        sys.exit(128 + result.stopped_by)
    if result.failed:
        sys.exit(1)


def eval_(
    run: Path,
    /,
    episodes: int = 20,
    tasks: str | None = None,
    videos: Path | None = None,
    json: bool = False,
) -> None:
    """Evaluate the agent of a run on the tasks it has seen; changes nothing in the run.

    Example: everlearn eval runs/demo --episodes 5

    Args:
        run: Folder of the run.
        episodes: Episodes a task.
        tasks: Names of tasks, with commas, instead of those it has seen.
        videos: Folder to film every episode into, named by task and outcome.
        json: Print numbers for scripts.
    """
    import json as json_format

    from everlearn.runs.reload import evaluate_run

    chosen = None if tasks is None else tuple(tasks.split(","))
    done, rates = evaluate_run(
        run, episodes, chosen, lambda text: print(text, file=sys.stderr), videos
    )
    if json:
        print(json_format.dumps({"episode": done, "episodes": episodes, "success_rate": rates}))
        return
    print(f"after episode {done}, {episodes} episodes a task:")
    for task, rate in rates.items():
        print(f"  {task:<14} {rate:.2f}")


def audit(
    run: Path | None = None,
    /,
    synthetic: str | None = None,
    agent: str | None = None,
    option: tuple[str, ...] = (),
    steps: int | None = None,
    exact: bool | None = None,
    shuffle: bool = False,
    points: int | None = None,
    seed: int = 0,
    threads: int | None = None,
    out: Path | None = None,
    json: bool = False,
) -> None:
    """Audit the regret of a run's world model: its growth, the paper's bound and assumptions.

    Example: everlearn audit runs/demo --option features=20 --out audits/demo

    Args:
        run: Folder of a run that recorded its transitions.
        synthetic: Instead of a run, a stream whose answer is known: iid, steady, moving,
            drifting, signed or large.
        agent: Audit the model of this agent on the run's transitions.
        option: Option of the agent as name=value, such as features=20; may be given many times.
        steps: Only the first so many transitions; of a synthetic stream, how many (5,000).
        exact: Whether to follow the exact leader at every step; decided by its cost if not given.
        shuffle: Take the transitions in random order.
        points: Times at which hindsight, gap and assumptions are computed.
        seed: Seed of what is sampled, and of a synthetic stream.
        threads: Threads to compute with; all processors if not given.
        out: Folder for a page, its figures and all numbers.
        json: Print all numbers for scripts.
    """
    import json as json_format

    from everlearn import audit as auditing
    from everlearn.audit.screen import progress_bar
    from everlearn.support.threads import check_threads, limited_threads

    if (run is None) == (synthetic is None):
        raise InvalidInputError("give the folder of a run, or --synthetic with a name")
    config = auditing.AuditConfig(exact=exact, points=points, shuffle=shuffle, seed=seed)
    check_threads(threads)
    with limited_threads(threads), progress_bar() as progress:
        if run is not None:
            found = auditing.audit_run(
                run, agent=agent, options=option, steps=steps, config=config, progress=progress
            )
        else:
            case = auditing.synthetic_case(str(synthetic), 5000 if steps is None else steps, seed)
            found = auditing.audit_stream(case.model, case.stream, config, progress)
    if out is not None:
        auditing.write_report(found, out)
    if json:
        print(json_format.dumps(found.to_json()))
    else:
        print("\n".join(auditing.page_lines(found)))
        if out is not None:
            print(f"-> {out}")


def report(
    runs: tuple[Path, ...] = (),
    /,
    out: Path | None = None,
    compare: tuple[Path, Path] | None = None,
    json: bool = False,
    videos: Path | None = None,
    make_videos: bool = False,
    resamples: int = 2000,
    seed: int = 0,
) -> None:
    """Turn runs into figures, tables, numbers and a page to look at.

    Example: everlearn report results --out reports/results

    Args:
        runs: Folders of runs, or folders above them.
        out: Folder for the report; reports/latest if not given.
        compare: Two folders of runs to set against each other, instead of runs.
        json: Print the summary for scripts; files are written only with --out.
        videos: Folder with videos such as door-open-before.mp4, beside those of the runs.
        make_videos: Film tasks before and after learning, where runs have snapshots.
        resamples: Bootstrap samples of every interval.
        seed: Seed of the bootstrap.
    """
    import json as json_format

    from everlearn import report as reporting

    if bool(runs) == (compare is not None):
        raise InvalidInputError("give folders of runs, or two sets of runs with --compare A B")
    resampling = reporting.Resampling(resamples, seed)
    if compare is None:
        found = reporting.read_report(runs, resampling)
    else:
        found = reporting.read_comparison(*compare, resampling)
    for line in found.left_out:
        print(f"left out: {line}", file=sys.stderr)
    if out is not None or not json:
        page = reporting.write_report(
            found,
            out or Path("reports/latest"),
            videos=videos,
            film=make_videos,
            notify=lambda text: print(text, file=sys.stderr),
        )
    if json:
        print(json_format.dumps(found.to_json()))
    else:
        print("\n".join(reporting.summary_lines(found)))
        print(f"-> {page}")


def list_(runs: Path = Path("runs")) -> None:
    """List the tasks, agents and presets that commands know by name, and the runs there are.

    Example: everlearn list --runs runs

    Args:
        runs: Folder at or below which to look for runs.
    """
    from everlearn.agents import AGENTS, BOUNDARY_AWARE
    from everlearn.continual_bench import TASKS
    from everlearn.results.read import find_runs, run_state
    from everlearn.runs.config import RunConfig
    from everlearn.runs.presets import PRESETS

    print("tasks: ", ", ".join(TASKS))
    print("agents:", ", ".join(AGENTS))
    print("  told when a task changes:", ", ".join(filter(BOUNDARY_AWARE.__contains__, AGENTS)))
    print("presets:")
    for name in PRESETS:
        print(f"  {name:<8} {PRESETS.get(name).summary}")
    found = find_runs(runs)
    print(f"runs below {runs}:" + ("" if found else " none"))
    for folder in found:
        try:
            config = RunConfig.read(folder / "config.json")
            print(f"  {folder}: {config.agent}, seed {config.seed}, {run_state(folder, config)}")
        except EverlearnError as error:  # one unreadable run must not hide the others
            print(f"  {folder}: {error}")


def speed(json: bool = False) -> None:
    """Measure this machine: environment, model and planner against named references.

    Example: everlearn speed --json

    Args:
        json: Print numbers for scripts instead of a table.
    """
    root = Path(__file__).parents[1]
    if not (root / "benchmarks" / "speed.py").is_file():
        raise MissingExtraError(
            "the benchmarks come with the source, not with the installed package: run this "
            "command from a checkout (pip install -e .)"
        )
    sys.path.insert(0, str(root))
    if not importlib.import_module("benchmarks.speed").main(as_json=json):
        sys.exit(1)


def demo(seed: int = 0, out: Path = Path("runs/demo")) -> None:
    """Watch an agent learn two tasks from nothing, in about two minutes.

    Example: everlearn demo --seed 1

    Args:
        seed: Seed of the agent.
        out: Folder for the video.
    """
    from everlearn.runs.demo import run_demo

    run_demo(seed=seed, out=out)


COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo,
    "run": run,
    "sweep": sweep,
    "eval": eval_,
    "audit": audit,
    "report": report,
    "video": video,
    "list": list_,
    "speed": speed,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that `arguments` (by default the process's own) ask for."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print(_overview())
        sys.exit(0 if words else 2)
    if words[0] in ("-V", "--version"):
        from everlearn import __version__

        print(f"everlearn {__version__}")
        return
    if words[0] not in COMMANDS:
        _refuse(f"unknown command {words[0]!r}; commands: {', '.join(COMMANDS)}")
    command = COMMANDS[words[0]]
    given = _parse(words[0], command, words[1:])
    try:
        command(*given.args, **given.kwargs)
        sys.stdout.flush()
    except EverlearnError as error:
        _refuse(f"{words[0]}: {error}")
    except BrokenPipeError:
        if not _is_stdout_gone():
            raise
        sys.exit(128 + signal.SIGPIPE)
    except KeyboardInterrupt:
        sys.exit(130)


def _is_stdout_gone() -> bool:
    """Whether nobody reads any more, as ``everlearn list | head -1`` has it; then stop writing."""
    poll = select.poll()
    poll.register(sys.stdout, 0)  # errors are told unasked
    gone = any(event & select.POLLERR for _, event in poll.poll(0))
    if gone:  # what is still to be written when Python ends must go somewhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return gone


def _overview() -> str:
    rows = (
        f"  {name:<8} {(inspect.getdoc(command) or '').splitlines()[0]}"
        for name, command in COMMANDS.items()
    )
    return "\n".join(
        ("usage: everlearn COMMAND [OPTIONS]", "", *rows, "", "everlearn COMMAND --help for more")
    )


def _parse(name: str, command: Callable[..., None], words: list[str]) -> inspect.BoundArguments:
    """Parse a command's options; a wrong one is told in a line instead of tyro's box."""
    import tyro

    @contextlib.contextmanager
    def told_in_a_line() -> Any:
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                yield
        except SystemExit as end:
            if not end.code:
                raise
            lines = [line.strip("╭╮╰╯│─ ") for line in said.getvalue().splitlines()]
            words = " ".join(line for line in lines if line and "helptext" not in line)
            options = ", ".join(
                f"--{option.replace('_', '-')}" for option in inspect.signature(command).parameters
            )
            _refuse(f"{name}: {words} (options: {options or 'none'}; see {name} --help)")

    def collect(*places: Any, **values: Any) -> inspect.BoundArguments:
        return inspect.signature(command).bind(*places, **values)

    # Parsed apart from the call, so that an error of the command is not taken for a typing error.
    collect.__signature__ = inspect.signature(command)  # type: ignore[attr-defined]
    collect.__annotations__ = typing.get_type_hints(command)
    collect.__doc__ = command.__doc__
    with told_in_a_line():
        parsed: inspect.BoundArguments = tyro.cli(
            collect,
            prog=f"everlearn {name}",
            args=words,
            config=(tyro.conf.UseAppendAction,),  # an option given again adds to the first
        )
    return parsed


def _refuse(message: str) -> None:
    print(f"everlearn {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
