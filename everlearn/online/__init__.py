"""The paper: a world model of sparse features that is solved in closed form after every step."""

from everlearn.online.config import OnlineModelConfig
from everlearn.online.model import OnlineWorldModel

__all__ = ["OnlineModelConfig", "OnlineWorldModel"]
