"""The command line; the only place that parses one.

A command is a dataclass: its fields are the options, and calling an instance runs it. What a
command needs is imported when it runs, so that ``everlearn report`` loads no simulator.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import select
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from everlearn.runs.config import RunConfig
from everlearn.support.checks import sizes_that_fit
from everlearn.support.command_line import UsageError, flattened, parse, positional, repeated
from everlearn.support.errors import (
    EverlearnError,
    InvalidInputError,
    MissingExtraError,
    unknown_name,
)
from everlearn.support.terminal import (
    Forgiving,
    open_standard_streams,
    printable,
    show,
    silence_output,
    warn,
)

if TYPE_CHECKING:
    from everlearn.runs.listeners import Listener


@dataclass(frozen=True)
class Demo:
    """Watch an agent learn two tasks from nothing, in about a minute.

    Example: everlearn demo --seed 1
    """

    seed: int = 0
    """Seed of the agent."""
    out: Path = Path("videos")
    """Folder for the video."""

    def __call__(self) -> None:
        """Run the demonstration."""
        from everlearn.runs.demo import run_demo

        run_demo(seed=self.seed, out=self.out)


@dataclass(frozen=True)
class Run:
    """Run an agent through a sequence of tasks; the same command again resumes it.

    Example: everlearn run --agent oa --tasks window-close,button-press --episodes-per-task 2
    --out runs/first
    """

    settings: RunConfig = flattened(RunConfig)
    """What to run."""
    out: Path | None = None
    """Folder of the run; runs/PRESET-AGENT-SEED if not given."""
    preset: str | None = None
    """Settings to start from; `everlearn list` shows them."""
    config: Path | None = None
    """JSON file to start from, such as the config.json of a run."""
    option: tuple[str, ...] = repeated()
    """Option of the agent, such as planner.horizon=25; may be given many times."""
    import_: tuple[str, ...] = repeated()
    """Module with agents, tasks or worlds of your own; may be given many times."""
    single_tasks: bool = False
    """Then run each task alone for a tenth of its budget, for forward transfer."""
    extend: bool = False
    """Go on with a finished run: more tasks at the end, or more episodes of its only task."""
    fresh: bool = False
    """Start over in the folder of a run; its metrics are kept under another name."""
    quiet: bool = False
    """Show messages only."""
    view: bool = False
    """Show the training episodes on a page of this machine; needs the extra view."""
    port: int = 8080
    """Port of that page; the next one that is free if it is taken."""

    def __call__(self) -> None:
        """Run, and print the run's numbers."""
        from everlearn.results.summary import (
            result_lines,
            single_task_configs,
            single_task_folder,
            summarize,
        )
        from everlearn.runs.loop import execute
        from everlearn.runs.presets import checked
        from everlearn.runs.progress import Screen

        config = checked(self.settings, self.option)
        folder = self.out or Path("runs") / f"{config.preset or 'run'}-{config.agent}-{config.seed}"
        jobs = {folder: config}
        if self.single_tasks:
            for task, alone in single_task_configs(config).items():
                jobs[single_task_folder(folder, task)] = alone
        if not self.quiet:
            warn(
                f"{config.agent} in {config.world}: {len(config.tasks)} x "
                f"{config.episodes_per_task} episodes of up to {config.max_steps} steps, seed "
                f"{config.seed} -> {folder}"
            )
        for job, settings in jobs.items():
            screen = Screen(quiet=self.quiet)
            result = execute(
                settings,
                job,
                fresh=self.fresh,
                extend=self.extend,
                listeners=[screen, *self._watching(screen.message)],
            )
            if result.stopped_by is not None:
                show(f"stopped after episode {result.state.episode}; the same command resumes")
                sys.exit(128 + result.stopped_by)
        for line in result_lines(summarize(folder)):
            show(line)
        show(f"-> {folder}")

    def _watching(self, notify: Callable[[str], None]) -> list[Listener]:
        """Return who shows the run on a page, if that was asked for."""
        if not self.view:
            return []
        from everlearn.view.start import check_can_view

        check_can_view()
        from everlearn.view.watch import Watch

        return [
            Watch(
                port=self.port,
                opened=lambda page: notify(f"watch at {page.url}"),
                notify=notify,
            )
        ]


