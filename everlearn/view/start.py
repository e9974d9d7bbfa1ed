"""What the commands `view` and `play` do."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everlearn.agents import AGENTS, OnlineAgent, run_episode
from everlearn.interfaces import Agent
from everlearn.pretrained import pretrained_agents
from everlearn.support.errors import InvalidInputError, MissingExtraError
from everlearn.support.settings import parse_options, with_options
from everlearn.support.signals import stop_on_signals
from everlearn.support.threads import limited_threads
from everlearn.worlds import Environments, world_named

if TYPE_CHECKING:
    from everlearn.view.page import Page

Say = Callable[[str], None]

NEEDED = ("viser", "trimesh")
"""Packages of the extra ``view``."""

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Address:
    """Where a page is served, and whether a browser is opened."""

    host: str = "127.0.0.1"
    port: int = 8080
    browser: bool = True

    def announce(self, page: Page, say: Say) -> None:
        """Say where the page is, and open it."""
        say(f"watch at {page.url} (Ctrl-C ends it)")
        if self.host not in LOOPBACK:
            say(f"whoever can reach {self.host} can see this page and use its controls")
        if self.browser:
            page.open_browser()


def can_view() -> bool:
    """Whether the extra ``view`` is installed."""
    return all(importlib.util.find_spec(package) for package in NEEDED)


def check_can_view() -> None:
    """Refuse to view without the extra ``view``, before anything has begun."""
    if not can_view():
        raise MissingExtraError(
            "viewing needs viser, which is not installed: pip install 'everlearn[view]'"
        )


def trained_agent(name: str, world: str | None = None) -> tuple[str, OnlineAgent]:
    """Return the world and the agent of a pretrained agent's name or an exported file."""
    known = pretrained_agents()
    if name in known:
        chosen = known.get(name)
        if world not in (None, chosen.world):
            raise InvalidInputError(
                f"the pretrained agent {name!r} lives in {chosen.world!r}, not in {world!r}"
            )
        return chosen.world, chosen.load()
    if Path(name).exists():
        return world or "continual-bench", OnlineAgent.from_export(name)
    raise InvalidInputError(
        f"{name!r} is neither a pretrained agent ({', '.join(known)}) nor a file that "
        "agent.export(path) wrote"
    )


def check_fits(agent: Any, env: Any, world: str) -> None:
    """Refuse an agent whose spaces are not those of its world."""
    mine = (agent.observation_space.shape, agent.action_space.shape)
    theirs = (env.observation_space.shape, env.action_space.shape)
    if mine != theirs:
        raise InvalidInputError(
            f"the agent has observations and actions of shapes {mine}, world {world!r} of "
            f"{theirs}; name the world that it was trained in with --world"
        )


def view_agent(
    address: Address,
    say: Say,
    *,
    world: str | None,
    task: str | None,
    agent: str = "oa",
    options: Sequence[str] = (),
    pretrained: str | None = None,
    seed: int = 0,
    learning: bool = True,
    episodes: int | None = None,
    threads: int | None = None,
) -> None:
    """Let an agent act on a page until it is stopped."""
    check_can_view()
    from everlearn.view.live import LiveSession

    chosen: Agent
    if pretrained is not None:
        world, chosen = trained_agent(pretrained, world)
        environments = Environments(world_named(world))
        env = environments.of(task or first_task(environments))
        check_fits(chosen, env, world)
    else:
        environments = Environments(world_named(world or "continual-bench"))
        env = environments.of(task or first_task(environments))
        spec = AGENTS.get(agent)
        settings = spec.settings(env)
        settings = with_options(settings, parse_options(settings, options))
        chosen = spec.make(env, settings, seed)
    session = LiveSession(
        environments,
        chosen,
        task or first_task(environments),
        seed=seed,
        learning=learning,
        host=address.host,
        port=address.port,
    )
    with closing(session), limited_threads(threads), stop_on_signals() as stop:
        address.announce(session.page, say)
        session.run(lambda: stop.number is not None, episodes)


def first_task(environments: Environments) -> str:
    """Return the task that is shown if none is named: opening the door, where there is one."""
    tasks = environments.world.tasks
    return "door-open" if "door-open" in tasks else tasks[0]


def view_run(run: Path, address: Address, say: Say) -> None:
    """Show a stored run on a page until it is stopped."""
    check_can_view()
    from everlearn.view.replay import ReplaySession, StoredRun

    stored = StoredRun(run, say)
    session = ReplaySession(stored, host=address.host, port=address.port)
    with closing(session), stop_on_signals() as stop:
        address.announce(session.page, say)
        session.run(lambda: stop.number is not None)


def play_in_text(
    name: str, world: str | None, task: str | None, episodes: int, seed: int, say: Say
) -> None:
    """Let a trained agent act, and say how its episodes end."""
    world, agent = trained_agent(name, world)
    environments = Environments(world_named(world))
    with closing(environments):
        task = task or first_task(environments)
        env = environments.of(task)
        check_fits(agent, env, world)
        agent.begin_task(task, environments.world.objective(task))
        for number in range(episodes):
            acting = agent.evaluation_copy(seed + number)
            result = run_episode(
                acting,
                env,
                seed=seed + number,
                explore=False,
                max_steps=environments.world.max_steps,
            )
            if result.success is None:
                ended = f"return {result.total_reward:.1f}"
            else:
                ended = "solved" if result.success else "not solved"
            say(f"{task}, episode {number + 1}: {ended}, {result.length} steps")
