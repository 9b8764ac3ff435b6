"""How plain the prose of the code is: clauses with "what", "who", "whose" or "whoever" per 1,000 words.

    python -m tests.plain_words [--list] [PATH ...]      default: app, pipelines, samples and tests

Counted are the words of comments and of all strings that stand alone (docstrings of modules, classes, functions and fields).
Well-kept packages have 0 to 1.5. A noun ("frames", "requests") says it shorter and is understood at once.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
CLAUSE = re.compile(r"\b(?:what|who|whose|whom|whoever|whatever)\b", re.IGNORECASE)


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Line number and text of every comment and of every string that stands alone."""
    text = path.read_text(encoding="utf-8")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from ((node.lineno + k, line) for k, line in enumerate(node.value.value.splitlines()))


def python_files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def measured(paths: Sequence[Path]) -> tuple[int, list[str]]:
    """The number of words, and a line `file:line: text` for each clause."""
    words, found = 0, []
    for path in python_files(paths):
        for line, text in prose(path):
            words += len(WORD.findall(text))
            found += [f"{path}:{line}: {text.strip()}" for _ in CLAUSE.findall(text)]
    return words, found


def main(argv: Sequence[str]) -> int:
    paths = [Path(a) for a in argv if a != "--list"] or [ROOT / part for part in ("app", "pipelines", "samples", "tests")]
    for path in paths:
        words, found = measured([path])
        if "--list" in argv:
            print(*found, sep="\n")
        print(f"{path}: {len(found)} clauses in {words} words, {1000 * len(found) / max(words, 1):.1f} per 1,000")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
