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
    with pytest.raises(UnknownNameError, match="Known: none"):
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


def test_lazy_components_are_loaded_once_and_when_asked_for():
    registry: Registry[object] = Registry("component")
    loaded = []

    def load() -> object:
        loaded.append(object())
        return loaded[-1]

    registry.register_lazy("slow", load)
    assert registry.names() == ("slow",)
    assert "slow" in registry
    assert not loaded
    assert registry.get("slow") is registry.get("slow") is loaded[0]
    with pytest.raises(InvalidInputError, match="already"):
        registry.register_lazy("slow", load)


def test_the_name_of_a_component_is_found_without_loading_others_in_vain():
    registry: Registry[object] = Registry("component")

    def missing() -> object:
        raise ImportError("an extra is not installed")

    item, lazy = object(), object()
    registry.register_lazy("other", missing)
    registry.register("mine", item)
    assert registry.name_of(item) == "mine"
    registry.unregister("other")
    registry.register_lazy("late", lambda: lazy)
    assert registry.name_of(lazy) == "late"
    with pytest.raises(UnknownNameError, match="is not registered as a component"):
        registry.name_of(3)


@pytest.mark.parametrize("name", ["", " a", "-a", "a/b", "../a", "a\n", None, 3, "a:b"])
def test_names_that_could_not_be_part_of_a_path_are_refused(name: object):
    registry: Registry[int] = Registry("number")
    with pytest.raises(InvalidInputError, match="number name"):
        registry.register(name, 1)  # type: ignore[arg-type]
    assert len(registry) == 0
