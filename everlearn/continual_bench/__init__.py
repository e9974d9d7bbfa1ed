"""Continual Bench: six manipulation tasks around one table, in one world with one dynamics."""

from everlearn.continual_bench.tasks import PAPER_TASKS, TASKS, Task, register_task

__all__ = ["PAPER_TASKS", "TASKS", "Task", "register_task"]
