"""Schedule and seeds."""

import pytest

from everlearn.runs import schedule
from everlearn.runs.config import EvaluationSchedule
from everlearn.runs.presets import preset_config
from tests.runs.worker import tiny


def points(config):
    return {
        done: schedule.evaluation_episodes(config, done)
        for done in range(config.episodes + 1)
        if schedule.evaluation_episodes(config, done)
    }


def test_the_papers_schedule():
    found = points(preset_config("paper"))
    assert len(found) == 31
    assert {done: found[done] for done in (0, 20, 40, 60, 80, 100, 120, 600)} == {
        0: 20, 20: 5, 40: 5, 60: 5, 80: 5, 100: 20, 120: 5, 600: 20,
    }  # fmt: skip


def test_quick_evaluates_twice_a_task():
    assert points(preset_config("quick")) == dict.fromkeys(range(0, 61, 5), 5)


def test_periods_that_are_no_multiple_start_counting_anew():
    config = tiny(episodes_per_task=5, evaluation=EvaluationSchedule(2, 1, 3, 0))
    assert points(config) == {0: 3, 2: 1, 4: 1, 5: 3, 7: 1, 9: 1, 10: 3}
    # The first task at 0, one at 2 and 4, both from 5 on: the second is about to begin there.
    assert schedule.evaluation_total(config) == 3 + (1 + 1) + 2 * (3 + 1 + 1 + 3)
    assert schedule.evaluation_total(config, 5) == 2 * (3 + 1 + 1 + 3)
    assert schedule.evaluation_total(config, 6) == 2 * (1 + 1 + 3)


def test_without_episodes_at_switches_there_is_no_evaluation_at_the_start():
    config = tiny(episodes_per_task=5, evaluation=EvaluationSchedule(2, 1, 0, 0))
    assert points(config) == {2: 1, 4: 1, 7: 1, 9: 1}


def test_seen_tasks():
    config = tiny(tasks=("door-open", "window-close", "door-open"), episodes_per_task=2)
    assert schedule.seen_tasks(config, 0) == ()
    assert schedule.seen_tasks(config, 2) == ("door-open",)
    assert schedule.seen_tasks(config, 3) == ("door-open", "window-close")
    assert schedule.seen_tasks(config, 6) == ("door-open", "window-close")


def test_a_task_is_evaluated_before_its_first_episode_and_not_yet_seen():
    config = tiny(tasks=("door-open", "window-close", "door-open"), episodes_per_task=2)
    assert schedule.evaluated_tasks(config, 0) == ("door-open",)
    assert schedule.evaluated_tasks(config, 1) == ("door-open",)
    assert schedule.evaluated_tasks(config, 2) == ("door-open", "window-close")
    # A task that comes again is there once, and nothing comes after the end.
    for done in (3, 4, 5, 6):
        assert schedule.evaluated_tasks(config, done) == ("door-open", "window-close")
    paper = preset_config("paper")
    assert [len(schedule.evaluated_tasks(paper, w)) for w in (0, 20, 100, 101, 120, 500, 600)] == [
        1, 1, 2, 2, 2, 6, 6,
    ]  # fmt: skip


def test_seeds_differ_by_everything_that_names_them():
    one, two = tiny(), tiny(seed=1)
    seeds = {
        schedule.agent_seed(one),
        schedule.agent_seed(two),
        schedule.environment_seed(one, 0),
        schedule.environment_seed(one, 1),
        schedule.environment_seed(two, 0),
        *(
            schedule.evaluation_seeds(config, done, task, episode)[0]
            for config in (one, two)
            for done in (1, 2)
            for task in ("door-open", "window-close")
            for episode in (0, 1)
        ),
    }
    assert len(seeds) == 5 + 16


@pytest.mark.parametrize("agent", ["oa", "scripted"])
def test_seeds_depend_on_nothing_else(agent):
    place = (3, "door-open", 0)
    expected = schedule.evaluation_seeds(tiny(), *place)
    found = schedule.evaluation_seeds(tiny(agent, episodes_per_task=9), *place)
    assert found[0] == expected[0]
    assert found[1].spawn_key == expected[1].spawn_key
