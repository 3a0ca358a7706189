"""Rewrites Penstock's own syntax at token level, so that the stock parser can read it.

| written | rewritten |
|---|---|
| `[LEFT\\|INNER] ASOF JOIN q MATCH_CONDITION (c) ON e` | `JOIN q ON __asof('left'\\|'inner', c) AND e` |
| `[LEFT\\|INNER] ASOF JOIN q ON e` | `JOIN q ON __asof('left'\\|'inner') AND e` |
| `JOIN r FOR SYSTEM_TIME AS OF o.ts AS r ON e` | `JOIN r AS r ON __temporal(o.ts) AND e` |
| `TEMPORAL PROBE JOIN m … LIST (…) AS p` | `JOIN m ON __probe(n)`, the rest in `probes[n]` |
| `TUMBLE(TABLE s, DESCRIPTOR(ts), …)`, `TABLE(TUMBLE(…))` | `TUMBLE(s, DESCRIPTOR(ts), …)` |
| `window(…)`, `window.start` | the same as a name; only `WINDOW w AS` is the clause |
| `SESSION(…)` | `__session(…)` (a keyword of the stock parser) |
| `SESSION(TABLE s PARTITION BY a, b, DESCRIPTOR(ts), …)` | `__session(s, __partition(a, b), DESCRIPTOR(ts), …)` |

Tokens keep their positions in the script; inserted tokens get the position of the syntax they replace.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from penstock.sql import intervals
from penstock.sql.query import ProbeClause
from penstock.sql.tokens import Cursor, Script, is_name, words_of

_WINDOWS = ("TUMBLE", "HOP", "SESSION", "CUMULATE")
# The words that begin the syntax of temporal joins.
_JOINS = frozenset({"ASOF", "LEFT", "INNER", "RIGHT", "FULL", "TEMPORAL", "FOR"})
PARTITION = "__partition"
_OFFSET = re.compile(r"\s*([+-]?\s*\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*$")


class Rewriter:
    """Reads the tokens of one query; `out` and `probes` are the result."""

    def __init__(self, script: Script, tokens: Sequence[Token]) -> None:
        self.cursor = Cursor(script, tokens)
        self.script = script
        self.out: list[Token] = []
        self.probes: list[ProbeClause] = []
        self.pending: list[tuple[int, list[Token]]] = []
        self.depth = 0

    def run(self) -> list[Token]:
        c = self.cursor
        while not c.done:
            if not self._special():
                token = c.next()
                self.depth += token.token_type is TokenType.L_PAREN
                self.depth -= token.token_type is TokenType.R_PAREN
                self.out.append(token)
        if self.pending:
            raise c.error("expected ON after the temporal table")
        return self.out

    def _special(self) -> bool:
        c = self.cursor
        token = c.peek()
        assert token is not None
        after_dot = bool(self.out) and self.out[-1].token_type is TokenType.DOT
        words = words_of(token)
        called = (nxt := c.peek(1)) is not None and nxt.token_type is TokenType.L_PAREN
        if after_dot or not words:
            return False
        if token.token_type is TokenType.HINT:
            raise c.fail("PSK-1012", "hints are not supported")
        if token.text.startswith("__") and called:
            raise c.fail("PSK-1006", f"unknown function {token.text}")
        if called and words[0] not in (*_WINDOWS, "TABLE") and c.at(f"{token.text.upper()} ( TABLE"):
            raise c.fail(
                "PSK-1006",
                f"unknown table function {token.text}",
                hint="The table functions are TUMBLE, HOP, CUMULATE and SESSION.",
            )
        if words == ("WINDOW",) and not (is_name(nxt) and (as_ := c.peek(2)) is not None and words_of(as_) == ("AS",)):
            self._emit(TokenType.VAR, token.text, c.next())
            return True
        if words == ("SESSION",) and called:
            self._emit(TokenType.VAR, "__session", c.next())
            self._table_argument()
            return True
        if words[0] in _WINDOWS and called:
            self.out.append(c.next())
            self._table_argument()
            return True
        if (
            words == ("TABLE",)
            and called
            and (inner := c.peek(2)) is not None
            and words_of(inner)[:1] in [(w,) for w in _WINDOWS]
        ):
            return self._table_wrapper()
        if self.pending and self.pending[-1][0] == self.depth and (words == ("ON",) or words == ("USING",)):
            extra = self.pending.pop()[1]
            self._condition(extra)
            return True
        # Most tokens end here; a large statement has tens of thousands.
        return words[0] in _JOINS and self._temporal(words)

    def _temporal(self, words: tuple[str, ...]) -> bool:
        c = self.cursor
        if c.at("LEFT ASOF JOIN") or c.at("INNER ASOF JOIN") or c.at("ASOF JOIN") or c.at("LEFT OUTER ASOF JOIN"):
            self._asof()
            return True
        if (
            words == ("ASOF",)
            and (nxt := c.peek(1)) is not None
            and words_of(nxt) in (("LEFT",), ("INNER",), ("RIGHT",), ("FULL",))
        ):
            raise c.error("expected LEFT ASOF JOIN or INNER ASOF JOIN")
        if (c.at("RIGHT ASOF") or c.at("FULL ASOF")) and c.peek(2) is not None:
            raise c.fail("PSK-3003", "an ASOF join must be INNER or LEFT", hint="Swap the two sides.")
        if c.at("TEMPORAL PROBE JOIN"):
            self._probe()
            return True
        if c.at("FOR SYSTEM_TIME"):
            self._system_time()
            return True
        return False

    def _emit(self, kind: TokenType, text: str, at: Token) -> None:
        self.out.append(Token(kind, text, at.line, at.col, at.start, at.end, []))

    def _condition(self, call: list[Token]) -> None:
        """`ON e` → `ON call AND e`; `USING (k)` → `ON call AND __using(k)`; nothing → `ON call`."""
        c = self.cursor
        at = c.peek() or c.tokens[c.index - 1]
        self._emit(TokenType.ON, "ON", at)
        self.out.extend(call)
        if c.accept("ON"):
            self._emit(TokenType.AND, "AND", at)
        elif c.accept("USING"):
            self._emit(TokenType.AND, "AND", at)
            self._emit(TokenType.VAR, "__using", at)

    def _call(self, name: str, at: Token, first: str | None, args: Sequence[Token]) -> list[Token]:
        def make(kind: TokenType, text: str) -> Token:
            return Token(kind, text, at.line, at.col, at.start, at.end, [])

        head = [make(TokenType.VAR, name), make(TokenType.L_PAREN, "(")]
        if first is not None:
            head += [make(TokenType.STRING, first), *([make(TokenType.COMMA, ",")] if args else [])]
        return [*head, *args, make(TokenType.R_PAREN, ")")]

    def _table_argument(self) -> None:
        """Copies the parenthesis after the name of a window function, and drops a leading `TABLE`."""
        c = self.cursor
        self.out.append(c.next())
        self.depth += 1
        if c.at("TABLE"):
            c.next()
            if not is_name(c.peek()):
                raise c.error("expected a table name", hint="Write TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL …).")
            if (at := c.peek(1)) is not None and words_of(at)[:1] == ("PARTITION",):
                self.out.append(c.next())
                self._partition()

    def _partition(self) -> None:
        """`PARTITION BY a, b` or `PARTITION BY (a, b)` after the table of a window function."""
        c = self.cursor
        at = c.peek()
        assert at is not None
        c.expect("PARTITION BY")
        closed = c.accept("(")
        names: list[Token] = []
        while True:
            if not is_name(c.peek()):
                raise c.error("expected a column")
            names.append(c.next())
            after = c.peek(1)
            if not c.at(",") or (not closed and after is not None and words_of(after) == ("DESCRIPTOR",)):
                break
            names.append(c.next())
        if closed:
            c.expect(")")
        self._emit(TokenType.COMMA, ",", at)
        self.out.extend(self._call(PARTITION, at, None, names))

    def _table_wrapper(self) -> bool:
        """`TABLE ( TUMBLE ( … ) )` → `TUMBLE ( … )`."""
        c = self.cursor
        close = c.closing(c.index + 1)
        c.index += 2
        inner = Rewriter(self.script, c.tokens[c.index : close])
        self.out.extend(inner.run())
        c.index = close + 1
        return True

    def _asof(self) -> None:
        c = self.cursor
        at = c.peek()
        assert at is not None
        kind = "inner" if c.at("INNER") else "left"
        while not c.at("JOIN"):
            c.next()
        self._emit(TokenType.JOIN, "JOIN", c.next())
        start = c.index
        while not c.at("MATCH_CONDITION"):
            token = c.peek()
            if token is not None and words_of(token) == ("ON",):
                self.out.extend(Rewriter(self.script, c.tokens[start : c.index]).run())
                self._condition(self._call("__asof", at, kind, ()))
                return
            if token is None or words_of(token) in (("USING",), ("JOIN",), ("WHERE",)):
                raise c.error(
                    "expected MATCH_CONDITION (…)",
                    hint="Write a ASOF JOIN b MATCH_CONDITION (a.ts >= b.ts) ON a.k = b.k.",
                )
            if token.token_type is TokenType.L_PAREN:
                c.index = c.closing(c.index)
            c.next()
        table = Rewriter(self.script, c.tokens[start : c.index])
        self.out.extend(table.run())
        c.next()
        if not c.at("("):
            raise c.error("expected (")
        close = c.closing(c.index)
        condition = list(c.tokens[c.index + 1 : close])
        if not condition:
            raise c.error("expected a condition")
        c.index = close + 1
        self._condition(self._call("__asof", at, kind, condition))

    def _system_time(self) -> None:
        c = self.cursor
        at = c.next()
        c.next()
        c.expect("AS OF")
        column = [c.next()]
        if words_of(column[0]) == ("PROCTIME",) and c.at("( )"):
            column += [c.next(), c.next()]
        if not is_name(column[0]):
            c.index -= 1
            raise c.error("expected a time column", hint="Write JOIN r FOR SYSTEM_TIME AS OF o.ts AS r ON …")
        while c.at(".") and is_name(c.peek(1)):
            column += [c.next(), c.next()]
        self.pending.append((self.depth, self._call("__temporal", at, None, column)))

    def _probe(self) -> None:
        c = self.cursor
        at = c.peek()
        assert at is not None
        c.accept("TEMPORAL PROBE")
        self._emit(TokenType.JOIN, "JOIN", c.next())
        while not c.at("ON"):
            if c.done:
                raise c.error("expected ON (keys)")
            if c.at("("):
                close = c.closing(c.index)
                self.out.extend(Rewriter(self.script, c.tokens[c.index : close + 1]).run())
                c.index = close + 1
            else:
                self.out.append(c.next())
        on = c.next()
        c.expect("(")
        keys = [self._identifier()]
        while c.accept(","):
            keys.append(self._identifier())
        c.expect(")")
        times = None
        if c.accept("TIMESTAMPS"):
            c.expect("(")
            first = self._column()
            c.expect(",")
            times = (first, self._column())
            c.expect(")")
        offsets = self._offsets()
        c.accept("AS")
        alias = c.next().text if is_name(c.peek()) and not self._clause_next() else None
        self._emit(TokenType.ON, "ON", on)
        self.out.extend(
            [
                Token(TokenType.VAR, "__probe", on.line, on.col, on.start, on.end, []),
                Token(TokenType.L_PAREN, "(", on.line, on.col, on.start, on.end, []),
                Token(TokenType.NUMBER, str(len(self.probes)), on.line, on.col, on.start, on.end, []),
                Token(TokenType.R_PAREN, ")", on.line, on.col, on.start, on.end, []),
            ]
        )
        self.probes.append(ProbeClause(tuple(keys), times, offsets, alias))

    def _clause_next(self) -> bool:
        token = self.cursor.peek()
        return token is not None and words_of(token)[:1] in [
            (w,)
            for w in (
                "WHERE",
                "GROUP",
                "HAVING",
                "ORDER",
                "LIMIT",
                "UNION",
                "JOIN",
                "LEFT",
                "INNER",
                "ASOF",
                "TEMPORAL",
                "QUALIFY",
            )
        ]

    def _identifier(self) -> exp.Identifier:
        c = self.cursor
        token = c.peek()
        name = c.name("a key column")
        assert token is not None
        node = exp.Identifier(this=name, quoted=False)
        node.meta.update(start=token.start, end=token.end)
        return node

    def _column(self) -> exp.Column:
        first = self._identifier()
        if self.cursor.accept("."):
            return exp.Column(this=self._identifier(), table=first)
        return exp.Column(this=first)

    def _offsets(self) -> tuple[int, ...]:
        c = self.cursor
        if c.accept("LIST"):
            if not c.at("("):
                raise c.error("expected (")
            close = c.closing(c.index)
            text = self.script.text[c.tokens[c.index].end + 1 : c.tokens[close].start]
            out = tuple(self._duration(part) for part in text.split(","))
            c.index = close + 1
            return out
        if c.accept("RANGE"):
            c.expect("FROM")
            start = self._duration(self._until("TO"))
            c.expect("TO")
            stop = self._duration(self._until("STEP"))
            c.expect("STEP")
            step_at = c.index
            c.accept("-")
            number = c.next()
            while (token := c.peek()) is not None and token.start <= number.end:
                c.next()
            if (token := c.peek()) is not None and token.start == number.end + 1 and is_name(token):
                number = c.next()
            step = self._duration(self.script.text[c.tokens[step_at].start : c.tokens[c.index - 1].end + 1])
            if step <= 0 or stop < start or (stop - start) // step > 10_000:
                raise c.fail("PSK-2008", "the probe range needs FROM ≤ TO and a positive STEP (at most 10000 offsets)")
            return tuple(range(start, stop + 1, step))
        raise c.error("expected LIST (…) or RANGE FROM … TO … STEP …")

    def _until(self, word: str) -> str:
        c = self.cursor
        start = c.peek()
        while not c.at(word):
            if c.done:
                raise c.error(f"expected {word}")
            c.next()
        stop = c.peek()
        assert start is not None and stop is not None
        return self.script.text[start.start : stop.start]

    def _duration(self, text: str) -> int:
        m = _OFFSET.match(text)
        value = intervals.of(m.group(1), m.group(2)) if m else None
        if text.strip() in ("0", "+0", "-0"):
            return 0
        ms = intervals.millis(value) if value else None
        if ms is None:
            raise self.cursor.fail("PSK-2008", f"'{text.strip()}' is not an offset", hint="Write 500ms, -5s, 2m, 1h.")
        return ms
