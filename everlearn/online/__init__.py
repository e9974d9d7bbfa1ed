"""The paper: sparse features, and a ridge regression on them that is updated at every step."""

from everlearn.online.config import OnlineModelConfig
from everlearn.online.model import OnlineWorldModel

__all__ = ["OnlineModelConfig", "OnlineWorldModel"]
