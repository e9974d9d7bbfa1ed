"""What all world models share: inputs, scaling, memory and imagination."""

from importlib import import_module
from typing import Any

from everlearn.registry import Registry
from everlearn.support.errors import needs_extra

MODELS: Registry[type[Any]] = Registry("world model")
"""Config classes of world models; a model is imported when its name is asked for."""


def _online() -> type[Any]:
    return import_module("everlearn.online.config").OnlineModelConfig


def _mlp() -> type[Any]:
    with needs_extra("the world model 'mlp'", "torch", "deep"):
        return import_module("everlearn.deep.mlp.config").MLPConfig


MODELS.register_lazy("online", _online)
MODELS.register_lazy("mlp", _mlp)
