"""What connectors may reach outside the database, and what the variables in their options stand for."""

from __future__ import annotations

import glob
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from penstock.config import Settings, substitute
from penstock.errors import PenstockError, fail

Substitute = Callable[[str], str]


def _environment(text: str) -> str:
    return substitute(text, {})


def _default_roots() -> tuple[Path, ...]:
    """The working directory and the folder for temporary files. A process that works in / has not chosen to open all of it."""
    roots = [Path(tempfile.gettempdir())]
    try:
        here = Path.cwd()
    except OSError:
        return tuple(roots)
    return (here, *roots) if here.parent != here else tuple(roots)


@dataclass(frozen=True)
class Access:
    """`roots`: folders that path options may reach. `python_imports`: whether `module:function` may be imported.

    `substitute` replaces `${NAME}` in an option value; it is asked each time a connector starts, so that a new value counts.
    """

    substitute: Substitute = _environment
    roots: tuple[Path, ...] = field(default_factory=_default_roots)
    python_imports: bool = False

    @classmethod
    def of(cls, settings: Settings, folder: Path) -> Access:
        """What the settings allow the database in `folder`."""
        given = settings.security.allowed_roots
        roots = (*_default_roots(), folder) if given is None else tuple(Path(r) for r in given)
        return cls(lambda text: substitute(text, settings.variables), roots, settings.security.allow_python_imports)

    def path(self, connector: str, option: str, text: str) -> Path:
        """The file or folder that a path option names, links and `..` followed; PSK-0012 if it is outside the roots."""
        try:
            found = Path(text).resolve()
        except (OSError, ValueError, RuntimeError) as why:
            raise fail("PSK-1011", f"{connector}: {option} is not a path: {why}.") from None
        self._check(connector, [found])
        return found

    def matching(self, connector: str, option: str, pattern: str) -> list[Path]:
        """The files that a pattern (`*`, `?`, `[…]`, `**`) matches. Nothing outside the roots is even listed."""
        fixed = pattern
        while glob.has_magic(fixed):
            fixed = str(Path(fixed).parent)
        self.path(connector, option, fixed)
        found = sorted(p for f in glob.glob(pattern, recursive=True) if (p := Path(f)).is_file())
        self.check(connector, found)
        return found

    def check(self, connector: str, paths: Iterable[Path]) -> None:
        """PSK-0012 for the first path that leads out of the roots: a link inside may point anywhere."""
        self._check(connector, [p.resolve() for p in paths])

    def _check(self, connector: str, paths: Iterable[Path]) -> None:
        roots = [r.resolve() for r in self.roots]
        for path in paths:
            if not any(path == root or root in path.parents for root in roots):
                raise self._refused(connector, path)

    def _refused(self, connector: str, path: Path) -> PenstockError:
        allowed = ", ".join(str(r) for r in self.roots) or "none"
        return fail(
            "PSK-0012",
            f"{connector} may not reach {path}.",
            hint=f"The setting security.allowed_roots allows: {allowed}. Give others to penstock.open(config=…).",
        )
