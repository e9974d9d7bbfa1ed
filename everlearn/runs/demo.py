"""Two tasks learned from nothing while you watch: the main idea in about two minutes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from everlearn.agents import Episode, make_agent, run_episode
from everlearn.continual_bench import TASKS
from everlearn.continual_bench.env import MAX_STEPS, ContinualBenchEnv
from everlearn.continual_bench.rendering import Film, check_path
from everlearn.interfaces import Agent, FloatArray
from everlearn.support.errors import MissingExtraError

TASK_ORDER = ("window-close", "button-press")
EPISODES = 3


@dataclass(frozen=True)
class DemoResult:
    """What happened: lengths and successes of every episode, and the video if there is one."""

    episodes: dict[str, list[tuple[int, bool]]]
    remembered: bool
    video: Path | None


def run_demo(
    seed: int = 0,
    out: Path = Path("videos"),
    *,
    tasks: tuple[str, ...] = TASK_ORDER,
    episodes: int = EPISODES,
    frame_every: int = 4,
    console: Console | None = None,
    **options: object,
) -> DemoResult:
    """Learn `tasks` one after the other with one model, then go back to the first.

    Parameters
    ----------
    seed
        Seed of the agent.
    out
        Folder for the video.
    tasks
        Names of the tasks, in order.
    episodes
        Episodes of each.
    frame_every
        Steps between frames of the video.
    console
        Where to write; the standard output if None.
    options
        Options of the agent.
    """
    console = console or Console()
    env = ContinualBenchEnv(tasks[0])
    console.print(
        "One model, solved in closed form after every step; it starts knowing nothing.\n"
        "(The very first run compiles the kernels, which takes some seconds.)"
    )
    agent = make_agent("oa", env, seed, **options)
    results: dict[str, list[tuple[int, bool]]] = {}
    for task in tasks:
        agent.begin_task(task, TASKS.get(task).objective())
        results[task] = []
        for number in range(1, episodes + 1):
            episode = _watched(agent, env, task, f"{task} {number}/{episodes}", console)
            results[task].append((episode.length, bool(episode.info["success"])))
            pace = episode.length / episode.seconds
            console.print(f"  {task} {number}: {_outcome(episode)} ({pace:.0f} steps/s)")
    first = tasks[0]
    console.print(f"Back to {first}, with learning switched off:")
    remembered, video = _remember(agent, first, seed, out, frame_every, console)
    console.print(
        "Watch an agent plan and learn in your browser: everlearn view\n"
        "Watch one that was trained before:             everlearn play",
        highlight=False,
    )
    return DemoResult(results, remembered, video)


def _watched(
    agent: Agent, env: ContinualBenchEnv, task: str, title: str, console: Console
) -> Episode:
    columns = (
        TextColumn("[progress.description]{task.description}"),
        BarColumn(),
        TextColumn("step {task.completed:.0f}/{task.total:.0f}  reward {task.fields[reward]:.2f}"),
        TimeElapsedColumn(),
    )
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with bar:
        row = bar.add_task(title, total=MAX_STEPS, reward=0.0)

        def advance(obs: FloatArray, action: FloatArray, after: FloatArray, reward: float) -> None:
            bar.update(row, advance=1, reward=reward)

        return run_episode(agent, env, options={"task": task}, on_step=advance)


def _remember(
    agent: Agent, task: str, seed: int, out: Path, frame_every: int, console: Console
) -> tuple[bool, Path | None]:
    """Play `task` with a frozen copy of the agent, filmed if the machine can draw."""
    frozen = agent.evaluation_copy(seed)
    frozen.begin_task(task, TASKS.get(task).objective())
    env = ContinualBenchEnv(task, render_mode="rgb_array")
    path = out / f"{task}.mp4"
    film: Film | None = None
    try:
        check_path(path)
        env.reset()
        film = Film(env, frame_every)
    except MissingExtraError as error:
        console.print(f"  no video: {error}", markup=False)  # it names an extra in brackets
    episode = run_episode(frozen, env, explore=False, on_step=film)
    solved = bool(episode.info["success"])
    advice = "" if solved else ": a frozen plan can run in circles where learning would get out"
    console.print(f"  {_outcome(episode)}{advice}")
    if film is None:
        return solved, None
    film.write(path)
    env.close()
    console.print(f"  video: {path}")
    return solved, path


def _outcome(episode: Episode) -> str:
    solved = "solved" if episode.info["success"] else "not solved"
    return f"{solved} in {episode.length} steps"
