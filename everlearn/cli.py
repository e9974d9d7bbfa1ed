"""The command line; the only place that parses one."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import sys
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from everlearn.errors import EverlearnError, MissingExtraError


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
    from everlearn.continual_bench.scripted import ScriptedController
    from everlearn.continual_bench.video import film_episode

    controller = ScriptedController(task, noise, seed)
    env = ContinualBenchEnv(task, render_mode="rgb_array", width=width, height=height)
    success, steps = film_episode(env, controller.act, out, seed=seed, every=every)
    env.close()
    print(f"{task}: {'solved' if success else 'not solved'} in {steps} steps -> {out}")


def list_() -> None:
    """List the tasks and agents that commands know by name.

    Example: everlearn list
    """
    from everlearn.agents import AGENTS
    from everlearn.continual_bench import TASKS

    print("tasks: ", ", ".join(TASKS))
    print("agents:", ", ".join(AGENTS))


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
    from everlearn.experiment.demo import run_demo

    run_demo(seed=seed, out=out)


COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo,
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
    values = _parse(words[0], command, words[1:])
    try:
        command(**values)
    except EverlearnError as error:
        _refuse(f"{words[0]}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


def _overview() -> str:
    rows = (
        f"  {name:<8} {(inspect.getdoc(command) or '').splitlines()[0]}"
        for name, command in COMMANDS.items()
    )
    return "\n".join(
        ("usage: everlearn COMMAND [OPTIONS]", "", *rows, "", "everlearn COMMAND --help for more")
    )


def _parse(name: str, command: Callable[..., None], words: list[str]) -> dict[str, Any]:
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

    def collect(**values: Any) -> dict[str, Any]:
        return values

    # Parsed apart from the call, so that an error of the command is not taken for a typing error.
    collect.__signature__ = inspect.signature(command)  # type: ignore[attr-defined]
    collect.__annotations__ = typing.get_type_hints(command)
    collect.__doc__ = command.__doc__
    with told_in_a_line():
        parsed: dict[str, Any] = tyro.cli(collect, prog=f"everlearn {name}", args=words)
    return parsed


def _refuse(message: str) -> None:
    print(f"everlearn {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
