"""The input line: highlighting, history, completion; Enter runs only complete statements."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import HTML
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.styles import Style

from penstock.cli.shell.completion import Names, candidates
from penstock.cli.shell.highlight import SqlHighlighter
from penstock.cli.statements import complete

STYLE = Style.from_dict(
    {
        "prompt": "ansicyan bold",
        "continuation": "ansibrightblack",
        "sql.keyword": "ansiblue bold",
        "sql.string": "ansigreen",
        "sql.name": "ansiyellow",
        "sql.number": "ansimagenta",
        "sql.comment": "ansibrightblack italic",
        "sql.command": "ansicyan",
    }
)


def history_file() -> Path:
    """The history of typed statements: `$XDG_STATE_HOME/penstock/history`, by default below `~/.local/state`."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(state) / "penstock" / "history"


def runs_on_enter(text: str) -> bool:
    """True if Enter ends the input: it is a shell command, an empty line, or only terminated statements."""
    stripped = text.strip()
    if not stripped or stripped.startswith(("\\", ".")) or stripped.lower() in ("exit", "quit", "help"):
        return True
    return complete(text)


class SqlCompleter(Completer):
    """Completes from the names that `names()` returns at the time of the key press."""

    def __init__(self, names: Callable[[], Names]) -> None:
        self._names = names

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        before = document.text_before_cursor
        if before.lstrip().startswith("\\"):
            return
        word = (
            document.get_word_before_cursor(WORD=False)
            if before and (before[-1].isalnum() or before[-1] in "_`")
            else ""
        )
        for found in candidates(before, self._names()):
            yield Completion(found.text, start_position=-len(word), display_meta=found.kind)


def read(session: PromptSession[str]) -> str:
    """Reads the next input. Raises EOFError for Ctrl-D, and KeyboardInterrupt for Ctrl-C, even one typed right after the input, for which the
    terminal sent no signal.
    """
    text = session.prompt()
    ahead = get_typeahead(session.app.input)
    cut = max((i for i, press in enumerate(ahead, 1) if press.key == Keys.ControlC), default=0)
    store_typeahead(session.app.input, ahead[cut:])
    if cut:
        raise KeyboardInterrupt
    return text


def prompt_session(names: Callable[[], Names]) -> PromptSession[str]:
    """The prompt of the shell."""
    session: PromptSession[str] = PromptSession(
        message=HTML("<prompt>penstock&gt;</prompt> "),
        prompt_continuation=HTML("<continuation>      …&gt;</continuation> "),
        history=_history(),
        lexer=SqlHighlighter(),
        completer=SqlCompleter(names),
        complete_while_typing=True,
        key_bindings=_keys(),
        style=STYLE,
        multiline=True,
        enable_history_search=False,
    )
    return session


def _history() -> History:
    path = history_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError:
        # the shell must work even if the home folder is not writable
        return InMemoryHistory()
    return FileHistory(str(path))


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        chosen = buffer.complete_state is not None and buffer.complete_state.current_completion is not None
        at_end = not buffer.document.text_after_cursor.strip()
        if chosen:
            # the word is already in the text: Enter only closes the menu
            buffer.complete_state = None
        elif at_end and runs_on_enter(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys
