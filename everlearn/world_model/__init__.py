"""What all world models share: inputs, scaling, memory and imagination."""

from importlib import import_module
from typing import Any

from everlearn.registry import Registry
from everlearn.support.errors import MissingExtraError

MODELS: Registry[type[Any]] = Registry("world model")
"""Config classes of world models; the modules of a model are imported when it is asked for.

Here, below all of them, so that no model needs to know another.
"""


def _online() -> type[Any]:
    return import_module("everlearn.online.config").OnlineModelConfig


def _mlp() -> type[Any]:
    try:
        return import_module("everlearn.deep.mlp.config").MLPConfig
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtraError("world model 'mlp' needs torch; install everlearn[deep]") from error


MODELS.register_lazy("online", _online)
MODELS.register_lazy("mlp", _mlp)
