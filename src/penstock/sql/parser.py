"""Parses rewritten tokens with sqlglot's parser, and translates its errors to PSK-1001."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.tokens import Token, TokenType

from penstock.errors import PenstockError, fail
from penstock.plan.dialect import Penstock
from penstock.plan.room import with_room
from penstock.sql.foreign import syntax_hint
from penstock.sql.limits import MAX_NESTING, check_tree, check_written, too_deep
from penstock.sql.programs import check_reach
from penstock.sql.query import ProbeClause
from penstock.sql.rewrite import Rewriter
from penstock.sql.tokens import Script

EMIT_FORMS = "ON WINDOW CLOSE, AFTER WATERMARK, ON UPDATE, CHANGES, FINAL or EVERY INTERVAL '10' SECOND"
_TEXTS = (TokenType.STRING, TokenType.RAW_STRING, TokenType.HEX_STRING, TokenType.IDENTIFIER)
_STARTS = (TokenType.SELECT, TokenType.WITH, TokenType.VALUES, TokenType.FROM, TokenType.L_PAREN)


def parse_select(script: Script, tokens: Sequence[Token]) -> tuple[exp.Expression, tuple[ProbeClause, ...]]:
    """A query expression: SELECT, set operation, VALUES or a parenthesised one."""
    if not tokens:
        raise script.syntax_error("expected a query", script.position(len(script.text)))
    if tokens[0].token_type is TokenType.TABLE:
        # `TABLE t` is `SELECT * FROM t`.
        words = ((TokenType.SELECT, "SELECT"), (TokenType.STAR, "*"), (TokenType.FROM, "FROM"))
        at = tokens[0]
        tokens = [*(Token(k, w, at.line, at.col, at.start, at.end, []) for k, w in words), *tokens[1:]]
    if tokens[0].token_type not in _STARTS:
        raise script.syntax_error("expected a query", script.at(tokens[0]))
    rewriter = Rewriter(script, tokens)
    tree = _parse(script, rewriter.run(), tokens[-1])
    if not isinstance(tree, (exp.Query, exp.Values)):
        raise script.syntax_error("expected a query", script.at(tokens[0]))
    return tree, tuple(rewriter.probes)


def parse_expression(script: Script, tokens: Sequence[Token], what: str) -> exp.Expression:
    """One expression without an alias."""
    where = script.at(tokens[0]) if tokens else script.position(len(script.text))
    if not tokens:
        raise script.syntax_error(f"expected {what}", where)
    at = tokens[0]
    head = Token(TokenType.SELECT, "SELECT", at.line, at.col, at.start, at.end, [])
    tree = _parse(script, [head, *Rewriter(script, tokens).run()], tokens[-1])
    simple = isinstance(tree, exp.Select) and not any(
        v for k, v in tree.args.items() if k not in ("expressions", "kind")
    )
    if not simple or len(tree.expressions) != 1 or isinstance(tree.expressions[0], (exp.Alias, exp.Star)):
        raise script.syntax_error(f"expected {what}", where)
    found: exp.Expression = tree.expressions[0]
    check_written(script, found, where)
    for table in found.find_all(exp.Table):
        # Spark would read it as a file: text.`/etc/passwd`.
        if table.args.get("db"):
            shown = ".".join(p.name for p in table.parts)
            raise script.refusal("PSK-1002", f"{shown} is not found: names have one part", table)
    return found


def _parse(script: Script, tokens: Sequence[Token], last: Token) -> exp.Expression:
    _check_shape(script, tokens)
    # The parser reports the line and column of a token. Passing offsets instead lets us compute the position.
    given = [Token(t.token_type, t.text, t.start, t.end, t.start, t.end, []) for t in tokens]
    try:
        trees = with_room(lambda: Penstock().parser().parse(given, script.text))
    except ParseError as error:
        raise _translate(script, error, last) from None
    except PenstockError as error:
        error.position, error.sql = script.at(tokens[0]), script.shown
        raise
    except Exception as error:
        raise script.syntax_error(
            f"the statement cannot be parsed ({type(error).__name__})", script.at(tokens[0])
        ) from None
    trees = [t for t in trees if t is not None]
    if len(trees) != 1 or isinstance(trees[0], exp.Command):
        raise script.syntax_error("unknown statement", script.at(tokens[0]))
    tree = cast(exp.Expression, trees[0])
    command = tree.find(exp.Command)
    if command is not None:
        raise script.syntax_error("unknown statement", script.at(tokens[0]))
    check_tree(script, tree, script.at(tokens[0]))
    check_reach(script, tree, script.at(tokens[0]))
    return tree


def _check_shape(script: Script, tokens: Sequence[Token]) -> None:
    """Rejects what the stock parser would wrongly accept or crash on: empty list items, very deep nesting."""
    depth = 0
    after_comma = False
    _check_foreign(script, tokens)
    for t in tokens:
        if after_comma and t.token_type in (TokenType.COMMA, TokenType.R_PAREN, TokenType.FROM):
            raise script.syntax_error(f"unexpected '{t.text}' after a comma", script.at(t))
        after_comma = t.token_type is TokenType.COMMA
        depth += t.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET)
        depth -= t.token_type in (TokenType.R_PAREN, TokenType.R_BRACKET)
        if depth > MAX_NESTING:
            raise too_deep(script, script.at(t))


_FOREIGN: dict[tuple[str, ...], tuple[str, str]] = {
    ("(", "+", ")"): ("(+)", "Write a LEFT JOIN: a LEFT JOIN b ON a.k = b.k."),
    ("SELECT", "AS", "STRUCT"): ("SELECT AS STRUCT", "Write SELECT struct(a, b) AS s."),
    ("SELECT", "AS", "VALUE"): ("SELECT AS VALUE", "Write SELECT s.*."),
    ("WITH", "FILL"): ("WITH FILL", "Join a series: docs/sql.md, missing windows."),
    ("|>",): ("the pipe |>", "Write SELECT … FROM …, with derived tables or WITH."),
    ("CROSS", "APPLY"): ("CROSS APPLY", "Write JOIN LATERAL (…) AS x ON true."),
    ("OUTER", "APPLY"): ("OUTER APPLY", "Write LEFT JOIN LATERAL (…) AS x ON true."),
    ("GROUP BY", "DISTINCT"): ("GROUP BY DISTINCT", "Write each grouping set once in GROUPING SETS."),
}
"""Clauses of other systems that the stock parser reads, and no engine here carries out."""


def _check_foreign(script: Script, tokens: Sequence[Token]) -> None:
    words = [t.text.upper() if t.token_type not in _TEXTS else "" for t in tokens]
    for clause, (name, hint) in _FOREIGN.items():
        first = clause[0]
        for i, word in enumerate(words):
            after = words[i + len(clause)] if i + len(clause) < len(words) else ""
            # WITH fill AS (…) is a query of that name.
            named = first == "WITH" and after in ("AS", "(")
            if word == first and tuple(words[i : i + len(clause)]) == clause and not named:
                start, end = tokens[i].start, tokens[i + len(clause) - 1].end
                where = script.position(start, end - start + 1)
                raise fail("PSK-1012", f"{name} is not supported", position=where, sql=script.shown, hint=hint)


def _translate(script: Script, error: ParseError, last: Token) -> PenstockError:
    info = error.errors[0] if error.errors else {}
    start, end = info.get("line"), info.get("col")
    description = str(info.get("description") or "")
    if not isinstance(start, int) or not isinstance(end, int):
        start, end = last.start, last.end
    found = script.text[start : end + 1]
    if description.startswith("Expecting "):
        detail = f"expected {description.removeprefix('Expecting ')} near '{found}'"
    elif description.startswith("Required keyword"):
        detail = f"something is missing near '{found}'"
    else:
        detail = f"unexpected '{found}'"
    hint = f"Write EMIT {EMIT_FORMS}." if found.upper() == "EMIT" else None
    if found in ("~", ":"):
        hint = syntax_hint(script.text[max(0, start - 20) : end + 2])
    return script.syntax_error(detail, script.position(start, end - start + 1), hint)
