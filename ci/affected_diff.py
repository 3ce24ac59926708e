"""Compare two build graphs: which tests of the later one are affected, and by what."""

from collections import deque
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter

from ci.affected_graph import Graph, Node, UndecidedError, digest

# Bazel itself never takes these from a cache: they read more than the graph says.
UNCACHED_TAGS = ("external", "no-cache")


def affected_tests(base: Graph, head: Graph) -> dict[str, str]:
    """Map each affected test of `head` to the reason in a few words.

    Raises UndecidedError if `head` is not a graph without cycles.
    """
    if changed := changed_seed(base, head):
        reason = f"every target depends on {', '.join(changed)}"
        return dict.fromkeys(tests_of(head), reason)
    before, after = deep_digests(base), deep_digests(head)
    reasons = {}
    for label in tests_of(head):
        if uncached := [tag for tag in head.nodes[label].tags if tag in UNCACHED_TAGS]:
            reasons[label] = f"always runs: it is tagged {uncached[0]}"
        elif label not in base.nodes:
            reasons[label] = "new"
        elif before[label] != after[label]:
            reasons[label] = _describe(path_to_change(label, base, head)[-1], base, head)
        elif gone := missing_input(label, head):
            reasons[label] = f"always runs: its input {gone} does not exist"
    return reasons


def tests_of(graph: Graph) -> list[str]:
    """List the labels of the graph's tests, in order."""
    return sorted(label for label, node in graph.nodes.items() if node.is_test)


def changed_seed(base: Graph, head: Graph) -> list[str]:
    """Name what differs of that which every target depends on."""
    names = sorted(base.seed.keys() | head.seed.keys())
    return [name for name in names if base.seed.get(name) != head.seed.get(name)]


def deep_digests(graph: Graph) -> dict[str, str]:
    """Digest each node with all that it reaches."""
    found: dict[str, str] = {}
    order = TopologicalSorter({label: node.inputs for label, node in graph.nodes.items()})
    try:
        for label in order.static_order():
            if label not in graph.nodes:
                raise UndecidedError(f"Bazel names {label} as an input but does not describe it")
            node = graph.nodes[label]
            inputs = (f"{name}={found[name]}" for name in node.inputs)
            found[label] = digest("\0".join([label, node.own, *inputs]))
    except CycleError as error:
        raise UndecidedError(f"the graph has a cycle: {' -> '.join(error.args[1])}") from error
    return found


def path_to_change(label: str, base: Graph, head: Graph) -> list[str]:
    """Return a shortest path of labels from a test to an input that itself has changed."""
    came_from: dict[str, str] = {}
    queue = deque([label])
    while queue:
        current = queue.popleft()
        if _differs(current, base, head):
            return _walk_back(current, label, came_from)
        for name in head.nodes[current].inputs:
            if name not in came_from and name != label:
                came_from[name] = current
                queue.append(name)
    return [label]


def _walk_back(current: str, start: str, came_from: dict[str, str]) -> list[str]:
    path = [current]
    while path[-1] != start:
        path.append(came_from[path[-1]])
    return path[::-1]


def _differs(label: str, base: Graph, head: Graph) -> bool:
    """Whether a node itself, or the list of its inputs, is not as it was."""
    return label not in base.nodes or _essence(base.nodes[label]) != _essence(head.nodes[label])


def _essence(node: Node) -> tuple[str, tuple[str, ...]]:
    return node.own, node.inputs


def _describe(label: str, base: Graph, head: Graph) -> str:
    if label not in base.nodes:
        return f"{label} is new"
    before, after = base.nodes[label], head.nodes[label]
    if after.missing:
        return f"{label} is gone"
    lost = [name for name in before.inputs if name not in after.inputs]
    new = [name for name in after.inputs if name not in before.inputs]
    if lost or new:
        changes = [f"+{name}" for name in new] + [f"-{name}" for name in lost]
        return f"{label} has other inputs: {' '.join(changes[:4])}{' ...' * (len(changes) > 4)}"
    return f"{label} has changed"


def explain(label: str, base: Graph, head: Graph) -> list[str]:
    """Say why a test is affected, or that it is not, with the path to the changed input."""
    if label not in tests_of(head):
        return [f"{label} is not a test of this workspace"]
    reason = affected_tests(base, head).get(label)
    if reason is None:
        return [f"{label} is not affected: nothing that it depends on has changed"]
    lines = [f"{label}: {reason}"]
    if not changed_seed(base, head) and label in base.nodes:
        path = path_to_change(label, base, head)
        lines += [f"{'  ' * depth}<- {name}" for depth, name in enumerate(path[1:], 1)]
    return lines


def missing_input(label: str, graph: Graph) -> str | None:
    """Name a file that does not exist among all that a target reaches, if there is one."""
    seen, stack = {label}, [label]
    while stack:
        current = stack.pop()
        if graph.nodes[current].missing:
            return current
        new = [name for name in graph.nodes[current].inputs if name not in seen]
        seen.update(new)
        stack += new
    return None


def with_tags(labels: Iterable[str], graph: Graph, wanted: str) -> list[str]:
    """Keep the tests that `--test_tag_filters=wanted` keeps: `cpu,-slow` is cpu and not slow."""
    filters = [word.strip() for word in wanted.split(",") if word.strip()]
    refused = {word[1:] for word in filters if word.startswith("-")}
    required = {word.removeprefix("+") for word in filters if not word.startswith("-")}
    kept = []
    for label in labels:
        tags = set(graph.nodes[label].tags)
        if not tags & refused and (not required or tags & required):
            kept.append(label)
    return kept
