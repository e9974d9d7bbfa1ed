"""What a watched run costs, and how soon a plan follows a goal that was dragged.

    python -m benchmarks.view

Steps of an agent that learns are timed in turns, with and without a page connected to the run; the
page is a process of its own that reads all it is sent. Ratios of neighbouring turns count, so that
other work on the machine counts little. The latency is from sending the dragged goal as a page does
until that page has the new plan. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import threading
import time
from typing import Any

import numpy as np

from benchmarks.page_client import Client
from everlearn.agents import make_agent
from everlearn.runs.machine import processor
from everlearn.support.threads import limited_threads
from everlearn.view.live import LiveSession
from everlearn.view.watch import Watch
from everlearn.worlds import Environments, world_named

TASK = "button-press"
TURN, TURNS, DRAGS = 100, 12, 40
SLOWDOWN, LATENCY = 0.95, 0.1


def page(url: str, asked: Any, done: Any) -> None:
    """Be a page: connect and disconnect when asked, and read everything in between."""
    client: Client | None = None
    while True:
        if client is not None:
            client.receive(0.05)
            client.messages.clear()
        if asked.poll(0 if client is not None else None):
            word = asked.recv()
            if client is not None:
                client.close()
                client = None
            if word == "end":
                return
            if word == "connect":
                client = Client(url)
                client.until_controls("imagined paths")
            done.send(word)


class Life:
    """An agent that learns in a run that is watched."""

    def __init__(self) -> None:
        self.environments = Environments(world_named("continual-bench"))
        self.env: Any = self.environments.of(TASK)
        self.agent: Any = make_agent("oa", self.env, 0)
        self.agent.begin_task(TASK, self.environments.world.objective(TASK))
        self.watch = Watch(port=0)
        self.episode = 0
        self._begin()

    def _begin(self) -> None:
        self.episode += 1
        self.obs, _ = self.env.reset(seed=self.episode)
        self.agent.begin_episode()
        self.on_step = self.watch.episode(self.agent, self.env, TASK, self.episode)

    def steps(self, count: int) -> tuple[float, float]:
        """Take steps, as runs do; returns seconds and processor time, without those of resets."""
        seconds = worked = 0.0
        for _ in range(count):
            began, working = time.perf_counter(), time.process_time()
            action = self.agent.act(self.obs)
            after, reward, terminated, truncated, _ = self.env.step(action)
            self.agent.observe(self.obs, action, after, reward, terminated)
            assert self.on_step is not None
            self.on_step(self.obs, action, after, reward)
            self.obs = after
            seconds += time.perf_counter() - began
            worked += time.process_time() - working
            if terminated or truncated:
                self._begin()
        return seconds, worked


def slowdown(turns: int) -> dict[str, Any]:
    """Steps a second with and without a page, in turns."""
    life = Life()
    assert life.watch.page is not None
    context = multiprocessing.get_context("spawn")
    asked, hears = context.Pipe()
    says, done = context.Pipe()
    reader = context.Process(target=page, args=(life.watch.page.url, hears, says), daemon=True)
    reader.start()
    seconds: dict[str, list[tuple[float, float]]] = {"without": [], "with": []}
    life.steps(TURN)
    for turn in range(turns):
        # Each goes first as often, as what an agent does costs more the more it knows.
        for name in ("without", "with") if turn % 2 else ("with", "without"):
            asked.send("connect" if name == "with" else "leave")
            done.recv()
            life.steps(10)
            assert life.watch.page.watched == (name == "with")
            seconds[name].append(life.steps(TURN))
    asked.send("end")
    reader.join(10)
    life.watch.end()
    life.environments.close()
    alone, watched = (np.array(seconds[name]) for name in ("without", "with"))
    ratios = alone / watched
    return {
        "steps_per_second": {
            "without": TURN / float(np.median(alone[:, 0])),
            "with": TURN / float(np.median(watched[:, 0])),
        },
        "ratio": float(np.median(ratios[:, 0])),
        "ratio_of_processor_time": float(np.median(ratios[:, 1])),
        "ratios": ratios[:, 0].round(3).tolist(),
        "frames_dropped": life.watch.page.frames.dropped,
    }


def latency(drags: int) -> dict[str, float]:
    """Seconds from a dragged goal to its plan on the page."""
    environments = Environments(world_named("continual-bench"))
    agent = make_agent("oa", environments.of("pick-place"), 0)
    session = LiveSession(environments, agent, "pick-place", port=0)
    stop = threading.Event()

    def go_on() -> None:
        with limited_threads(1):
            session.run(stop.is_set)

    loop = threading.Thread(target=go_on)
    loop.start()
    client = Client(session.page.url)
    client.until_controls("pause")
    while session.observer._steps < 60:  # something is known by then
        client.receive(0.05)
    client.use("pause")
    while not session.pace.paused:
        client.receive(0.05)
    while client.receive(0.3):
        pass
    generator = np.random.default_rng(0)
    seconds = []
    for _ in range(drags):
        goal = generator.uniform((0.3, 0.0, 0.05), (0.6, 0.4, 0.3))
        began = time.perf_counter()
        client.drag_goal(*map(float, goal))
        client.until(lambda message: message.get("name") == "/plan" and "updates" in message)
        seconds.append(time.perf_counter() - began)
        while client.receive(0.1):
            pass
    client.close()
    stop.set()
    loop.join()
    session.close()
    return {"median": statistics.median(seconds), "largest": max(seconds)}


def main() -> None:
    """Measure, and print what came out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--drags", type=int, default=DRAGS)
    chosen = parser.parse_args()
    with limited_threads(1):
        watched = slowdown(chosen.turns)
    waited = latency(chosen.drags)
    found = {
        "processor": processor(),
        "watched": {**watched, "at_least": SLOWDOWN, "met": watched["ratio"] >= SLOWDOWN},
        "goal_to_plan": {**waited, "at_most": LATENCY, "met": waited["median"] <= LATENCY},
    }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