@dataclass(frozen=True)
class Sweep:
    """Run agents times seeds, on this machine or on a Ray cluster; the same command resumes it.

    Example: everlearn sweep --agents oa,random --seeds 0-6 --preset paper --out runs/paper
    """

    agents: tuple[str, ...]
    """Names of agents; `everlearn list` shows them."""
    seeds: str
    """Seeds like 0-6 or 0,3,10-12."""
    out: str
    """Folder of the sweep, or a URL of shared storage such as s3://bucket/sweep."""
    preset: str | None = None
    """Settings to start from; `everlearn list` shows them."""
    config: Path | None = None
    """JSON file to start from, such as the config.json of a run."""
    world: str | None = None
    """Name of the world, as for `everlearn run`."""
    tasks: tuple[str, ...] | None = None
    """Names of the tasks in the order of learning."""
    episodes_per_task: int | None = None
    """Training episodes of each."""
    option: tuple[str, ...] = repeated()
    """Option of every agent, such as planner.horizon=25; may be given many times."""
    vary: tuple[str, ...] = repeated()
    """Option to try several values of, such as model.bins=5,7,9; may be given many times."""
    import_: tuple[str, ...] = repeated()
    """Module with agents, tasks or worlds of your own; may be given many times."""
    threads: int = 1
    """Threads of each run."""
    workers: int | None = None
    """Runs at a time; as many as there are processors for if not given."""
    memory_gb: float | None = None
    """Memory that a run may need; fewer run at a time where there is less."""
    ray: str | None = None
    """Address of a Ray cluster, or local, instead of processes of this machine."""
    retries: int = 5
    """Crashes in a row without a new snapshot after which a run has failed."""
    snapshot_seconds: float | None = None
    """Longest time between snapshots, in seconds."""
    single_tasks: bool = False
    """Also run each task alone for a tenth of its budget, for forward transfer."""
    quiet: bool = False
    """Show messages only."""

    def __call__(self) -> None:
        """Run what is not finished, and list what failed."""
        from everlearn.sweeps.grid import parse_seeds, sweep_jobs
        from everlearn.sweeps.job import Resources
        from everlearn.sweeps.launch import run_sweep
        from everlearn.sweeps.progress import SweepProgress

        settings = {
            "world": self.world,
            "tasks": self.tasks,
            "episodes_per_task": self.episodes_per_task,
            "snapshot_seconds": self.snapshot_seconds,
            "imports": self.import_ or None,  # else those of the config file
        }
        jobs = sweep_jobs(
            self.agents,
            parse_seeds(self.seeds),
            self.out,
            vary=self.vary,
            threads=self.threads,
            single_tasks=self.single_tasks,
            preset=self.preset,
            config=self.config,
            options=self.option,
            **{name: value for name, value in settings.items() if value is not None},
        )
        result = run_sweep(
            jobs,
            self.out,
            Resources(self.threads, self.memory_gb),
            SweepProgress(quiet=self.quiet),
            ray=self.ray,
            workers=self.workers,
            retries=self.retries,
        )
        show(f"{len(result.finished)} of {len(jobs)} runs finished -> {self.out}")
        for name, error in result.failed.items():
            show(f"failed: {name}: {error}")
        if result.stopped_by is not None:
            show("stopped; the same command resumes")
            sys.exit(128 + result.stopped_by)
        if result.failed:
            sys.exit(1)


