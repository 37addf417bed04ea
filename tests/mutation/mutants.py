"""What can be changed in a module, and the module with one change.

A mutant is one small change of a module: an operator, a comparison, a constant, a condition turned round, a guard or an
operand of it removed, a statement removed, two calls that stand together swapped, a return before the rest.  Its key
holds no line number, so that it names the same change while the code around it moves:

    core/election.py:elect: compare: isr_of[pid] == NO_ISR

Semantic mutants are written by hand in ``semantic.toml``: a text of the module and what stands there instead.

What only people read is left alone: annotations, docstrings, log lines, f-strings.
"""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "aiocontroller"
ROOMS = ("core", "controller", "zookeeper", "server")
SEMANTIC = Path(__file__).with_name("semantic.toml")
KAFKAS = Path(__file__).with_name("kafkas.toml")
SURVIVORS = Path(__file__).with_name("survivors.toml")

_SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
}
_LOGGERS = {"log", "logger", "logging"}
_LEAVES = ast.Return | ast.Continue | ast.Break | ast.Raise
_SHOWN = 70


class Mutant(NamedTuple):
    """``lines`` are those that run when the changed place does, first and last."""

    key: str
    module: str
    """Such as ``core/election.py``."""
    lines: tuple[int, int]


class _Place(NamedTuple):
    """A change that can be made: ``make`` makes it in the tree that the place is in.

    ``before`` is what stands there, for the key alone: to write it as text takes longer than all else.
    """

    node: ast.AST
    where: str
    operator: str
    before: tuple[str | ast.AST, ...]
    make: Callable[[], object]


class UnknownMutantError(Exception):
    """No mutant of that module has this key."""


def modules() -> list[str]:
    """Every module that mutants are made of."""
    return [path.relative_to(PACKAGE).as_posix() for room in ROOMS for path in sorted((PACKAGE / room).glob("*.py"))]


def source_of(module: str) -> str:
    return (PACKAGE / module).read_text()


def mutants_of(module: str) -> list[Mutant]:
    """All, in the order of the source, then those that are written by hand."""
    source = source_of(module)
    found = [Mutant(key, module, _lines(place.node)) for key, place in _keyed(module, ast.parse(source))]
    for name, change in semantic().items():
        if change.module == module:
            first = source[: source.index(change.before)].count("\n") + 1
            found.append(Mutant(f"semantic: {name}", module, (first, first + change.before.count("\n"))))
    return found


def mutated(mutant: Mutant) -> ast.Module:
    """The module with the change, line numbers as in the source."""
    source = source_of(mutant.module)
    by_hand = (
        semantic() if mutant.key.startswith("semantic: ") else kafkas() if mutant.key.startswith("kafkas: ") else None
    )
    if by_hand is not None:
        change = by_hand[mutant.key.partition(": ")[2]]
        return ast.parse(source.replace(change.before, change.after, 1))
    number = _numbers(mutant.module, source).get(mutant.key)
    if number is None:
        raise UnknownMutantError(mutant.key)
    tree = ast.parse(source)
    place = next(islice(_places(tree), number, None))
    place.make()
    ast.fix_missing_locations(place.node)
    return tree


# -- by hand -----------------------------------------------------------------------------------------------------------


class Semantic(NamedTuple):
    module: str
    before: str
    after: str
    why: str = ""


@cache
def semantic() -> dict[str, Semantic]:
    """Name -> change; each text stands in its module exactly once."""
    return _by_hand(SEMANTIC)


@cache
def kafkas() -> dict[str, Semantic]:
    """Test of ours that plays one of Kafka's -> what that very test must notice."""
    return _by_hand(KAFKAS)


def _by_hand(file: Path) -> dict[str, Semantic]:
    found = {name: Semantic(**change) for name, change in tomllib.loads(file.read_text()).items()}
    for name, change in found.items():
        count = source_of(change.module).count(change.before)
        if count != 1:
            raise ValueError(f"{file.name}, {name}: its text stands {count} times in {change.module}, not once")
    return found


def reasons() -> dict[str, str]:
    """Key -> why no test needs to notice this mutant."""
    return dict(tomllib.loads(SURVIVORS.read_text()))


# -- by rule -----------------------------------------------------------------------------------------------------------


@cache
def _numbers(module: str, source: str) -> dict[str, int]:
    """Key -> which of the places it is."""
    return {key: number for number, (key, _) in enumerate(_keyed(module, ast.parse(source)))}


def _keyed(module: str, tree: ast.Module) -> Iterator[tuple[str, _Place]]:
    """Each place with its key; where several of a function read alike, they are counted."""
    seen: Counter[str] = Counter()
    for place in _places(tree):
        key = f"{module}:{place.where}: {place.operator}: {_short(_text(place.before))}"
        seen[key] += 1
        yield (f"{key} #{seen[key]}" if seen[key] > 1 else key), place


def _places(tree: ast.Module) -> Iterator[_Place]:
    yield from _in_body(tree, "", None)


def _in_body(node: ast.AST, where: str, function: ast.FunctionDef | ast.AsyncFunctionDef | None) -> Iterator[_Place]:
    """Depth first; ``where`` is the qualified name of what encloses the node."""
    if _not_behaviour(node):
        return
    yield from _of_node(node, where)
    for name in ("body", "orelse", "finalbody"):
        statements = getattr(node, name, None)
        if isinstance(statements, list):
            yield from _of_statements(node, name, statements, where, function)
    unread = _unread(node)
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{where}.{child.name}" if where else child.name
            yield from _in_body(child, inner, None if isinstance(child, ast.ClassDef) else child)
        elif child not in unread:
            yield from _in_body(child, where, function)


