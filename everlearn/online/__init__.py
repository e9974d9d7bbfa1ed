"""The paper: a world model of sparse features that is solved in closed form after every step."""

from everlearn.online.model import OnlineWorldModel, OnlineWorldModelConfig

__all__ = ["OnlineWorldModel", "OnlineWorldModelConfig"]
