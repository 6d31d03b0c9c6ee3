"""CI's share of the audit: about a tenth of all cases, of what the change touched first, then sampled by the commit.

``python tests/auditing/ci_share.py [BASE]`` audits them and exits with 1 if one does not hold. BASE is the commit that
the change is measured from (by default the parent of HEAD). Which cases run depends on the commit and on its
difference from BASE only: they are chosen by estimates of their time, not by a clock.
"""

import ast
import subprocess
import sys
import time
from functools import cache
from hashlib import blake2b
from pathlib import Path

from decisions import audit_watched

from streampca.auditing.cases import generated, public
from streampca.auditing.suite import NUMBERS

ROOT = Path(__file__).parents[2]
#: Estimated seconds of all cases together. On a busy machine they take more than twice as long.
SECONDS = 200.0
#: One case in this number is sampled, as long as they fit.
SHARE = 5
#: Folders whose files belong to the algorithms that import them. Any other file is everybody's.
OWN = ("processors", "papers", "mechanisms", "matrix_factorization")


def seconds(case):
    words = set(case.name.split("-"))
    if "AdaptiveCovariance" in words:
        return 5.0
    if "DPPCA" in words:
        return 2.0
    return 1.0 if "bounds" in words else 0.6


@cache
def modules(path):
    found, left = set(), [path]
    while left:
        one = left.pop()
        if one in found:
            continue
        found.add(one)
        for node in ast.walk(ast.parse(one.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("streampca."):
                file = ROOT.joinpath(*node.module.split(".")).with_suffix(".py")
                if file.exists() and file.parent.name in OWN:
                    left.append(file)
    return frozenset(file.relative_to(ROOT).as_posix() for file in found)


def touched(files):
    files = {file for file in files if file.startswith("streampca/") and file.endswith(".py")}
    shared = {file for file in files if file.split("/")[1] not in OWN}
    kinds = {kind.__name__: modules(ROOT.joinpath(*kind.__module__.split(".")).with_suffix(".py")) for kind in public()}
    return {name for name, own in kinds.items() if own & files}, bool(shared)


def chosen(commit, files):
    def place(case):
        return blake2b(f"{commit} {case.name}".encode()).digest()

    kinds, shared = touched(files)
    mine = [case for case in generated() if kinds & set(case.name.split("-"))]
    quick = [case for case in generated() if case.quick and (shared or case in mine)]
    rest = sorted(generated(), key=place)
    sample, more = rest[: len(rest) // SHARE], sorted(mine, key=place)
    picked, spent = {}, 0.0
    for case in [*quick, *sample, *more]:
        if case.name not in picked and spent + seconds(case) <= SECONDS:
            picked[case.name], spent = case, spent + seconds(case)
    return list(picked.values())


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()


def main(base="HEAD~1"):
    (commit,) = git("rev-parse", "HEAD")
    try:
        files = git("diff", "--name-only", base, "HEAD")
    except subprocess.CalledProcessError:  # a copy without history: everything may have changed
        files = git("ls-files")
    cases, started, failed = chosen(commit, files), time.process_time(), 0
    print(f"audit of {len(cases)} of {len(generated())} cases, chosen by commit {commit[:12]}:", flush=True)
    for case in cases:
        # With some keys a quick audit sees too little: a warm-up finds no bounds, or a gap does not show. Other keys
        # are tried then, with all neighbors. What is refuted is refuted.
        for more in range(8):
            seed, error = int(commit[:8], 16) + more, 1e-3 / (8 * len(cases))
            rows = audit_watched(case, numbers=NUMBERS["quick"], error=error, every=more > 0, seed=seed)
            if all(row.holds for row in rows) or any(row.verdict == "refuted" for row in rows):
                break
        failed += sum(not row.holds for row in rows)
        verdict = "holds" if all(row.holds for row in rows) else "\n  ".join(str(row) for row in rows if not row.holds)
        print(f"{case.name}: {verdict}", flush=True)
    print(f"{failed} rows do not hold, {time.process_time() - started:.0f} s of CPU time")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
