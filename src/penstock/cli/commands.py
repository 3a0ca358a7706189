"""Command classes whose help shows no value type for switches."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

# typer shows the value type of every option without a metavar, even of switches, which have no value
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
