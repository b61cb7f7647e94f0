"""Outputs of layers: stridec compile model.onnx --pass after=import 'python3 samples/extend/debug_outputs.py softmax dot_general'

Each result of the named operations becomes an output after the model's own, with the name of the model's node.
"""

import re
import sys

import graph_text


def main():
    lines = graph_text.read()
    taken = {match[1] for line in lines if isinstance(line, str) and (match := re.match(r'  output "((?:[^"\\]|\\.)*)"', line))}
    for node in [line for line in lines if isinstance(line, graph_text.Node)]:
        # Values of subgraphs, which are further in, are not seen outside.
        if node.op not in sys.argv[1:] or node.indent != 2:
            continue
        origin = re.search(r" from \"node \S+ '(.*)' \(", node.origin)
        name = origin[1] if origin and origin[1] not in taken else f"{node.op} %{node.number}"
        taken.add(name)
        lines.append(f'  output "{name}" %{node.number}')
    graph_text.write(lines)


if __name__ == "__main__":
    main()
