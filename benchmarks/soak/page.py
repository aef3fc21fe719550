"""The results as a file, a section of a page, and a picture."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.report import median
from benchmarks.soak.members import MEMBERS
from benchmarks.soak.record import LEAST, WARM, Sample, slope
from colonnade_lab.pages.plots import as_file, coloured, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MB = 1e6
GROWTH = {"rss": 20 * MB, "descriptors": 1.0, "threads": 1.0}  # per hour: growth that the interval must stay below
MEANINGS = {
    "kill": "one process killed (SIGKILL), started again",
    "stop": "one process ended (SIGTERM), started again",
    "freeze": "one process stopped (SIGSTOP) for up to 30 s, continued",
    "cut": "the connection of a party reset",
    "hold": "nothing delivered between a party and the server for up to 30 s",
    "close": "a party's connections refused for up to 15 s",
    "full": "the file system of a member full for up to 15 s: the run ends, and all start again",
    "full party": "the file system of a party full for up to 15 s: likewise",
    "list": "the revocation list torn for up to 14 s",
    "silent": "strangers: silent connections, 20 a second",
    "plain": "strangers: plain HTTP, 20 a second",
    "garbage": "strangers: random bytes, 20 a second",
    "foreign": "strangers: a certificate of another authority, 20 a second",
    "revoked": "strangers: 200 streams a second by a revoked certificate",
    "hellos": "strangers: 1 MB a second of empty Hellos by a revoked certificate",
    "kill party": "a long-lived party killed",
    "kill all": "all five processes killed at once",
    "renew": "a party's certificate renewed: all stopped, pinned anew, started",
    "revoke": "a party's certificate revoked, a new key pinned, all started",
}


def write(out: Path, results: dict[str, Any]) -> None:
    """Writes results.json, section.md and soak.svg to a folder that has samples.json."""
    samples: list[Sample] = json.loads((out / "samples.json").read_text(encoding="utf-8"))
    results["members"] = members(samples)
    results["broken"]["growth"] = [
        f"{name}: {figure} grow by {found['slope']:.3g} an hour, at least {found['low']:.3g}"
        for name, member in results["members"].items()
        for figure, found in member["growth"].items()
        if found is not None and found["low"] > GROWTH[figure]
    ]
    (out / "results.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
    (out / "section.md").write_text(section(results), encoding="utf-8")
    if samples:
        (out / "soak.svg").write_text(as_file(drawn(samples, results["begun"])), encoding="utf-8")


def lives(samples: list[Sample], name: str) -> list[list[Sample]]:
    """The samples of a member by its processes."""
    own = (sample for sample in samples if sample["member"] == name)
    return [list(group) for _, group in groupby(own, lambda sample: sample["life"])]


def members(samples: list[Sample]) -> dict[str, Any]:
    found = {}
    for name in MEMBERS:
        if not (processes := lives(samples, name)):
            continue
        own = [sample for life in processes for sample in life]
        span = own[-1]["time"] - own[0]["time"]
        found[name] = {
            "processes": own[-1]["life"],
            "cpu": sum(life[-1]["cpu"] for life in processes) / span if span else 0.0,
            "most": {key: [median([s[key] for s in own]), max(s[key] for s in own)] for key in GROWTH},
            "queued": max((sample["queued"] or 0 for sample in own), default=0),
            "log": own[-1]["log"] / MB,
            "growth": {key: rate and asdict(rate) for key in GROWTH for rate in (slope(own, key),)},
        }
    return found


def section(results: dict[str, Any]) -> str:
    kinds = defaultdict(list)
    for trouble in results["troubles"]:
        server = trouble["members"] == ["server"] and trouble["kind"] in ("kill", "stop", "freeze", "full")
        kinds[(trouble["kind"], " (server)" if server else "")].append(trouble["again"])
    order = list(MEANINGS)
    ordered = sorted(kinds.items(), key=lambda item: (order.index(item[0][0]), item[0][1]))
    lines = [
        f"{results['version']}; {results['machine']};",
        f"{results['minutes']:g} minutes of trouble, seed {results['seed']};",
        f"{len(results['troubles'])} troubles, {results['rounds']} rounds, of which",
        f"{results['rounds_done'] - results['rounds']} were done again after a return to a checkpoint;",
        f"{results['sessions']} sessions.",
        "",
        "| trouble | times | rounds again after: median | longest |",
        "|---|---|---|---|",
        *(_line(f"{MEANINGS[kind]}{who}", all_) for (kind, who), all_ in ordered),
        "",
        "| process | starts | share of a core | memory, MB: median, most | growth an hour, MB "
        "| descriptors: median, most | growth an hour | threads: median, most | longest queue | log, MB |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(_process(name, found) for name, found in results["members"].items()),
        "",
        *(f"- {line}" for line in _verdicts(results)),
    ]
    return "\n".join(lines) + "\n"


def _line(what: str, all_: list[float | None]) -> str:
    again = [seconds for seconds in all_ if seconds is not None]
    stuck = f" ({len(all_) - len(again)} without)" if len(again) < len(all_) else ""
    figures = f"{median(again):.1f} s | {max(again):.1f} s" if again else "- | -"
    return f"| {what} | {len(all_)}{stuck} | {figures} |"


def _process(name: str, found: dict[str, Any]) -> str:
    def ends(key: str, unit: float = 1) -> str:
        return ", ".join(f"{value / unit:.0f}" for value in found["most"][key])

    def growth(key: str, unit: float = 1) -> str:
        if (rate := found["growth"][key]) is None:
            return "-"
        return f"{rate['slope'] / unit:+.1f} ({rate['low'] / unit:+.1f} to {rate['high'] / unit:+.1f})"

    return (
        f"| {name} | {found['processes']} | {found['cpu']:.2f} | {ends('rss', MB)} | {growth('rss', MB)} "
        f"| {ends('descriptors')} | {growth('descriptors')} | {ends('threads')} "
        f"| {found['queued']:.0f} | {found['log']:.1f} |"
    )


def _verdicts(results: dict[str, Any]) -> list[str]:
    broken = results["broken"]
    ends = "; ".join(
        f"{name} {', '.join(f'{count} x {code}' for code, count in sorted(of.items()))}"
        for name, of in results["codes"].items()
    )
    equal = [name for name in results["codes"] if name not in broken["parameters"]]
    return [
        f"Newest checkpoints equal to the control's, byte by byte: {', '.join(equal) or 'none'}.",
        f"Results of rounds and evaluations compared with the control's: {results['compared']}; "
        f"different: {_found(broken['results'])}.",
        f"Ledgers: {results['entries']} entries as in the control, {results['repeats']} more are marked as repeats; "
        f"wrong: {_found(broken['ledgers'])}.",
        f"Rounds out of order, or with another result when repeated: {_found(broken['rounds'])}.",
        f"Troubles after which rounds did not go on: {_found(broken['stuck'])}.",
        f"Exit codes and their number: {ends}; unforeseen: {_found(broken['codes'])}.",
        f"Kinds of errors that were printed: {len(results['errors'])}; "
        f"tracebacks and other unforeseen lines: {_found(broken['noise'])}.",
        _growth(results),
        f"Files left over: {_found(broken['orphans'])}.",
    ]


def _growth(results: dict[str, Any]) -> str:
    told = [name for name, found in results["members"].items() if any(found["growth"].values())]
    if not told:
        return f"Growth: not measured, as no process lived for {(WARM + LEAST) / 60:.0f} minutes."
    wrong = _found(results["broken"]["growth"])
    return f"Growth of memory, descriptors or threads beyond the bounds, measured at {', '.join(told)}: {wrong}."


def _found(wrong: list[str]) -> str:
    return f"{len(wrong)}, such as {wrong[0]}" if wrong else "none"


def drawn(samples: list[Sample], begun: float) -> str:
    """Memory and descriptors of all members over the minutes; a line ends where its process ends."""
    colours = {curve.name: curve.stroke for curve in coloured({name: [] for name in MEMBERS})}

    def paint(figure: Figure) -> None:
        memory, descriptors = figure.subplots(2, 1, sharex=True)
        for name in MEMBERS:
            for number, life in enumerate(lives(samples, name)):
                minutes, look = [(sample["time"] - begun) / 60 for sample in life], {"color": colours[name]}
                memory.plot(minutes, [s["rss"] / MB for s in life], **look, label=name if not number else None, lw=1)
                descriptors.plot(minutes, [s["descriptors"] for s in life], **look, lw=1)
                for axes in (memory, descriptors) if number else ():
                    axes.plot(minutes[:1], [0], marker="|", **look, markersize=5)
        for axes, title in ((memory, "memory, MB"), (descriptors, "open descriptors")):
            axes.set_title(title)
            axes.grid(axis="y")
            axes.set_ylim(bottom=0)
        descriptors.set_xlabel("minutes; a mark at the bottom is a start of the process in that colour")
        figure.legend(loc="outside right upper")

    about = "Memory and open descriptors of the server and four parties, with restarts marked"
    return picture((760, 460), paint, title="A soak", about=about)
