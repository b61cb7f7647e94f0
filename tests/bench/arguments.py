"""What the timing programs take on their command lines: what makes no sense is refused by a sentence, with status 2."""

import argparse
import math
import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models"))
import models  # noqa: E402


def count(text):
    """A whole number from 1 on."""
    return _whole(text, 1)


def from_zero(text):
    """A whole number from 0 on."""
    return _whole(text, 0)


def _whole(text, least):
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from {least} on")
    return int(text)


def positive(text):
    """A number above 0, as of seconds."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number above 0")
    return value


def check_model(parser, name, others=()):
    """One of the ten models, or of `others`."""
    if name not in models.MODELS and name not in others:
        parser.error(f"no model {name}; there are {', '.join([*models.MODELS, *others])}")


def check_case(parser, name, number, cases):
    """Of a model with that many cases; None is any."""
    if number is not None and number >= cases:
        parser.error(f"argument --case: {name} has no case {number}; its cases are 0 to {cases - 1}")


def check_models(parser, names, case):
    """Of the ten models, all with that case."""
    for name in names:
        check_model(parser, name)
        check_case(parser, name, case, models.case_count(name))


def stridec_program(parser):
    """The path of the program that is measured."""
    path = os.environ.get("stridec", "build/stridec")
    if not shutil.which(path):
        parser.error(f"there is no program {path}; build it, or name it in the environment variable stridec")
    return path
