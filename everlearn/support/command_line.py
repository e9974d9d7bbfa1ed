"""A command line from a dataclass: each field is an option, its docstring is its help.

A command is a dataclass whose instances can be called. A field becomes ``--field-name``; the string
after it in the class says what it does. Metadata of a field, made by the functions below, changes
that: `positional`, `repeated`, `flattened`, `internal`. A field that is a dataclass becomes one
option for each of its own fields: ``--evaluation.every``.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import types
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from everlearn.support.errors import EverlearnError, unknown_name

T = TypeVar("T")

_ROLE = "command_line"


class UsageError(EverlearnError):
    """A command line that says something the command does not have; the message names it."""


def positional(default: Any = dataclasses.MISSING) -> Any:
    """Declare a field that is given by its position instead of its name."""
    return dataclasses.field(default=default, metadata={_ROLE: "positional"})


def repeated() -> Any:
    """Declare a tuple whose option may be given many times, one entry each."""
    return dataclasses.field(default=(), metadata={_ROLE: "repeated"})


def flattened(factory: Any) -> Any:
    """Declare a dataclass whose fields are options without a prefix."""
    return dataclasses.field(default_factory=factory, metadata={_ROLE: "flattened"})


def internal(default: Any = dataclasses.MISSING, factory: Any = dataclasses.MISSING) -> Any:
    """Declare a field that no command line sets."""
    return dataclasses.field(default=default, default_factory=factory, metadata={_ROLE: "internal"})


def parse(command: type[T], program: str, words: Sequence[str], defaults: T | None = None) -> T:
    """Make an instance of `command` from the words of a command line.

    Parameters
    ----------
    command
        A dataclass.
    program
        What the user typed before the words, for help and messages.
    words
        Options and positional arguments.
    defaults
        Instance whose values hold where no option is given, and that help shows; without it the
        defaults of the class.

    Raises
    ------
    UsageError
        The words do not fit.
    """
    arguments = list(_arguments(command, defaults, with_help=bool({"-h", "--help"} & {*words})))
    parser = _parser(command, program, arguments)
    values, extra = parser.parse_known_args(list(words))
    if extra:
        raise UsageError(_unknown(extra[0], arguments))
    given = {argument.path: _value(argument, values) for argument in arguments}
    return _instance(command, defaults, given)


def _value(argument: _Argument, values: argparse.Namespace) -> Any:
    value = getattr(values, argument.key)
    if argument.role == "repeated":  # those given come on top of those there are
        return (*argument.default, *(value or ()))
    return value


@dataclass(frozen=True)
class _Argument:
    """One option: its path of field names, its flag, its type and what help says."""

    path: tuple[str, ...]
    flag: str
    type: Any
    role: str | None
    default: Any
    help: str

    @property
    def key(self) -> str:
        return ".".join(self.path)


class _Parser(argparse.ArgumentParser):
    """Raises instead of printing and exiting."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def _arguments(
    kind: type[Any],
    defaults: Any,
    path: tuple[str, ...] = (),
    prefix: str = "",
    *,
    with_help: bool,
) -> Iterator[_Argument]:
    hints, summaries = typing.get_type_hints(kind), _summaries(kind) if with_help else {}
    for item in dataclasses.fields(kind):
        role = item.metadata.get(_ROLE)
        if role == "internal":
            continue
        default = _default(item, defaults)
        where = (*path, item.name)
        # A trailing underscore keeps clear of a keyword of Python.
        flag = f"{prefix}{item.name.rstrip('_').replace('_', '-')}"
        if dataclasses.is_dataclass(hints[item.name]):
            inner = prefix if role == "flattened" else f"{flag}."
            nested = typing.cast("type[Any]", hints[item.name])
            yield from _arguments(nested, default, where, inner, with_help=with_help)
        else:
            yield _Argument(
                where, flag, hints[item.name], role, default, summaries.get(item.name, "")
            )


def _summaries(kind: type[Any]) -> dict[str, str]:
    from everlearn.support.settings import summaries_of  # it parses source files: for help alone

    return summaries_of(kind)


def _default(item: dataclasses.Field[Any], defaults: Any) -> Any:
    if defaults is not None:
        return getattr(defaults, item.name)
    if item.default_factory is not dataclasses.MISSING:
        return item.default_factory()
    return item.default


