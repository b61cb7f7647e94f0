"""Sums up tests/fuzz/record.txt: what random graphs were compared, how long the parsers were fuzzed, what was found.

    python tests/fuzz/record.py [FILE]

An entry is one line, written by random_models.py --record and by run.sh:

    DATE COMMIT seed S from FIRST: N compared, M differ
    DATE COMMIT libFuzzer TARGET: SECONDS s, N inputs, M found

of processor time. Below it stands, indented, a line for each of the M, with its end: "gI: what it was; passes since COMMIT",
"no longer made since COMMIT" where onnxruntime is wrong. One without an end is open, and the status is 1.
"""
import collections
import pathlib
import re
import sys

FILE = pathlib.Path(__file__).parent / "record.txt"
GRAPHS = re.compile(r"(?P<date>\S+) (?P<commit>\S+) seed (?P<name>\S+) from (?P<first>\d+): (?P<count>\d+) compared, (?P<found>\d+) differ")
PARSERS = re.compile(r"(?P<date>\S+) (?P<commit>\S+) libFuzzer (?P<name>\S+): (?P<seconds>\d+) s, (?P<count>\d+) inputs, (?P<found>\d+) found")
END = re.compile(r"; (passes|no longer made) since [0-9a-f]{7,}$")


def entries(text):
    """(kind, fields, ends): each entry with the notes below it; a line of neither form is an error."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("    "):  # a note goes on
            found[-1][2][-1] += " " + line.strip()
        elif line.startswith("  "):
            found[-1][2].append(line.strip())
        elif match := GRAPHS.fullmatch(line) or PARSERS.fullmatch(line):
            found.append(("graphs" if match.re is GRAPHS else "parsers", match.groupdict(), []))
        else:
            sys.exit(f"line {number} of the record is not an entry: {line}")
    return found


def main():
    graphs, parsers = collections.defaultdict(list), collections.defaultdict(lambda: [0, 0])
    differed, broken, still_open = 0, 0, []
    for kind, entry, notes in entries((pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else FILE).read_text()):
        count, found = int(entry["count"]), int(entry["found"])
        ended = sum(END.search(note) is not None for note in notes)
        if ended != found:
            still_open.append(f"{entry['date']} {entry['commit']} {entry['name']}: {found} found, {ended} with an end")
        if kind == "graphs":
            graphs[entry["name"]].append((int(entry["first"]), count))
            differed += found
        else:
            parsers[entry["name"]][0] += int(entry["seconds"])
            parsers[entry["name"]][1] += count
            broken += found
    for seed, runs in graphs.items():
        print(f"seed {seed:10} {sum(n for _, n in runs):6} graphs in {len(runs)} runs, from {min(f for f, _ in runs)} on")
    for name, (seconds, count) in sorted(parsers.items()):
        print(f"{name:15} {seconds:6} s, {count} inputs")
    print(f"{sum(n for runs in graphs.values() for _, n in runs)} graphs of seeds {', '.join(graphs)} compared, {differed} differed")
    print(f"{sum(s for s, _ in parsers.values()) / 3600:.2f} hours of processor time of libFuzzer, {broken} findings")
    print("open: " + ("; ".join(still_open) or "nothing"))
    return len(still_open) != 0


if __name__ == "__main__":
    sys.exit(main())
