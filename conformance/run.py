"""Judges released versions of transformers and compares what the laws say with what is known of each release.

    python conformance/run.py [RELEASE …] [--examples N] [--folder FOLDER]

Each release lies in a folder of its own, beside the versions of tokenizers and huggingface_hub that it wants, and is
judged by a Python that looks there first. Exit status 1 if a known fault is missed, or one is reported that is none.
"""

import argparse
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RELEASES = ("4.47.1", "4.57.6", "5.12.1", "5.14.1", "5.22.2", "5.24.0")
LAWS = [f"L{number}" for number in range(1, 23)]
SIGNS = {"broken": "x", "holds": ".", "not claimed": " "}
Fault = dict[str, Any]


def requirements(release: str) -> list[str]:
    """A release and what it wants beside it."""
    number = version(release)
    tokenizers = next(
        wanted
        for since, wanted in (((5, 16), "0.23"), ((4, 56), "0.22"), ((4, 47), "0.21"), ((4, 45), "0.20"))
        if number >= since
    )
    hub = ["huggingface_hub<1"] if number < (5,) else ["huggingface_hub~=1.0", "httpx<1", "httpcore<2"]
    return [f"transformers=={release}", f"tokenizers~={tokenizers}.0", *hub]


def version(release: str) -> tuple[int, ...]:
    """A release as numbers."""
    return tuple(int(part) for part in release.split("."))


def install(release: str, folder: Path) -> None:
    """Puts a release into its folder, once."""
    if folder.exists():
        return
    part = folder.with_name(f"{folder.name}.part")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*command, "--target", str(part), *requirements(release)], check=True)
    part.rename(folder)


def judge(folder: Path, examples: int) -> dict[str, Any]:
    """What the laws say to the release in a folder."""
    command = [sys.executable, str(HERE / "judge.py"), str(examples)]
    environment = os.environ | {"PYTHONPATH": str(folder), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def is_in(fault: Fault, release: str) -> bool:
    """Whether a release has a fault."""
    number = version(release)
    return version(fault.get("since", "0")) <= number <= version(fault.get("until", "999"))


def is_of(fault: Fault, model: str) -> bool:
    """Whether a fault is one of this model."""
    return model in fault["models"] or "all" in fault["models"]


def complaints(release: str, found: dict[str, Any], faults: list[Fault]) -> Iterator[tuple[str, str, str]]:
    """Model, law and what is wrong with the verdict."""
    by_report = {fault["report"]: fault for fault in faults}

    def may_break(model: str, law: str) -> bool:
        own = [fault for fault in faults if is_of(fault, model) and is_in(fault, release)]
        return any(law in fault["laws"] or {law, "all"} & set(fault.get("also", [])) for fault in own)

    for each in found["on_cases"]:
        fault, model = by_report[each["report"]], each["model"]
        for law, said in each["said"].items():
            if is_in(fault, release) and not said:
                yield model, law, f"missed: {fault['report']} is not seen on its case"
            if not is_in(fault, release) and said and not may_break(model, law):
                yield model, law, f"false alarm: {fault['report']} is mended, but its case says {said}"
    for each in found["drawn"]:
        model, law = each["model"].removeprefix("transformers."), each["law"]
        if each["outcome"] == "broken" and not may_break(model, law):
            yield model, law, f"false alarm: {each['case']}: {each['why']}"
        for fault in faults:
            known = is_of(fault, model) and is_in(fault, release) and law in fault["laws"]
            if known and each["outcome"] == "holds" and not fault.get("rare"):
                yield model, law, f"missed: no drawn case shows {fault['report']}"


def table(found: dict[str, Any], wrong: set[tuple[str, str]]) -> str:
    """A row for each model, a column for each law."""
    rows: dict[str, dict[str, str]] = {}
    for each in found["drawn"]:
        model, law = each["model"].removeprefix("transformers."), each["law"]
        row = rows.setdefault(model, {})
        if law not in row:  # the second L18 is compiled, which no adapter of transformers claims
            row[law] = (
                ("!" if each["outcome"] == "broken" else "?") if (model, law) in wrong else SIGNS[each["outcome"]]
            )
    lines = [f"{found['release']:<20}" + "".join(f"{law:>4}" for law in LAWS)]
    for model, row in rows.items():
        lines.append(f"  {model:<18}" + "".join(f"{row.get(law, ' '):>4}" for law in LAWS).rstrip())
    return "\n".join(lines)


def main() -> int:
    """As many releases at a time as there are processors, each on one."""
    parser = argparse.ArgumentParser(description="Judge released versions of transformers by the laws.")
    parser.add_argument("releases", nargs="*", default=RELEASES, help=f"those of {', '.join(RELEASES)} when not given")
    parser.add_argument("--examples", type=int, default=30, help="cases to draw for each law")
    parser.add_argument("--folder", type=Path, default=Path(".nox", "releases"), help="where the releases lie")
    options = parser.parse_args()
    faults = tomllib.loads((HERE / "faults.toml").read_text(encoding="utf-8"))["fault"]
    folders = [options.folder.absolute() / release for release in options.releases]
    for release, folder in zip(options.releases, folders, strict=True):
        install(release, folder)
    failed = False
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        judged = pool.map(judge, folders, repeat(options.examples))
        for release, found in zip(options.releases, judged, strict=True):
            wrong = list(complaints(release, found, faults))
            print(table(found, {(model, law) for model, law, _ in wrong}), flush=True)
            for model, law, why in wrong:
                print(f"  {law} {model}: {why}", flush=True)
            failed = failed or bool(wrong)
    print("x a known fault is found, ? one is missed, ! a false alarm, . holds, blank not claimed")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