def _parser(command: type[Any], program: str, arguments: list[_Argument]) -> _Parser:
    parser = _Parser(
        prog=program,
        description=inspect.getdoc(command),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    for argument in arguments:
        _add(parser, argument)
    return parser


def _add(parser: _Parser, argument: _Argument) -> None:
    missing = argument.default is dataclasses.MISSING
    kind = _without_none(argument.type)
    text = argument.help.replace("%", "%%")
    if not missing and argument.default is not False and argument.default not in (None, (), ""):
        text += f" (default: {_shown(argument.default).replace('%', '%%')})"
    settings: dict[str, Any] = {"help": text, "default": argument.default}
    name = argument.flag.upper().rpartition(".")[2]
    if argument.role == "positional":
        many = typing.get_origin(kind) is tuple
        settings |= {"metavar": name, "type": _reader(_element(kind) if many else kind)}
        if many:
            settings["nargs"] = "*"
        elif not missing:
            settings["nargs"] = "?"
        parser.add_argument(argument.key, **settings)
        return
    settings |= {"dest": argument.key, "required": missing}
    if kind is bool:
        only_on = argument.default is False
        settings["action"] = "store_true" if only_on else argparse.BooleanOptionalAction
    elif argument.role == "repeated":
        settings |= {"action": "append", "metavar": name, "type": _reader(_element(kind))}
        settings["default"] = None
    elif typing.get_origin(kind) is tuple and typing.get_args(kind)[-1] is not Ellipsis:
        settings |= {"nargs": len(typing.get_args(kind)), "metavar": name}
        settings["type"] = _reader(typing.get_args(kind)[0])
    elif typing.get_origin(kind) is tuple:
        settings |= {"metavar": f"{name},...", "type": _list_reader(_element(kind))}
    elif typing.get_origin(kind) is typing.Literal:
        settings |= {"choices": typing.get_args(kind)}
    else:
        settings |= {"metavar": name, "type": _reader(kind)}
    parser.add_argument(f"--{argument.flag}", **settings)


def _without_none(kind: Any) -> Any:
    """Return the type of an optional value; None means that the option is not given."""
    if typing.get_origin(kind) not in (typing.Union, types.UnionType):
        return kind
    return next(member for member in typing.get_args(kind) if member is not type(None))


def _element(kind: Any) -> Any:
    return typing.get_args(kind)[0]


_EXPECTED = {int: "a whole number", float: "a number", str: "text", Path: "a path"}


def _reader(kind: Any) -> Any:
    """Return a function that reads one word as `kind`."""

    def read(word: str) -> Any:
        try:
            return kind(word)
        except ValueError:
            expected = _EXPECTED.get(kind, kind.__name__)
            raise argparse.ArgumentTypeError(f"expected {expected}, got {word!r}") from None

    return read


def _list_reader(kind: Any) -> Any:
    read = _reader(kind)
    return lambda word: tuple(read(part.strip()) for part in word.split(","))


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)


def _unknown(word: str, arguments: list[_Argument]) -> str:
    flags = [f"--{argument.flag}" for argument in arguments if argument.role != "positional"]
    if not word.startswith("-"):
        return f"unexpected argument {word!r}"
    flag = word.partition("=")[0]
    return unknown_name("option", flag, flags)


def _instance(kind: type[T], defaults: T | None, values: dict[tuple[str, ...], Any]) -> T:
    """Make an instance from values by path; what no option sets stays as it is."""
    own: dict[str, Any] = {}
    hints = typing.get_type_hints(kind)
    for item in dataclasses.fields(kind):  # type: ignore[arg-type]
        inner = {path[1:]: value for path, value in values.items() if path[0] == item.name}
        if not inner:
            continue
        if () in inner:
            value = inner[()]
            own[item.name] = tuple(value) if isinstance(value, list) else value
        else:
            default = _default(item, defaults)
            own[item.name] = _instance(typing.cast("type[Any]", hints[item.name]), default, inner)
    if defaults is None:
        return kind(**own)
    return dataclasses.replace(defaults, **own)  # type: ignore[type-var]
