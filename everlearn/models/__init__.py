"""World models: what predicts."""

from everlearn.models.ftl import OnlineWorldModel, OnlineWorldModelConfig
from everlearn.models.memory import (
    MEMORIES,
    CommandMemory,
    HistoryMemory,
    Memory,
    MotionMemory,
    NoMemory,
    build_memory,
    states_along,
)

__all__ = [
    "MEMORIES",
    "CommandMemory",
    "HistoryMemory",
    "Memory",
    "MotionMemory",
    "NoMemory",
    "OnlineWorldModel",
    "OnlineWorldModelConfig",
    "build_memory",
    "states_along",
]
