"""Command classes whose help says of a switch only what it does."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

# typer shows the type of every option that has no word of its own for its value, also of those that take none
SWITCH = ""


class Command(TyperCommand):
    def get_help_option(self, ctx: Any) -> Any:
        return _as_switch(super().get_help_option(ctx))


class Group(TyperGroup):
    def get_help_option(self, ctx: Any) -> Any:
        return _as_switch(super().get_help_option(ctx))


def _as_switch(option: Any) -> Any:
    if option is not None:
        option.metavar = SWITCH
    return option
