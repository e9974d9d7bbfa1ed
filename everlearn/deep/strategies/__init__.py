"""Strategies: what protects a network from forgetting.

Needs the extra ``deep`` (PyTorch). What a strategy is, is written in `base`.
"""

from everlearn.deep.strategies.base import Protection, Strategy
from everlearn.deep.strategies.coreset import Coreset
from everlearn.deep.strategies.ewc import ElasticWeightConsolidation
from everlearn.deep.strategies.finetune import FineTuning
from everlearn.deep.strategies.packnet import PackNet
from everlearn.deep.strategies.perfect_memory import PerfectMemory
from everlearn.deep.strategies.si import SynapticIntelligence
from everlearn.deep.strategies.storage import Storage
from everlearn.registry import Registry

STRATEGIES: Registry[type[Strategy]] = Registry("strategy")
STRATEGIES.register(FineTuning.name, FineTuning)
STRATEGIES.register(ElasticWeightConsolidation.name, ElasticWeightConsolidation)
STRATEGIES.register(SynapticIntelligence.name, SynapticIntelligence)
STRATEGIES.register(PackNet.name, PackNet)
STRATEGIES.register(Coreset.name, Coreset)
STRATEGIES.register(PerfectMemory.name, PerfectMemory)


def as_strategy(strategy: str | Strategy) -> Strategy:
    """Return a strategy by its registered name, or `strategy` itself.

    The class of a strategy that nobody has registered yet is registered under its name, so that
    runs can say which one they used.
    """
    if isinstance(strategy, str):
        return STRATEGIES.get(strategy)()
    if strategy.name not in STRATEGIES:
        STRATEGIES.register(strategy.name, type(strategy))
    return strategy


__all__ = [
    "STRATEGIES",
    "Coreset",
    "ElasticWeightConsolidation",
    "FineTuning",
    "PackNet",
    "PerfectMemory",
    "Protection",
    "Storage",
    "Strategy",
    "SynapticIntelligence",
    "as_strategy",
]
