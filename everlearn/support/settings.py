"""Settings as a tree of frozen dataclasses, read and changed by dotted paths.

An agent's config is a frozen dataclass that contains its parts' configs. An option is a dotted
path into that tree: ``planner.horizon`` is the field `horizon` of the field `planner`. A part that
can be one of several sorts is declared with `part`; the path of the part itself then takes the
name of another sort: ``memory=history``.

The first line of the string that follows a field in its class is what lists and help pages say.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import json
import textwrap
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from everlearn.support.errors import InvalidInputError, UnknownNameError, given, unknown_name

C = TypeVar("C")

_CHOICES = "choices"


class Choices(typing.Protocol):
    """What `part` needs of a registry of config classes."""

    def get(self, name: str) -> type[Any]:
        """Return the config class of that name."""
        ...

    def name_of(self, item: object) -> str:
        """Return the name of a config class."""
        ...

    def names(self) -> tuple[str, ...]:
        """Return all names."""
        ...


@dataclass(frozen=True)
class Option:
    """One setting of a config.

    Attributes
    ----------
    path
        Dotted path from the config.
    type
        Type of its value; a Literal of all names for a part with several sorts.
    value
        Its value in that config.
    summary
        What it does, in a line.
    """

    path: str
    type: Any
    value: Any
    summary: str


def part(choices: Choices, default: Any) -> Any:
    """Declare a field whose value is one of the config classes registered in `choices`.

    Parameters
    ----------
    choices
        Registry of frozen dataclasses.
    default
        Config that the field has if none is given.
    """
    return field(default=default, metadata={_CHOICES: choices})


def options_of(config: Any) -> dict[str, Option]:
    """Return all options of a config by their paths, in the order of the classes' fields."""
    found: dict[str, Option] = {}
    hints, summaries = typing.get_type_hints(type(config)), summaries_of(type(config))
    for item in dataclasses.fields(config):
        value, summary = getattr(config, item.name), summaries.get(item.name, "")
        choices = item.metadata.get(_CHOICES)
        if choices is not None:
            kind: Any = typing.Literal.__getitem__(tuple(choices.names()))
            found[item.name] = Option(item.name, kind, choices.name_of(type(value)), summary)
        elif not dataclasses.is_dataclass(value):
            found[item.name] = Option(item.name, hints[item.name], value, summary)
        if dataclasses.is_dataclass(value):
            for path, inner in options_of(value).items():
                path = f"{item.name}.{path}"
                found[path] = dataclasses.replace(inner, path=path)
    return found


def values_of(config: Any) -> dict[str, Any]:
    """Return the value of every option by its path, as JSON has it.

    Given to `with_options` in full, they make an equal config when defaults have changed.
    """
    values = {path: option.value for path, option in options_of(config).items()}
    plain: dict[str, Any] = json.loads(json.dumps(values, allow_nan=False))
    return plain


def with_options(config: C, options: Mapping[str, Any]) -> C:
    """Return `config` with some options changed; names and types are checked.

    Parameters
    ----------
    config
        A frozen dataclass.
    options
        Values by dotted path; ``{"planner": {"horizon": 5}}`` is the same as
        ``{"planner.horizon": 5}``. Another sort of a part starts from that sort's defaults,
        whatever the order of the options.
    """
    options = _dotted(options)
    chosen = _with_parts(config, options)
    known = options_of(chosen)
    for path, value in options.items():
        option = _known(path, known)
        if not _fits(value, option.type):
            raise InvalidInputError(
                f"option {path} is {given(value)}; expected {type_name(option.type)}"
            )
    return _replaced(chosen, {path: options[path] for path in options})


def parse_options(config: Any, words: Iterable[str]) -> dict[str, Any]:
    """Read ``path=value`` words, each value as the type of that option of `config`."""
    pairs: dict[str, str] = {}
    for word in words:
        path, sign, text = word.partition("=")
        if not sign:
            raise InvalidInputError(f"option {word!r} has no value; write it as name=value")
        pairs[path] = text
    # Parts first: what they are decides which other options there are.
    known = options_of(_with_parts(config, pairs))
    return {path: _parsed(path, text, _known(path, known).type) for path, text in pairs.items()}