@dataclass(frozen=True)
class Eval:
    """Evaluate the agent of a run on the tasks it has seen; changes nothing in the run.

    With --variants, agents are evaluated in their other ways, and variants.json is added.

    Example: everlearn eval runs/first --episodes 5
    """

    run: Path = positional()
    """Folder of the run."""
    episodes: int = 20
    """Episodes of each task."""
    tasks: tuple[str, ...] | None = None
    """Names of tasks instead of those it has seen."""
    videos: Path | None = None
    """Folder to film every episode into, named by task and outcome."""
    variants: bool = False
    """Evaluate a finished run without escape bursts, or with the mean of a policy (or samples)."""
    import_: tuple[str, ...] = repeated()
    """Module with agents, tasks or worlds of your own; may be given many times."""
    json: bool = False
    """Print numbers for scripts."""

    def __call__(self) -> None:
        """Evaluate, and print a row for each task."""
        from everlearn.runs.progress import evaluated_score
        from everlearn.runs.reload import evaluate_run, evaluate_variants

        counter = _EpisodeCounter()
        if self.variants:
            if self.tasks is not None or self.videos is not None:
                raise InvalidInputError(
                    "--variants are of all tasks of a run, and not filmed; leave out --tasks and "
                    "--videos"
                )
            ways = evaluate_variants(self.run, self.episodes, warn, counter.count)
            counter.clear()
            if self.json:
                show(json.dumps({"variants": ways}))
                return
            for name, results in ways.items():
                show(f"{name}, {self.episodes} episodes of each task:")
                for task, result in results.items():
                    show(f"  {task:<14} {evaluated_score(result):.2f}")
            return
        done, results = evaluate_run(
            self.run, self.episodes, self.tasks, warn, self.videos, counter.count
        )
        counter.clear()
        if self.json:
            show(json.dumps({"episode": done, "results": results}))
            return
        show(f"after episode {done}, {self.episodes} episodes of each task:")
        for task, result in results.items():
            name = "success rate" if "success_rate" in result else "mean return"
            show(f"  {task:<14} {name} {evaluated_score(result):.2f}")


class _EpisodeCounter:
    """Counts evaluation episodes on the last line of a terminal."""

    def __init__(self) -> None:
        self._count = 0
        self._stream = Forgiving(sys.stderr)
        self._shown = self._stream.isatty()

    def count(self, task: str, score: float) -> None:
        self._count += 1
        if self._shown:
            self._write(f"\r{self._count} episodes evaluated ({printable(task)})\033[K")

    def clear(self) -> None:
        if self._shown:
            self._write("\r\033[K")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


@dataclass(frozen=True)
class Audit:
    """Audit the regret of a run's world model: its growth, the paper's bound and assumptions.

    Example: everlearn audit runs/first --option model.features=20 --out audits/first
    """

    run: Path | None = positional(None)
    """Folder of a run that recorded its transitions."""
    synthetic: str | None = None
    """A stream whose answer is known, in place of a run: iid, steady, moving, drifting, ..."""
    agent: str | None = None
    """Audit the model of this agent on the run's transitions."""
    option: tuple[str, ...] = repeated()
    """Option of the agent, such as model.features=20; may be given many times."""
    import_: tuple[str, ...] = repeated()
    """Module with agents of your own; may be given many times."""
    steps: int | None = None
    """Only the first so many transitions; of a synthetic stream, how many (5,000)."""
    exact: bool | None = None
    """Follow the exact leader at every step; decided by its cost if not given."""
    shuffle: bool = False
    """Take the transitions in random order."""
    points: int | None = None
    """Times at which hindsight, gap and assumptions are computed."""
    seed: int = 0
    """Seed of what is sampled, and of a synthetic stream."""
    threads: int | None = None
    """Threads to compute with; all processors if not given."""
    out: Path | None = None
    """Folder for a page, its figures and all numbers."""
    json: bool = False
    """Print all numbers for scripts."""

    def __call__(self) -> None:
        """Audit, and print the page."""
        from everlearn import audit
        from everlearn.support.threads import check_threads, limited_threads

        if (self.run is None) == (self.synthetic is None):
            raise InvalidInputError("give the folder of a run, or --synthetic with a name")
        config = audit.AuditConfig(
            exact=self.exact, points=self.points, shuffle=self.shuffle, seed=self.seed
        )
        check_threads(self.threads)
        with limited_threads(self.threads), audit.progress_bar() as progress:
            if self.run is not None:
                result = audit.audit_run(
                    self.run,
                    agent=self.agent,
                    options=self.option,
                    steps=self.steps,
                    config=config,
                    progress=progress,
                )
            else:
                steps = 5000 if self.steps is None else self.steps
                case = audit.synthetic_case(str(self.synthetic), steps, self.seed)
                result = audit.audit_stream(case.model, case.stream, config, progress)
        if self.out is not None:
            audit.write_report(result, self.out)
        if self.json:
            show(json.dumps(result.to_json()))
            return
        show("\n".join(audit.page_lines(result)))
        if self.out is not None:
            show(f"-> {self.out}")


