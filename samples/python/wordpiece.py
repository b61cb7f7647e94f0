"""Turns sentences into token numbers, as encoders in the manner of BERT (uncased) want them.

    python wordpiece.py vocab.txt < sentences.txt > tokens.txt

Reads one sentence a line; writes the sentence, a tab, and its token numbers with spaces between. The method is that of
"Google's Neural Machine Translation System" (arXiv:1609.08144) as BERT uses it: lower case without accents, words and
punctuation apart, each word cut greedily into the longest pieces of the vocabulary.
"""

import sys
import unicodedata

LONGEST_WORD = 100
LONGEST_SENTENCE = 512


def _is_punctuation(char):
    code = ord(char)
    ascii_symbol = 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126
    return ascii_symbol or unicodedata.category(char).startswith("P")


def _is_ideograph(char):
    code = ord(char)
    return 0x4E00 <= code <= 0x9FFF or 0x3400 <= code <= 0x4DBF or 0xF900 <= code <= 0xFAFF or 0x20000 <= code <= 0x2FA1F


def words(text):
    spaced = []
    for char in unicodedata.normalize("NFD", text.lower()):
        category = unicodedata.category(char)
        if category == "Mn" or (category.startswith("C") and char not in "\t\n\r"):
            continue
        spaced.append(f" {char} " if _is_punctuation(char) or _is_ideograph(char) else char)
    return "".join(spaced).split()


def pieces(word, vocabulary):
    """The numbers of a word's pieces; that of [UNK] where the vocabulary cannot spell it."""
    unknown = [vocabulary["[UNK]"]]
    if len(word) > LONGEST_WORD:
        return unknown
    found, start = [], 0
    while start < len(word):
        prefix = "##" if start else ""
        for end in range(len(word), start, -1):
            number = vocabulary.get(prefix + word[start:end])
            if number is not None:
                found.append(number)
                start = end
                break
        else:
            return unknown
    return found


def encode(sentence, vocabulary):
    middle = [number for word in words(sentence) for number in pieces(word, vocabulary)]
    return [vocabulary["[CLS]"], *middle[: LONGEST_SENTENCE - 2], vocabulary["[SEP]"]]


def read_vocabulary(path):
    with open(path, encoding="utf-8") as file:
        return {line.rstrip("\n"): number for number, line in enumerate(file)}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    vocabulary = read_vocabulary(sys.argv[1])
    for line in sys.stdin:
        sentence = line.strip()
        if sentence:
            print(sentence, " ".join(map(str, encode(sentence, vocabulary))), sep="\t")
