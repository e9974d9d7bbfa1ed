from __future__ import annotations

import pytest

from everlearn.registry import Registry
from everlearn.support.errors import EverlearnError, InvalidInputError, UnknownNameError


def test_names_come_in_order_and_only_once():
    registry: Registry[int] = Registry("number")
    registry.register("two", 2)
    registry.register("one", 1)
    assert registry.names() == ("two", "one")
    assert registry.get("one") == 1
    assert "one" in registry
    assert len(registry) == 2
    with pytest.raises(InvalidInputError, match="already"):
        registry.register("one", 3)
    assert registry.get("one") == 1
    assert registry.register("one", 3, replace=True) == 3
    registry.unregister("two")
    assert list(registry) == ["one"]


def test_unknown_names_are_explained():
    registry: Registry[int] = Registry("number")
    with pytest.raises(UnknownNameError, match="none registered"):
        registry.get("one")
    registry.register("seven", 7)
    with pytest.raises(UnknownNameError, match=r"unknown number 'sevn'.*Did you mean 'seven'"):
        registry.get("sevn")
    with pytest.raises(UnknownNameError, match="seven"):
        registry.get(["unhashable"])  # type: ignore[arg-type]
    with pytest.raises(KeyError):
        registry.unregister("eight")
    with pytest.raises(EverlearnError):
        registry.register(" padded ", 1)
