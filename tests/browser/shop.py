"""Call trees: those of a made-up shop (shop.txt), one too large to draw naively, and one with hostile names."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

WIDE_NODES = 50_000
HOSTILE_FUNCTION = '<img src=x onerror="window.hacked=1">'
LONG_FUNCTION = "std::variant<" + "very_long_template_name<int>, " * 60 + "char>"
REARRANGING_FUNCTION = "{{constructor}}`'\"\u202e\u0000\n"
REARRANGING_LABEL = "a\u202eb\nc"
HOSTILE_LABEL = '"><script>window.hacked=1</script>'

_SHOP = Path(__file__).with_name("shop.txt")
_LINE = re.compile(r"( *)(.+?)@(\S*)(?: (\d+))?")


@dataclass
class Tree:
    """A call tree, parents first: columns by node."""

    parent: list[int]
    name: list[str]
    module: list[str]
    weight: list[int]

    def paths(self) -> list[str]:
        """Names from the root to each node."""
        paths: list[str] = []
        for name, parent in zip(self.name, self.parent, strict=True):
            paths.append((paths[parent] + ";" if parent >= 0 else "") + name)
        return paths


def read_services() -> dict[str, tuple[int, Tree]]:
    """Each service's share of the samples and its call tree."""
    services: dict[str, tuple[int, Tree]] = {}
    open_nodes: list[int] = []
    for line in _SHOP.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        if not line.startswith(" "):
            name, share = line.split(" #")
            tree = Tree([], [], [], [])
            services[name] = (int(share), tree)
            continue
        match = _LINE.fullmatch(line)
        assert match, line
        depth = len(match[1]) // 2 - 1
        open_nodes[depth:] = [len(tree.parent)]
        tree.parent.append(open_nodes[depth - 1] if depth else -1)
        tree.name.append(match[2])
        tree.module.append(match[3])
        tree.weight.append(int(match[4] or 0))
    return services


def wide_tree(nodes: int = WIDE_NODES, seed: int = 1) -> Tree:
    """A tree of many nodes, 60 levels deep, its values as uneven as real ones."""
    random = np.random.default_rng(seed)
    parent, depth = [-1], [0]
    for node in range(1, nodes):
        above = int(node * random.random() ** 0.35) if node > 6 else node - 1
        parent.append(above if depth[above] < 60 else parent[above])
        depth.append(depth[parent[node]] + 1)
    weight = np.maximum(1, random.pareto(1.1, nodes)).astype(int)
    name = [f"wide::function_{i % 4000}<{i % 7}>" for i in range(nodes)]
    return Tree(parent, name, [f"libwide{i % 12}.so" for i in range(nodes)], weight.tolist())


def hostile_tree() -> Tree:
    """Names that would do harm on a page that takes them for markup."""
    names = ["main", HOSTILE_FUNCTION, REARRANGING_FUNCTION, LONG_FUNCTION]
    return Tree([-1, 0, 1, 2], names, ["/bin/x", HOSTILE_LABEL, "", ""], [1, 5, 3, 2])
