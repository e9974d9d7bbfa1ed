"""Agents that learn one world model for life.

Importing this package registers ``everlearn/ContinualBench-v0`` with Gymnasium.
"""

import gymnasium

__version__ = "0.1.0"

gymnasium.register(
    id="everlearn/ContinualBench-v0",
    entry_point="everlearn.continual_bench.env:ContinualBenchEnv",
)
