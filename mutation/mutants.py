"""The faults that are put into a module: each changes one expression or one statement of it."""

import ast
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple


def both_ways(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """Each one's other."""
    return {one: other for pair in pairs for one, other in (pair, pair[::-1])}


OPPOSITES = (
    (ast.Add, ast.Sub),
    (ast.Mult, ast.Div),
    (ast.BitAnd, ast.BitOr),
    (ast.Lt, ast.LtE),
    (ast.Gt, ast.GtE),
    (ast.Eq, ast.NotEq),
    (ast.Is, ast.IsNot),
    (ast.And, ast.Or),
)
OPERATORS = dict.fromkeys((ast.FloorDiv, ast.Mod, ast.Pow), ast.Mult) | both_ways(OPPOSITES)

NAMES = both_ways(
    (
        ("min", "max"),
        ("minimum", "maximum"),
        ("clamp_min", "clamp_max"),
        ("any", "all"),
        ("sin", "cos"),
        ("zeros", "ones"),
        ("zeros_like", "ones_like"),
        ("add", "sub"),
        ("add_", "sub_"),
        ("mul", "div"),
        ("mul_", "div_"),
        ("tril_", "triu_"),
        ("double", "float"),
    )
)

CHOICES = {"max", "maximum", "min", "minimum", "promote_types", "where"}
"""Functions whose result is like any of their arguments."""


class Mutant(NamedTuple):
    """A module with one fault in it."""

    tree: ast.Module
    function: str
    """The qualified name of the function that has it; empty for the module's own statements."""
    line: int
    text: str
    """The first line of the statement that has it."""


def mutants(source: str) -> Iterator[Mutant]:
    """All of them, in the order of the source."""
    for wanted in range(_Search(source, None).count):
        yield mutant(source, wanted)


def mutant(source: str, wanted: int) -> Mutant:
    """One of them."""
    search = _Search(source, wanted)
    found, scope = search.hit
    line = next(each for each in ast.unparse(found).splitlines() if not each.startswith("@"))
    text = f"without: {line}" if search.is_removal else line
    return Mutant(ast.fix_missing_locations(search.tree), ".".join(scope), found.lineno, text)


class _Search(ast.NodeTransformer):
    """Counts the faults that there are, and puts in the wanted one."""

    hit: tuple[ast.stmt, tuple[str, ...]]

    def __init__(self, source: str, wanted: int | None) -> None:
        self.tree, self.wanted, self.count, self.is_removal = ast.parse(source), wanted, 0, False
        self.scope: tuple[str, ...] = ()
        imports = (each for each in ast.walk(self.tree) if isinstance(each, ast.Import))
        self.modules = {"nn"} | {alias.asname or alias.name for each in imports for alias in each.names}
        self.statement: ast.stmt = ast.Pass()
        self.visit(self.tree)

    def visit(self, node: ast.AST) -> ast.AST:
        outer = self.statement, self.scope
        if isinstance(node, ast.stmt):
            self.statement = node
        for make in _alternatives(node, self.modules):
            self.count += 1
            if self.count - 1 == self.wanted:
                self.hit, self.is_removal = (self.statement, self.scope), make is ast.Pass
                return make()
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            self.scope = (*self.scope, node.name)
        self._visit_fields(node)
        self.statement, self.scope = outer
        return node

    def _visit_fields(self, node: ast.AST) -> None:
        """All but annotations, decorators, docstrings, and the `strict` of a zip, which guards against ourselves."""
        match node:
            case ast.Expr(value=ast.Constant()) | ast.keyword(arg="strict"):
                return
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "bases"):
                continue
            if isinstance(value, ast.AST):
                setattr(node, name, self.visit(value))
            elif isinstance(value, list):
                value[:] = [self.visit(each) if isinstance(each, ast.AST) else each for each in value]


def _alternatives(node: ast.AST, modules: set[str]) -> Iterator[Callable[[], ast.AST]]:
    """What makes the node that stands in its place; nothing is changed before it is called."""
    match node:
        case ast.AugAssign(op=op):
            yield ast.Pass
            yield lambda: _with(node, op=OPERATORS[type(op)]())
        case ast.Assign(targets=[ast.Subscript()]):
            yield ast.Pass
        case ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in OPERATORS:
            yield lambda: _with(node, op=OPERATORS[type(op)]())
        case ast.Compare(ops=[op]) if type(op) in OPERATORS:
            yield lambda: _with(node, ops=[OPERATORS[type(op)]()])
        case ast.UnaryOp(operand=operand):
            yield lambda: operand
        case ast.Constant(value=value) if value is not None and value is not ...:
            yield lambda: _with(node, value=_other(value))
        case ast.IfExp(body=body, orelse=orelse):
            yield lambda: body
            yield lambda: orelse
        case ast.If(test=test):
            yield lambda: _with(node, test=ast.BoolOp(ast.Or(), [ast.Constant(True), test]))
            yield lambda: _with(node, test=ast.BoolOp(ast.And(), [ast.Constant(False), test]))
        case ast.comprehension(ifs=[_, *_]):
            yield lambda: _with(node, ifs=[])
        case ast.Slice():
            yield from (
                lambda name=name: _with(node, **{name: None}) for name in ("lower", "upper") if getattr(node, name)
            )
        case ast.Attribute(attr="mT" | "T", value=value):
            yield lambda: value
        case ast.Call():
            yield from _other_calls(node, modules)


def _other_calls(node: ast.Call, modules: set[str]) -> Iterator[Callable[[], ast.AST]]:
    """Without the call, without one of its keywords, or a call of the function's opposite."""
    func = node.func
    name = func.attr if isinstance(func, ast.Attribute) else ast.unparse(func)
    if isinstance(func, ast.Attribute) and ast.unparse(func).split(".")[0] not in {*modules, "self", "super()"}:
        yield lambda: func.value
    elif args := [each for each in node.args if not isinstance(each, ast.Starred)]:
        yield from (lambda each=each: each for each in (args if name in CHOICES else args[:1]))
    for keyword in (each for each in node.keywords if each.arg != "strict"):
        yield lambda keyword=keyword: _with(node, keywords=[each for each in node.keywords if each is not keyword])
    if name in NAMES:
        other = NAMES[name]
        yield lambda: _with(node, func=_with(func, attr=other) if isinstance(func, ast.Attribute) else ast.Name(other))


def _with(node: ast.AST, **fields: object) -> ast.AST:
    """The node with other fields."""
    for name, value in fields.items():
        setattr(node, name, value)
    return node


def _other(value: bool | int | float | str) -> bool | int | float | str:
    """Another constant of this kind."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return 2 * value or 1.0
        case _:
            return f"{value}XX"