@dataclass(frozen=True)
class Report:
    """Turn runs into figures, tables, numbers and a page to look at.

    Example: everlearn report results/paper --out reports/paper
    """

    runs: tuple[Path, ...] = positional(())
    """Folders of runs, or folders above them."""
    out: Path | None = None
    """Folder for the report; reports/latest if not given."""
    compare: tuple[Path, Path] | None = None
    """Two folders of runs to compare with each other."""
    json: bool = False
    """Print the summary for scripts; files are written only with --out."""
    videos: Path | None = None
    """Folder with videos such as door-open-before.mp4, beside those of the runs."""
    make_videos: bool = False
    """Film tasks before and after learning, where runs have snapshots; and --pictures."""
    pictures: bool = False
    """Show an episode of each task in a strip of pictures, where runs have snapshots."""
    import_: tuple[str, ...] = repeated()
    """Module with agents or worlds of your own, for these two; may be given many times."""
    resamples: int = 2000
    """Bootstrap samples of every interval."""
    seed: int = 0
    """Seed of the bootstrap."""

    def __call__(self) -> None:
        """Read the runs, write the report, and print its main numbers."""
        from everlearn import report

        if bool(self.runs) == (self.compare is not None):
            raise InvalidInputError("give folders of runs, or two sets of runs with --compare A B")
        resampling = report.Resampling(self.resamples, self.seed)
        if self.compare is None:
            result = report.read_report(self.runs, resampling)
        else:
            result = report.read_comparison(*self.compare, resampling)
        for line in result.left_out:
            warn(f"left out: {line}")
        page = None
        if self.out is not None or not self.json:
            page = report.write_report(
                result,
                self.out or Path("reports/latest"),
                videos=self.videos,
                film=self.make_videos,
                pictures=self.pictures,
                notify=warn,
            )
        if self.json:
            show(json.dumps(result.to_json()))
        else:
            show("\n".join(report.summary_lines(result)))
            show(f"-> {page}")


@dataclass(frozen=True)
class Video:
    """Record an episode of a task, played by its script, to an mp4 or gif file.

    Example: everlearn video --task door-open --out videos/door.gif
    """

    task: str
    """Name of the task; `everlearn list` shows them."""
    out: Path = Path("videos/episode.mp4")
    """File to write; its ending decides the format."""
    seed: int = 0
    """Seed of the reset and of the noise."""
    noise: float = 0.0
    """Standard deviation of noise added to the script's actions."""
    every: int = 4
    """Steps between frames; 4 is real time."""
    width: int = 480
    """Width of a frame in pixels."""
    height: int = 480
    """Height of a frame in pixels."""

    def __call__(self) -> None:
        """Play and film the episode."""
        from everlearn.continual_bench.env import ContinualBenchEnv
        from everlearn.continual_bench.rendering import film_episode
        from everlearn.continual_bench.scripts import ScriptedController

        controller = ScriptedController(self.task, self.noise, self.seed)
        env = ContinualBenchEnv(
            self.task, render_mode="rgb_array", width=self.width, height=self.height
        )
        solved, steps = film_episode(
            env, controller.act, self.out, seed=self.seed, every=self.every
        )
        env.close()
        show(f"{self.task}: {'solved' if solved else 'not solved'} in {steps} steps -> {self.out}")


