"""For privacy officers: what is promised, what it rests on, and how to check it.

Run it with ``python -m streampca.tutorials.privacy_officer``; it takes some ten seconds.
"""

# %% The promise, before any row is read. It states the neighbours (one row against a zero row), the budget, its
# scope, the theorem and where it is proved.
import json
import tempfile
from pathlib import Path

import numpy as np

import streampca as sp

algorithm = sp.PrivateFPL(n_components=3, epsilon=1.0, delta=1e-6, horizon=5_000, release_every=100)
promise = algorithm.guarantee
print(promise)

# %% In words: whoever sees every release, and knows every row but one, and even chose them, can hardly tell what
# that one row is. The exact trade-off is a curve; at other deltas the same noise promises
for delta in (1e-4, 1e-6, 1e-8):
    print(f"  epsilon = {promise.epsilon_at(delta):.3f} at delta = {delta:g}")

# %% Things add up. Two runs on the same rows:
print(f"twice: epsilon = {promise.compose(promise).epsilon:.3f} at delta = {promise.delta:g}")

# %% A ledger keeps count, in a file, before the first row is read. It refuses what is not covered.
folder = tempfile.TemporaryDirectory()
path = Path(folder.name) / "ledger.db"
rows = np.random.default_rng(0).normal(size=(5_000, 10)) * np.linspace(0.5, 0.05, 10)
with sp.Ledger(path) as ledger:
    ledger.set_budget("patients", sp.Budget(1.2, 1e-6))
    stream = sp.Stream(algorithm, ledger=ledger.account("patients"))
    stream.push_many(rows)
    print(f"spent: epsilon = {ledger.balance('patients').spent:.3f} of 1.2")
    try:
        sp.Stream(algorithm, ledger=ledger.account("patients")).push_many(rows)
    except sp.errors.BudgetExhausted as refusal:
        print(f"refused: {refusal}")
folder.cleanup()

# %% What leaves is a release and nothing else: it carries its own promise.
release = stream.release
assert release is not None
published = json.loads(release.to_json(gram=False))
print(f"a release holds {', '.join(published)}")

# %% What stays: rows, exact sums, rewards, regret, `captured`, counts of bad rows, keys, checkpoints, pickles.
# They are marked "curator only" in the documentation, because each is an exact function of raw rows.
print(f"curator only: {stream.regret.now()}")

# %% Do not believe it: attack it. An auditor runs neighbouring data sets through the same code and reports what an
# attacker provably gets. A claim is refuted if that is more than was promised. (At epsilon = 6 some thousand runs
# say something; a smaller claim needs more of them.)
audited = sp.PrivateFPL(n_components=1, epsilon=6.0, delta=1e-6, horizon=8)
found = sp.audit(audited, runs=1_500, seed=1)
print(f"mu is at least {found.bound:.3f}, claimed {found.claim:.3f}: {'holds' if found.holds else 'REFUTED'}")

# %% `streampca audit --all` does so for everything, and plants bugs (half the noise, reused noise, rows that are
# not clipped) to show that they would be found.
#
# What the promise does *not* cover, and what to ask the engineers:
#
# - Are `row_norm` and `bounds` public? They must not be read off the rows, nor may a scaler be fitted on them.
# - Has a person more than one row? Then ask for `max_rows_per_user=` (`streampca.users`), or for a smaller epsilon.
# - Is a seed set? Then whoever knows it can take the noise off, and the guarantee says so:
seeded = sp.Stream(algorithm, seed=1)
seeded.push_many(rows[:100])
print(f"caveat of a seeded run: {seeded.guarantee.caveat}")

# %%
# - Are scores of single people published? They are not covered: the subspace is, the scores are raw rows projected.
# - Is delta far below one over the number of rows? Here 1e-6 against 1 / 5000.
# - Which epsilon? The planner tells what it buys, before a row is read:
for epsilon in (0.1, 0.5, 2.0):
    plan = sp.plan(n_rows=5_000, n_features=10, n_components=3, epsilon=epsilon, delta=1e-6)
    print(f"  epsilon = {epsilon}: {plan.recommended.captured:.1%} of the best subspace, by {plan.recommended.label}")
