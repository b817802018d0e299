"""benchmarks/RESULTS.md, from what the parts have found."""

import json
from pathlib import Path

from .harness import Part, Table, Target

RESULTS = Path(__file__).with_name("results")
REPORT = Path(__file__).with_name("RESULTS.md")


def parts_found(names: list[str]) -> list[Part]:
    """The parts among `names` that have been measured, in that order."""
    found = []
    for name in names:
        path = RESULTS / f"{name}.json"
        if path.exists():
            fields = json.loads(path.read_text())
            fields["tables"] = [Table(**table) for table in fields["tables"]]
            fields["targets"] = [Target(**target) for target in fields["targets"]]
            found.append(Part(**fields))
    return found


def table_lines(head: list[str], rows: list[list[str]]) -> list[str]:
    """A table in Markdown."""
    lines = (head, ["---"] * len(head), *rows)
    return [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |" for cells in lines]


def verdict(target: Target) -> str:
    """One word."""
    return {True: "met", False: "**missed**", None: ""}[target.met]


def machines(parts: list[Part]) -> list[str]:
    """The machine and the versions, once if all parts saw the same."""
    seen: dict[str, list[str]] = {}
    for part in parts:
        versions = ", ".join(f"{name} {version}" for name, version in part.facts["versions"].items())
        line = f"{part.facts['machine']}; Python {part.facts['python']}, {versions}"
        seen.setdefault(line, []).append(part.name)
    return [f"{line}." if len(seen) == 1 else f"{', '.join(names)}: {line}." for line, names in seen.items()]


def report(parts: list[Part]) -> str:
    """The whole page."""
    lines = [
        "# Speed, measured",
        "",
        *machines(parts),
        "",
        "Written by `make bench` (`python -m benchmarks PART` measures one part again). Numbers are float64 where"
        " nothing else is said. A time is the median of at least five rounds, with quartiles in brackets; the first"
        " call, which compiles, is not among them and is given apart. All programmes that are compared run in turn in"
        " one process, and a ratio is the median of the quotients of the rounds."
        " [docs/howto/large-clouds.md](../docs/howto/large-clouds.md) says how to read this.",
        "",
        "## Figures asked for",
        "",
        *table_lines(
            ["what", "figure", "wanted", ""],
            [[t.what, t.figure, t.wanted, verdict(t)] for part in parts for t in part.targets],
        ),
        "",
    ]
    for part in parts:
        lines += [f"## {part.title}", ""]
        for table in part.tables:
            lines += [f"{table.caption}.", "", *table_lines(table.head, table.rows), ""]
        lines += [f"- {note}" for note in part.notes]
        lines += [""] * bool(part.notes)
        facts = part.facts
        lines += [
            f"Part `{part.name}`: {facts['wall_seconds']:.0f} s, {facts['cpu_seconds']:.0f} s of CPU, peak memory "
            f"{facts['peak_bytes'] / 1e9:.2f} GB, on {facts['date']}.",
            "",
        ]
    return "\n".join(lines)


def write_report(parts: list[Part]) -> Path:
    """Write the page and say where."""
    REPORT.write_text(report(parts))
    return REPORT