@dataclass(frozen=True)
class View:
    """Watch an agent act and plan, or a stored run again, on a page of this machine.

    Example: everlearn view --task door-open --port 8123 --no-browser
    """

    run: Path | None = positional(None)
    """Folder of a run to see again; without it an agent acts and learns now."""
    task: str | None = None
    """Task to begin with; door-open, or the first of the world, if not given."""
    agent: str = "oa"
    """Name of the agent; `everlearn list` shows them."""
    pretrained: str | None = None
    """Pretrained agent, or a file that agent.export wrote, instead of a fresh one."""
    world: str | None = None
    """Name of the world, as for `everlearn run`; it needs a MuJoCo scene."""
    option: tuple[str, ...] = repeated()
    """Option of the agent, such as planner.horizon=25; may be given many times."""
    import_: tuple[str, ...] = repeated()
    """Module with agents, tasks or worlds of your own; may be given many times."""
    seed: int = 0
    """Seed of the agent and of resets."""
    learning: bool = True
    """Whether the agent learns at first; the page can switch it."""
    threads: int | None = None
    """Threads to compute with; all processors if not given."""
    host: str = "127.0.0.1"
    """Address to listen at; others than this machine's loopback let others use the page."""
    port: int = 8080
    """Port to listen at; the next one that is free if it is taken."""
    browser: bool = True
    """Open the page in a browser."""
    export: Path | None = None
    """Write the stored run to one HTML file that opens without a network, and serve no page."""

    def __call__(self) -> None:
        """View."""
        from everlearn.support.threads import check_threads
        from everlearn.view.start import Address, view_agent, view_run

        check_threads(self.threads)
        address = Address(self.host, self.port, self.browser)
        live = (self.task, self.pretrained, self.world, self.option or None)
        if self.run is not None and any(part is not None for part in live):
            raise InvalidInputError(
                "a stored run has its own world, agent and tasks; give either the folder of a run, "
                "or --task, --agent, --pretrained, --world and --option"
            )
        if self.export is not None:
            if self.run is None:
                raise InvalidInputError("--export writes a stored run; give the folder of a run")
            from everlearn.view.export import export_run

            size = export_run(self.run, self.export, warn)
            show(f"{size / 1e6:.1f} MB -> {self.export}")
        elif self.run is not None:
            view_run(self.run, address, show)
        else:
            view_agent(
                address,
                show,
                world=self.world,
                task=self.task,
                agent=self.agent,
                options=self.option,
                pretrained=self.pretrained,
                seed=self.seed,
                learning=self.learning,
                threads=self.threads,
            )


@dataclass(frozen=True)
class Play:
    """Watch a pretrained agent, which comes with the package, solve a task.

    Example: everlearn play door-open
    """

    task: str | None = positional(None)
    """Name of the task; door-open if not given."""
    agent: str = "continual-bench"
    """Pretrained agent, or a file that agent.export wrote."""
    world: str | None = None
    """World of such a file; continual-bench if not given."""
    episodes: int | None = None
    """Episodes to play; 3 in text, and on a page as many as you watch, if not given."""
    seed: int = 0
    """Seed of resets and of the planner."""
    text: bool = False
    """Print how episodes end, without a page."""
    threads: int | None = None
    """Threads to compute with; all processors if not given."""
    host: str = "127.0.0.1"
    """Address to listen at; others than this machine's loopback let others use the page."""
    port: int = 8080
    """Port to listen at; the next one that is free if it is taken."""
    browser: bool = True
    """Open the page in a browser."""

    def __call__(self) -> None:
        """Play."""
        from everlearn.support.threads import check_threads, limited_threads
        from everlearn.view.start import Address, can_view, play_in_text, view_agent

        check_threads(self.threads)
        if self.text or not can_view():
            with limited_threads(self.threads):
                play_in_text(self.agent, self.world, self.task, self.episodes or 3, self.seed, show)
            if not self.text:
                show("to watch it in a browser: pip install 'everlearn[view]'")
            return
        view_agent(
            Address(self.host, self.port, self.browser),
            show,
            world=self.world,
            task=self.task,
            pretrained=self.agent,
            seed=self.seed,
            learning=False,
            episodes=self.episodes,
            threads=self.threads,
        )


