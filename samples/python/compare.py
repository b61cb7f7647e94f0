"""Checks the output of samples/c/embed against onnxruntime on the same model and tokens, and prints both.

    ./embed minilm.so tokens.txt > embed.txt
    python compare.py minilm.onnx tokens.txt embed.txt

Fails where a similarity differs by more than 1e-4.
"""

import sys

import numpy as np
import onnxruntime

TOLERANCE = 1e-4


def read_tokens(path):
    with open(path, encoding="utf-8") as file:
        lines = [line.rstrip("\n").split("\t") for line in file]
    return [text for text, _ in lines], [[int(token) for token in tokens.split()] for _, tokens in lines]


def similarities(model, tokens):
    """Cosines between all sentences; the model's first output is one row per sentence, of length one."""
    length = max(map(len, tokens))
    ids = np.array([row + [0] * (length - len(row)) for row in tokens], np.int64)
    mask = np.array([[1] * len(row) + [0] * (length - len(row)) for row in tokens], np.int64)
    given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    embeddings = session.run(None, given)[0]
    return embeddings @ embeddings.T


def read_matrix(path, count):
    """The last `count` lines of embed's output: the row's number, then its similarities."""
    with open(path, encoding="utf-8") as file:
        rows = [line.split() for line in file.read().strip().split("\n")[-count:]]
    return np.array([[float(cell) for cell in row[1:]] for row in rows])


def main(model, token_file, embed_file):
    texts, tokens = read_tokens(token_file)
    expected = similarities(model, tokens)
    got = read_matrix(embed_file, len(texts))
    pairs = [(i, j) for i in range(len(texts)) for j in range(i)]
    print("stridec  onnxruntime")
    for i, j in sorted(pairs, key=lambda pair: -expected[pair]):
        print(f"{got[i, j]:7.4f}  {expected[i, j]:11.4f}  {texts[j]} / {texts[i]}")
    worst = np.abs(got - expected).max()
    print(f"largest difference {worst:.1e}, allowed {TOLERANCE:.0e}")
    return 0 if worst <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) == 4 else __doc__)
