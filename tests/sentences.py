"""Where code makes English text: every literal that could be a sentence, or a part of one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

MAX_WORDS = 2
"""A literal of more words is text; names, keys and units have fewer."""
_WORD = re.compile(r"(?:^|(?<=[\s(]))[A-Za-z][a-z’'-]+(?=[\s.,:;!?)]|$)")
EXEMPT = ("BadInput", "warn_deprecated", "generator", "Literal")
"""Calls and subscripts whose literals are no results: errors, advice to callers, names of random streams, codes."""


def text_in(path: Path) -> list[str]:
    """Return every literal of a module with more than `MAX_WORDS` words, as "line: text".

    Pieces that are joined with + or in an f-string count as one literal. Docstrings, annotations, and the arguments of
    `EXEMPT` do not count, nor do codes, which the same package declares in a `Literal`.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    codes = {
        code for other in path.parent.glob("*.py") for code in _codes(ast.parse(other.read_text(encoding="utf-8")))
    }
    found = [(node.lineno, text) for node, text in _literals(tree) if text not in codes]
    return [f"{line}: {text}" for line, text in found if len(_WORD.findall(text)) > MAX_WORDS]


def _codes(tree: ast.Module) -> Iterator[str]:
    """All strings that are members of a `Literal`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and _name(node.value) == "Literal":
            yield from (one.value for one in ast.walk(node.slice) if isinstance(one, ast.Constant))


def _literals(node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """All literals below a node with their text, the outermost where they are joined."""
    for child in ast.iter_child_nodes(node):
        docstring = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
        called = (
            child.func if isinstance(child, ast.Call) else child.value if isinstance(child, ast.Subscript) else None
        )
        if docstring or (called is not None and _name(called) in EXEMPT):
            continue
        text = _text(child) if isinstance(child, ast.expr) else None
        if text is None:
            yield from _literals(child)
        else:
            assert isinstance(child, ast.expr)
            yield child, text
            for part in ast.walk(child):
                if isinstance(part, ast.FormattedValue):
                    yield from _literals(part)


def _text(node: ast.expr) -> str | None:
    """The text of a literal, an f-string or their sum, its values left out; None for anything else."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(part) or "…" for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            texts = _text(left), _text(right)
            return None if texts == (None, None) else "".join(text or "…" for text in texts)
        case _:
            return None


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