@dataclass(frozen=True)
class List:
    """List what commands know by name, and the runs there are; or the options of an agent.

    Example: everlearn list oa
    """

    agent: str | None = positional(None)
    """Agent whose options to list, with their types and values."""
    world: str = RunConfig.world
    """World in which it would act: some agents have other values where less is declared."""
    runs: Path = Path("runs")
    """Folder at or below which to look for runs."""
    import_: tuple[str, ...] = repeated()
    """Module with agents, tasks or worlds of your own; may be given many times."""

    def __call__(self) -> None:
        """Print the lists."""
        from everlearn.registry import load_plugins

        load_plugins(self.import_)
        if self.agent is not None:
            self._print_options(self.agent, self.world)
            return
        from everlearn.agents import AGENTS
        from everlearn.continual_bench.tasks import TASKS
        from everlearn.results.read import find_runs, run_state
        from everlearn.runs.metrics_file import CONFIG
        from everlearn.runs.presets import PRESETS
        from everlearn.worlds import WORLDS

        show(f"worlds:  {', '.join(WORLDS)} (gym:ID, dm_control:DOMAIN-TASK)")
        show(f"tasks of continual-bench: {', '.join(TASKS)}")
        show(f"agents:  {', '.join(AGENTS)}")
        show("  (everlearn list AGENT prints its options)")
        show("presets:")
        for name in PRESETS:
            show(f"  {name:<12} {PRESETS.get(name).summary}")
        folders = find_runs(self.runs)
        show(f"runs below {self.runs}:" + ("" if folders else " none"))
        for folder in folders:
            try:
                config = RunConfig.read(folder / CONFIG)
                state = run_state(folder, config)
                show(f"  {folder}: {config.agent}, seed {config.seed}, {state}")
            except (EverlearnError, OSError) as error:  # it must not hide the others
                show(f"  {folder}: {error}")

    @staticmethod
    def _print_options(name: str, world: str) -> None:
        from everlearn.agents import AGENTS
        from everlearn.support.settings import options_of, type_name
        from everlearn.worlds import world_named

        spec, acts_in = AGENTS.get(name), world_named(world)
        # The settings of a name are those in Continual Bench; only elsewhere one has to look.
        known = world == RunConfig.world or spec.config_for is None
        options = options_of(
            spec.config if known else spec.settings(acts_in.make(acts_in.tasks[0]))
        )
        show(f"{name}: {spec.summary}" if spec.summary else name)
        for line in spec.details:
            show(f"  {line}")
        show(f"{len(options)} options (--option PATH=VALUE):")
        for option in options.values():
            show(f"  {option.path} = {option.value}  ({type_name(option.type)})")
            if option.summary:
                show(f"      {option.summary}")


@dataclass(frozen=True)
class Speed:
    """Measure this machine: environment, model and planner against named references.

    Example: everlearn speed --json
    """

    json: bool = False
    """Print numbers for scripts instead of a table."""

    def __call__(self) -> None:
        """Run the benchmarks of the source tree."""
        root = Path(__file__).parents[1]
        if not (root / "benchmarks" / "speed.py").is_file():
            raise MissingExtraError(
                "the benchmarks come with the source, not with the installed package: run this "
                "command from a checkout (pip install -e .)"
            )
        sys.path.insert(0, str(root))
        if not importlib.import_module("benchmarks.speed").main(as_json=self.json):
            sys.exit(1)


