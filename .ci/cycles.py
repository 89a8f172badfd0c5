#!/usr/bin/env python3
"""Fails if the top-level modules of a crate import each other in a cycle.

Reads every Rust file below each `src` folder that is named on the command line. An import is `crate::MODULE` or
`use crate::{MODULE, …}` outside `#[cfg(test)]`, which stands at the end of a file. Prints each cycle with its imports.
"""

import re
import sys
from pathlib import Path

# Cycles that exist today, as sets of modules by crate. Remove an entry when its cycle is broken.
ALLOWED = {}


def module_of(file, src):
    """The top-level module that a file belongs to, or None for the crate root."""
    name = file.relative_to(src).parts[0].removesuffix(".rs")
    return None if name in ("lib", "main") else name


def imports(text):
    """The top-level modules that a file names."""
    text = text.split("#[cfg(test)]\nmod ")[0]
    text = re.sub(r"//[^\n]*", "", text)
    names = set(re.findall(r"\bcrate::(\w+)", text))
    for group in re.findall(r"\bcrate::\{(.*?)\};", text, re.DOTALL):
        while re.search(r"\{[^{}]*\}", group):
            group = re.sub(r"\{[^{}]*\}", "", group)
        names.update(item.strip().split("::")[0].split(" ")[0] for item in group.split(","))
    return names


def graph(src):
    """Edges between top-level modules: {module: {imported module: files}}."""
    files = sorted(src.rglob("*.rs"))
    modules = {module_of(file, src) for file in files} - {None}
    edges = {module: {} for module in modules}
    for file in files:
        module = module_of(file, src)
        for target in imports(file.read_text()) & modules if module else set():
            if target != module:
                edges[module].setdefault(target, []).append(file)
    return edges


def reachable(edges, start):
    """Modules that `start` imports, directly or not."""
    seen, queue = set(), [start]
    while queue:
        for target in edges[queue.pop()]:
            if target not in seen:
                seen.add(target)
                queue.append(target)
    return seen


def cycles(edges):
    """Sets of modules that reach each other."""
    reach = {module: reachable(edges, module) for module in edges}
    groups = {frozenset(b for b in reach[a] if a in reach[b]) for a in edges if a in reach[a]}
    return sorted(groups, key=sorted)


def main():
    bad = False
    for src in map(Path, sys.argv[1:]):
        crate = src.resolve().parent.name
        edges = graph(src)
        found = [group for group in cycles(edges) if group not in ALLOWED.get(crate, [])]
        for group in found:
            bad = True
            print(f"forbidden: import cycle in {crate}: {', '.join(sorted(group))}", file=sys.stderr)
            for module in sorted(group):
                for target in sorted(group & edges[module].keys()):
                    print(f"  {module} -> {target}: {', '.join(map(str, edges[module][target]))}", file=sys.stderr)
    return bad


if __name__ == "__main__":
    sys.exit(main())
