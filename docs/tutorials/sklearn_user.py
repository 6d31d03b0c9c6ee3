"""For users of scikit-learn: private PCA with fit, partial_fit, error bars and a budget.

Run it with ``python docs/tutorials/sklearn_user.py``; it takes a few seconds. Needs the extra ``sklearn``.
"""

# %% Rows: 20 000 people, 8 measurements. Two hidden traits make most of the variance.
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import streampca as sp
from streampca.sklearn import PrivatePCA

rng = np.random.default_rng(0)
names = [f"m{j}" for j in range(8)]
traits = rng.normal(size=(20_000, 2)) * [15.0, 9.0]
people = pd.DataFrame(traits @ rng.normal(size=(2, 8)) / 3.0 + rng.normal(size=(20_000, 8)) + 50.0, columns=names)

# %% Public ranges set the scale. They must not depend on the rows: "scores are from 10 to 90", say.
private = PrivatePCA(n_components=2, epsilon=1.0, delta=1e-6, bounds=(10.0, 90.0)).fit(people)
exact = PCA(n_components=2).fit((people - 50.0) * private.scale_)
print(private.guarantee_)
print(pd.DataFrame({"private": private.explained_variance_, "exact": exact.explained_variance_}).round(5))

# %% Error bars come with the estimates: intervals that hold for all variances at once.
low, high = private.explained_variance_interval(0.95)
print(pd.DataFrame({"low": low, "high": high, "std of the noise": private.explained_variance_std_}).round(5))
angles = sp.Subspace(private.components_.T).angles(sp.Subspace(exact.components_.T))
print(f"largest angle between the private and the exact subspace: {np.degrees(angles[-1]):.2f} degrees")

# %% Feature names, tables and the inverse transform, as in scikit-learn.
private.set_output(transform="pandas")
print(private.transform(people).head(2).round(2))
back = private.inverse_transform(private.transform(people))
print(f"root mean square error: {np.sqrt(np.mean((back - people.to_numpy()) ** 2)):.2f} of a range of 80")

# %% In batches: one release a call, all under one budget. Sizes of batches are public.
stream = PrivatePCA(n_components=2, epsilon=1.0, delta=1e-6, bounds=(10.0, 90.0))
for start in range(0, len(people), 2_000):
    stream.partial_fit(people[start : start + 2_000])
print(f"{stream.n_samples_seen_} rows in batches; variances {stream.explained_variance_.round(4)}")

# %% Every fit spends budget. A ledger adds up, and refuses what the budget does not cover before a row is read.
folder = tempfile.TemporaryDirectory()
path = Path(folder.name) / "ledger.db"
with sp.Ledger(path) as ledger:
    ledger.set_budget("people", sp.Budget(2.0, 1e-6))
pipeline = make_pipeline(
    PrivatePCA(epsilon=0.25, bounds=(10.0, 90.0), ledger=str(path), data_set="people"), LinearRegression()
)
target = people["m0"] + people["m1"]
search = GridSearchCV(pipeline, {"privatepca__n_components": [1, 2]}, cv=4, error_score="raise")
search.fit(people, target)
with sp.Ledger(path) as ledger:
    balance = ledger.balance("people")
fits = len(balance.entries)
print(f"{fits} fits at epsilon = 0.25 each have spent epsilon = {balance.spent:.3f} of {balance.epsilon:g}")
try:
    PrivatePCA(epsilon=2.0, bounds=(10.0, 90.0), ledger=str(path), data_set="people").fit(people)
except sp.errors.BudgetExhaustedError as refusal:
    print(f"refused: {refusal}")
folder.cleanup()

# %% The regression above used raw scores, and so it is *not* private; the components are. To publish a regression,
# compute it from the private Gram matrix: `streampca.queries.regression`. Never put a StandardScaler in front: each
# row would change all scaled rows.
