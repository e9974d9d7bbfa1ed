"""Strategies: what protects a network from forgetting.

Needs the extra ``deep`` (PyTorch). What a strategy is, is written in `everlearn.protocols`.
"""

from everlearn.registry import Registry
from everlearn.strategies.base import Protection, Strategy
from everlearn.strategies.coreset import Coreset
from everlearn.strategies.ewc import ElasticWeightConsolidation
from everlearn.strategies.finetune import FineTuning
from everlearn.strategies.packnet import PackNet
from everlearn.strategies.perfect_memory import PerfectMemory
from everlearn.strategies.si import SynapticIntelligence

STRATEGIES: Registry[type[Strategy]] = Registry("strategy")
STRATEGIES.register(FineTuning.name, FineTuning)
STRATEGIES.register(ElasticWeightConsolidation.name, ElasticWeightConsolidation)
STRATEGIES.register(SynapticIntelligence.name, SynapticIntelligence)
STRATEGIES.register(PackNet.name, PackNet)
STRATEGIES.register(Coreset.name, Coreset)
STRATEGIES.register(PerfectMemory.name, PerfectMemory)

__all__ = [
    "STRATEGIES",
    "Coreset",
    "ElasticWeightConsolidation",
    "FineTuning",
    "PackNet",
    "PerfectMemory",
    "Protection",
    "Strategy",
    "SynapticIntelligence",
]