def _with_parts(config: C, options: Mapping[str, Any]) -> C:
    """Return `config` with the sorts of its parts that `options` name."""
    changes: dict[str, Any] = {}
    for item in dataclasses.fields(config):  # type: ignore[arg-type]
        value, choices = getattr(config, item.name), item.metadata.get(_CHOICES)
        if choices is not None and item.name in options:
            name = options[item.name]
            if not isinstance(name, str):
                raise InvalidInputError(
                    f"option {item.name} is {given(name)}; expected one of "
                    f"{', '.join(choices.names())}"
                )
            kind = choices.get(name)
            value = value if kind is type(value) else kind()
        if dataclasses.is_dataclass(value):
            value = _with_parts(value, _below(item.name, options))
        if value is not getattr(config, item.name):
            changes[item.name] = value
    return dataclasses.replace(config, **changes) if changes else config  # type: ignore[type-var]


def _replaced(config: C, options: Mapping[str, Any]) -> C:
    """Set the plain options of a config whose parts have their sorts already."""
    changes: dict[str, Any] = {}
    hints = typing.get_type_hints(type(config))
    for item in dataclasses.fields(config):  # type: ignore[arg-type]
        value = getattr(config, item.name)
        if dataclasses.is_dataclass(value):
            inner = _replaced(value, _below(item.name, options))
            if inner is not value:
                changes[item.name] = inner
        elif item.name in options:
            changes[item.name] = _as_type(options[item.name], hints[item.name])
    # All at once: settings that only fit together are checked together.
    return dataclasses.replace(config, **changes) if changes else config  # type: ignore[type-var]


def _dotted(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested options by their dotted paths."""
    flat: dict[str, Any] = {}
    for path, value in options.items():
        if isinstance(value, Mapping):
            flat |= {f"{path}.{inner}": deeper for inner, deeper in _dotted(value).items()}
        else:
            flat[path] = value
    return flat


def _below(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    start = f"{name}."
    return {path[len(start) :]: value for path, value in options.items() if path.startswith(start)}


def _known(path: str, known: Mapping[str, Option]) -> Option:
    if path in known:
        return known[path]
    # A name without its path is the likeliest mistake.
    ends = [other for other in known if other.rpartition(".")[2] == path]
    raise UnknownNameError(unknown_name("option", path, known, ends))


_WORDS = {"true": True, "false": False, "none": None, "null": None}


def _parsed(path: str, text: str, kind: Any) -> Any:
    """Read `text` as the first of text, word, whole number and number that fits `kind`."""
    for read in (str, lambda word: _WORDS[word.lower()], int, float):
        try:
            value = read(text)
        except (ValueError, KeyError):
            continue
        if _fits_exactly(value, kind):
            return value
    raise InvalidInputError(f"option {path}={text}: expected {type_name(kind)}")


def _members(kind: Any) -> tuple[Any, ...]:
    """Types of a union, values of a Literal, or the type itself."""
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return tuple(inner for member in typing.get_args(kind) for inner in _members(member))
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


def _as_type(value: Any, kind: Any) -> Any:
    """Return a whole number as a float where the option is one, so that equal configs are equal."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if whole and not _fits_exactly(value, kind) else value


def type_name(kind: Any) -> str:
    """Return a type in words, for messages and lists."""
    words = {type(None): "none", int: "a whole number", float: "a number", bool: "true or false"}
    words[str] = "text"
    return " or ".join(
        words.get(member, member.__name__) if isinstance(member, type) else repr(member)
        for member in _members(kind)
    )


def summaries_of(kind: type[Any]) -> dict[str, str]:
    """First line of the string after each field of a dataclass, its bases included."""
    return _summaries(typing.cast("Any", kind))


@functools.cache  # finding the source of a class reads its whole file
def _summaries(kind: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(typing.cast("type[Any]", base))))
        except (OSError, TypeError, SyntaxError):  # made at run time: there is no source
            continue
        body = typing.cast("ast.ClassDef", tree.body[0]).body
        for before, after in itertools.pairwise(body):
            if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name):
                text = after.value.value if _is_text(after) else ""  # type: ignore[attr-defined]
                found[before.target.id] = " ".join(text.strip().split("\n\n")[0].split())
    return found


def _is_text(node: ast.stmt) -> bool:
    value = getattr(node, "value", None)
    return (
        isinstance(node, ast.Expr)
        and isinstance(value, ast.Constant)
        and isinstance(value.value, str)
    )