def _not_behaviour(node: ast.AST) -> bool:
    match node:
        case ast.JoinedStr() | ast.Import() | ast.ImportFrom():
            return True
        case ast.Expr(value=ast.Constant(value=str())):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
            return name in _LOGGERS
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
    return False


def _unread(node: ast.AST) -> list[ast.AST]:
    """Annotations and decorators."""
    found = [getattr(node, name, None) for name in ("annotation", "returns")]
    return [*filter(None, found), *getattr(node, "decorator_list", ())]


def _of_node(node: ast.AST, where: str) -> Iterator[_Place]:

    def place(operator: str, name: str, value: object, *before: str | ast.AST) -> _Place:
        return _Place(node, where, operator, before or (node,), lambda: setattr(node, name, value))

    match node:
        case ast.Compare():
            for i, op in enumerate(node.ops):
                if type(op) in _SWAPPED:
                    yield place("compare", "ops", [*node.ops[:i], _SWAPPED[type(op)](), *node.ops[i + 1 :]])
        case ast.BoolOp():
            yield place("and/or", "op", _SWAPPED[type(node.op)]())
            neutral = ast.Constant(isinstance(node.op, ast.And))
            for i, operand in enumerate(node.values):
                rest = [*node.values[:i], neutral, *node.values[i + 1 :]]
                yield place("operand removed", "values", rest, operand, " in ", node)
        case ast.BinOp() if type(node.op) in _SWAPPED:
            yield place("operator", "op", _SWAPPED[type(node.op)]())
        case ast.Constant(value=bool(value)):
            yield place("constant", "value", not value)
        case ast.Constant(value=int(value)):
            yield place("constant", "value", value + 1)
        case ast.If() | ast.IfExp() | ast.While():
            yield place(
                "condition", "test", ast.UnaryOp(ast.Not(), node.test), f"{type(node).__name__.lower()} ", node.test
            )
        case ast.comprehension(ifs=[_, *_]):
            yield place("filter removed", "ifs", [], *(part for each in node.ifs for part in (" if ", each)))


def _of_statements(
    owner: ast.AST,
    name: str,
    statements: list[ast.stmt],
    where: str,
    function: ast.FunctionDef | ast.AsyncFunctionDef | None,
) -> Iterator[_Place]:
    may_end = owner is function and _returns_nothing(owner)
    for i, statement in enumerate(statements):
        if _not_behaviour(statement) or isinstance(owner, ast.ClassDef | ast.Module):
            continue
        if function is not None and function.name == "__init__":
            continue  # without an attribute nothing works: that teaches nothing
        if _can_go(statement):
            operator = "guard removed" if isinstance(statement, ast.If) else "statement removed"
            yield _Place(
                statement, where, operator, (statement,), partial(_replace, owner, name, statement, ast.Pass())
            )
        following = statements[i + 1] if i + 1 < len(statements) else None
        if _is_call(statement) and following is not None and _is_call(following) and not _not_behaviour(following):
            yield _Place(statement, where, "swapped", (statement,), partial(_swap, owner, name, statement, following))
        if may_end and i > 0:
            yield _Place(
                statement,
                where,
                "returned early",
                ("before ", statement),
                partial(_replace, owner, name, statement, ast.Return(None), statement),
            )


def _can_go(statement: ast.stmt) -> bool:
    """A call, a change of something that stays, or a guard."""
    match statement:
        case ast.If(orelse=[], body=[*_, last]):
            return isinstance(last, _LEAVES)
        case ast.AugAssign():
            return True
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return True
    return _is_call(statement)


def _is_call(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value.value if isinstance(value, ast.Await) else value, ast.Call)


def _returns_nothing(node: ast.AST) -> bool:
    if (
        not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        or node.returns is None
        or ast.unparse(node.returns) != "None"
    ):
        return False
    return not any(isinstance(inner, ast.Yield | ast.YieldFrom) for inner in ast.walk(node))


def _body(owner: ast.AST, name: str) -> list[ast.stmt]:
    found = getattr(owner, name)
    assert isinstance(found, list)
    return found


def _replace(owner: ast.AST, name: str, statement: ast.stmt, *others: ast.stmt) -> None:
    at = _body(owner, name).index(statement)
    _body(owner, name)[at : at + 1] = [ast.copy_location(other, statement) for other in others]


def _swap(owner: ast.AST, name: str, first: ast.stmt, second: ast.stmt) -> None:
    at = _body(owner, name).index(first)
    _body(owner, name)[at : at + 2] = [second, first]


def _lines(node: ast.AST) -> tuple[int, int]:
    if isinstance(node, ast.comprehension):
        return node.target.lineno, node.ifs[-1].end_lineno or node.ifs[-1].lineno
    place = node.test if isinstance(node, ast.If | ast.While) else node
    assert isinstance(place, ast.expr | ast.stmt)
    return place.lineno, place.end_lineno or place.lineno


def _text(parts: tuple[str | ast.AST, ...]) -> str:
    """Of statements the first line."""
    texts = [part if isinstance(part, str) else ast.unparse(part) for part in parts]
    first = [
        text.splitlines()[0] if isinstance(part, ast.stmt) else text for part, text in zip(parts, texts, strict=True)
    ]
    return "".join(first).removeprefix(" if ")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"
