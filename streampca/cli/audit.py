"""``streampca audit``: claims against measured bounds."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from streampca.errors import BadParameter


def audit(
    *names: str,
    all_: Annotated[bool, Parameter(name="--all", negative="")] = False,
    runs: int = 3000,
    confidence: float = 0.999,
    bugs: bool = True,
    seed: int | None = None,
    list_: Annotated[bool, Parameter(name="--list", negative="")] = False,
) -> int:
    """Try to refute the privacy claims: run neighbouring streams and see how well they can be told apart.

    Prints, for each algorithm, what it claims and what an attacker provably
    gets, then plants bugs and checks that each is caught. Exits with 1 if a claim
    is refuted or a bug is missed. A true claim is refuted with probability
    at most 1 - confidence, per line.

    Parameters
    ----------
    names
        Names of audits, or their first words; see --list.
    all_
        Run all of them: two minutes. With --runs 50000, some twenty minutes.
    runs
        Runs of each of the two neighbouring streams. More runs give tighter bounds.
    confidence
        Confidence of each bound.
    bugs
        Plant the bugs too.
    seed
        For a reproducible table.
    list_
        List the names and stop.
    """
    from streampca.auditing.suite import BUG_SHARE, bugs_of, chosen, run_case

    if list_:
        print("\n".join(case.name for case in chosen(names)))
        return 0
    if not (names or all_):
        raise BadParameter("name what to audit, e.g. 'streampca audit PrivateFPL', or pass --all; --list lists names")
    cases = chosen(names)
    print(f"{'audit':<38} {'measure':<8} {'claim':>8} {'at least':>9}  verdict (confidence {confidence:g})")
    failed = 0
    for case in cases:
        found = run_case(case, runs, confidence, seed)
        failed += not found.holds
        verdict = "holds" if found.holds else "REFUTED"
        share = f", {found.tightness:.0%} of the claim" if found.holds else ""
        print(
            f"{found.name:<38} {found.measure:<8} {found.claim:8.4f} {found.bound:9.4f}  {verdict}{share}", flush=True
        )
    if bugs:
        print(f"\n{'planted bug':<48} {'in':<38} {'claim':>8} {'at least':>9}  verdict")
        for bug, case in bugs_of(cases):
            found = run_case(case, max(600, round(BUG_SHARE * runs)), confidence, seed, bug)
            failed += found.holds
            verdict = "MISSED" if found.holds else "caught"
            print(f"{bug.name:<48} {case.name:<38} {found.claim:8.4f} {found.bound:9.4f}  {verdict}", flush=True)
    print(f"\n{'all as it should be' if not failed else f'{failed} not as it should be'}")
    return 1 if failed else 0
