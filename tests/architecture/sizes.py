"""How long files and functions are."""

from dataclasses import dataclass

from tests.architecture.reading import functions, name_of, python_files, tree_of

FILE_LIMIT = 450
FUNCTION_LIMIT = 60
FUNCTION_LISTED = 40


@dataclass(frozen=True)
class Size:
    where: str
    lines: int


def files() -> list[Size]:
    return [Size(name_of(path), len(path.read_text().splitlines())) for path in python_files()]


def all_functions(*folders: str) -> list[Size]:
    return [
        Size(f"{name_of(path)}:{node.lineno} {node.name}", (node.end_lineno or node.lineno) - node.lineno + 1)
        for path in python_files(*folders)
        for node in functions(tree_of(path))
    ]


def report() -> list[str]:
    """Sizes of the product's files and functions, and every function that is longer than it should be."""
    product = sorted(size.lines for size in files() if size.where.startswith("src/"))
    inside = sorted(size.lines for size in all_functions("src"))
    of_files = f"{len(product)} files, median {_quantile(product, 0.5)} lines, longest {product[-1]}"
    of_functions = (
        f"{len(inside)} functions, median {_quantile(inside, 0.5)}, 90 % under {_quantile(inside, 0.9)}, longest {inside[-1]}"
    )
    long = sorted((size for size in all_functions() if size.lines > FUNCTION_LISTED), key=lambda size: -size.lines)
    return [f"src: {of_files}; {of_functions}"] + [f"over {FUNCTION_LISTED} lines: {size.where} ({size.lines})" for size in long]


def _quantile(values: list[int], part: float) -> int:
    return values[int(part * (len(values) - 1))]