COMMANDS: dict[str, type[Callable[[], None]]] = {
    "demo": Demo,
    "run": Run,
    "sweep": Sweep,
    "eval": Eval,
    "report": Report,
    "audit": Audit,
    "video": Video,
    "view": View,
    "play": Play,
    "list": List,
    "speed": Speed,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that `arguments` (by default the process's own) ask for."""
    open_standard_streams()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        show(_overview())
        sys.exit(0 if words else 2)
    if words[0] in ("-V", "--version"):
        from everlearn import __version__

        show(f"everlearn {__version__}")
        return
    if words[0] not in COMMANDS:
        _refuse(unknown_name("command", words[0], COMMANDS))
    try:
        command = _parsed(words[0], words[1:])
        with sizes_that_fit(f"everlearn {words[0]} with these settings"):
            command()
        sys.stdout.flush()
    except UsageError as error:
        _refuse(f"{error} (see everlearn {words[0]} --help)", words[0])
    except EverlearnError as error:
        _refuse(str(error), words[0])
    except BrokenPipeError:
        if not _is_stdout_gone():
            raise
        sys.exit(128 + signal.SIGPIPE)
    except OSError as error:
        silence_output()
        _refuse(str(error), words[0])
    except KeyboardInterrupt:
        sys.exit(130)


def _parsed(name: str, words: list[str]) -> Callable[[], None]:
    """Make a command from its words; plugins are imported first, as they may add names."""
    command = COMMANDS[name]
    if "--help" in words or "-h" in words:
        words = [*words[: min(map(words.index, {"--help", "-h"} & set(words)))], "--help"]
    start = _parsed_start(words)
    if name == "run":
        defaults = Run(settings=_base(start), preset=None)
        return parse(Run, "everlearn run", words, defaults)
    if start.import_ and "--help" not in words:
        _load(start)
    parsed: Callable[[], None] = parse(command, f"everlearn {name}", words)
    return parsed


@dataclass(frozen=True)
class _Start:
    """What decides the defaults of a run, and which names there are."""

    preset: str | None = None
    config: Path | None = None
    agent: str | None = None
    world: str | None = None
    import_: tuple[str, ...] = field(default=(), metadata={"command_line": "repeated"})


def _parsed_start(words: list[str]) -> _Start:
    """Read the options that decide what the others mean; all else is left for later."""
    flags = {"--preset", "--config", "--agent", "--world", "--import"}
    chosen: list[str] = []
    for place, word in enumerate(words):
        if word in flags:
            chosen += words[place : place + 2]
        elif word.partition("=")[0] in flags:
            chosen.append(word)
    return parse(_Start, "everlearn", chosen)


def _base(start: _Start) -> RunConfig:
    """Return the settings that `everlearn run` starts from."""
    if start == _Start():
        return RunConfig()  # as `run --help` needs it: nothing is looked up
    from everlearn.runs.presets import base_config

    _load(start)
    base = base_config(
        preset=start.preset, config=start.config, agent=start.agent, world=start.world
    )
    return replace(base, imports=tuple(dict.fromkeys((*base.imports, *start.import_))))


def _load(start: _Start) -> None:
    from everlearn.registry import load_plugins

    load_plugins(start.import_)


def _overview() -> str:
    rows = (
        f"  {name:<8} {(inspect.getdoc(command) or '').splitlines()[0]}"
        for name, command in COMMANDS.items()
    )
    return "\n".join(
        ("usage: everlearn COMMAND [OPTIONS]", "", *rows, "", "everlearn COMMAND --help for more")
    )


def _is_stdout_gone() -> bool:
    """Whether nobody reads any more, as in ``everlearn list | head -1``; then stop writing."""
    poll = select.poll()
    poll.register(sys.stdout, 0)  # errors are reported unasked
    gone = any(event & select.POLLERR for _, event in poll.poll(0))
    if gone:  # what is still to be written when Python ends must go somewhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return gone


def _refuse(message: str, command: str = "") -> None:
    warn(f"{f'everlearn {command}'.strip()}: {' '.join(message.split())}")
    sys.exit(2)


if __name__ == "__main__":
    main()
