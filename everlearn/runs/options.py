"""Options of agents, as words of a command line or values of a JSON file."""

from __future__ import annotations

import difflib
import inspect
import json
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium

from everlearn.agents import AGENTS
from everlearn.support.errors import InvalidInputError, UnknownNameError


def option_types(agent: str) -> dict[str, Any]:
    """Types of an agent's options by name.

    A factory says them itself with a method ``option_types``, or has its options as keyword
    parameters.
    """
    factory = AGENTS.get(agent)
    told = getattr(factory, "option_types", None)
    if told is not None:
        return dict(told())
    hints = typing.get_type_hints(factory)
    return {
        name: hints.get(name, Any)
        for name, parameter in inspect.signature(factory).parameters.items()
        if name not in ("env", "seed") and parameter.kind is not parameter.VAR_KEYWORD
    }


def resolved_options(
    agent: str, env: gymnasium.Env[Any, Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """All options of an agent with their values, given or default, as plain JSON values.

    A factory says them itself with a method ``settings``, or has their defaults in its
    signature. They are options themselves: given in full, they make the same agent when
    defaults have changed.
    """
    factory = AGENTS.get(agent)
    told = getattr(factory, "settings", None)
    if told is not None:
        values = told(env, **options)
    else:
        parameters = inspect.signature(factory).parameters
        values = {name: parameters[name].default for name in option_types(agent)} | dict(options)
    plain: dict[str, Any] = json.loads(json.dumps(values, allow_nan=False))
    return plain


def parse_options(agent: str, words: Iterable[str]) -> dict[str, Any]:
    """Read ``name=value`` words, each value as the type of that option."""
    known = option_types(agent)
    options = {}
    for word in words:
        name, sign, text = word.partition("=")
        if not sign:
            raise InvalidInputError(f"option {word!r} has no value; write it as name=value")
        kind = _known(agent, name, known)
        options[name] = _parsed(name, text, kind)
    return options


def check_options(agent: str, options: Mapping[str, Any]) -> None:
    """Refuse an option that the agent does not have, or of another type."""
    known = option_types(agent)
    for name, value in options.items():
        kind = _known(agent, name, known)
        if not _fits(value, kind):
            raise InvalidInputError(f"option {name} is {value!r}; expected {_named(kind)}")


def _known(agent: str, name: str, known: dict[str, Any]) -> Any:
    if name in known:
        return known[name]
    close = difflib.get_close_matches(name, list(known), n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise UnknownNameError(
        f"unknown option {name!r} of agent {agent!r}; known: {', '.join(known) or 'none'}.{hint}"
    )


_WORDS = {"true": True, "false": False, "none": None, "null": None}


def _parsed(name: str, text: str, kind: Any) -> Any:
    """Read `text` as the first of text, word, whole number and number that fits `kind`."""
    for read in (str, lambda word: _WORDS[word.lower()], int, float):
        try:
            value = read(text)
        except (ValueError, KeyError):
            continue
        if _fits_exactly(value, kind):
            return value
    raise InvalidInputError(f"option {name}={text}: expected {_named(kind)}")


def _members(kind: Any) -> tuple[Any, ...]:
    """Types of a union, values of a Literal, or the type itself."""
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return tuple(part for member in typing.get_args(kind) for part in _members(member))
    return typing.get_args(kind) if origin is typing.Literal else (kind,)


def _fits_exactly(value: Any, kind: Any) -> bool:
    for member in _members(kind):
        if member is Any or not isinstance(member, type):
            fits = member is Any or value == member
        else:
            fits = isinstance(value, member) and (member is bool or not isinstance(value, bool))
        if fits:
            return True
    return False


def _fits(value: Any, kind: Any) -> bool:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return _fits_exactly(value, kind) or (whole and float in _members(kind))


def _named(kind: Any) -> str:
    words = {type(None): "null", int: "a whole number", float: "a number", bool: "true or false"}
    return " or ".join(
        words.get(member, member.__name__) if isinstance(member, type) else repr(member)
        for member in _members(kind)
    )
