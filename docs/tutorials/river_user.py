"""For users of river: private PCA in a pipeline, one row at a time.

Run it with ``python docs/tutorials/river_user.py``; it takes a few seconds.
"""

# %% Rows are mappings, as in all of river. The dataset is 2310 image segments with 18 measurements.
import numbers

from river import compose, datasets, stream

from streampca.river import PrivatePCA, PrivateWindowPCA

example, _ = next(iter(datasets.ImageSegments()))
print(f"{len(example)} features, such as hue-mean = {example['hue-mean']:.3f}")

# %% Two public inputs are needed, and neither may depend on the rows: the range of each feature, and the budget.
# Here: positions and colors of up to 255, excess colors that may be negative, an angle of up to pi, a share.
bounds = dict.fromkeys(example, (0.0, 255.0))
bounds |= dict.fromkeys(("exred-mean", "exgreen-mean", "exblue-mean"), (-255.0, 255.0))
bounds |= {"hue-mean": (-3.1416, 3.1416), "saturation-mean": (0.0, 1.0)}

pca = PrivatePCA(n_components=3, epsilon=1.0, delta=1e-6, horizon=2_500, release_every=50, bounds=bounds)
model = compose.SelectType(numbers.Number) | pca
print(f"before the first row: {pca.guarantee}")

# %% learn_one and transform_one, as in river. Features may be missing, new or in another order.
for x, _ in datasets.ImageSegments():
    model.learn_one(x)
    scores = model.transform_one(x)
print(f"scores of the last row: {scores}")

# %% The components, and everything else in the release, may be published. Not the scores of a row, which
# are as sensitive as the row itself, and not a model that was trained on them.
release = pca.release
assert release is not None
print(f"components after {release.t} rows:")
print(pca.components.T.round(2))
print(release.to_json(gram=False)[:200], "...")

# %% Blocks of rows give the same releases, to the bit, and are several times faster.
import pandas as pd  # noqa: E402

table = pd.DataFrame([x for x, _ in datasets.ImageSegments()])
blocks = PrivatePCA(n_components=3, epsilon=1.0, delta=1e-6, horizon=2_500, release_every=50, bounds=bounds)
for start in range(0, len(table), 500):
    blocks.learn_many(table[start : start + 500])
print(f"{blocks.t} rows in blocks; noise_std {blocks.release.noise_std if blocks.release else None:.3g}")

# %% No step that learns from rows may come before: with StandardScaler() in front, one row would change
# all scaled rows after it. Scale by bounds, as above, or by a function of one row:
roots = compose.FuncTransformer(lambda x: {name: max(0.0, value) ** 0.5 for name, value in x.items()})
also_private = roots | PrivatePCA(row_norm=40.0, release_every=100)
for x, _ in datasets.ImageSegments().take(300):
    also_private.learn_one(x)

# %% Where the distribution changes, follow the last rows only. The segments are in random order, so nothing
# changes here; `python scenarios/run.py window_drift` shows rows that do.
window = PrivateWindowPCA(n_components=2, epsilon=1.0, delta=1e-6, window=1_000, release_every=100, bounds=bounds)
for x, _ in datasets.ImageSegments():
    window.learn_one(x)
assert window.release is not None
print(f"the window's release covers rows {window.release.details['window']}")

# %% Has the subspace changed? Disjoint blocks are released for the price of one, and tested against those before:
# an alarm by chance in one of a hundred blocks. Post-processing: alarms may be published.
from streampca.river import PrivateBlockPCA  # noqa: E402
from streampca.river_monitors import SubspaceAnomaly, SubspaceDrift  # noqa: E402

blocks_of, drift = PrivateBlockPCA(n_components=2, block=500, bounds=bounds), SubspaceDrift(false_alarm=0.01)
for x, _ in datasets.ImageSegments():
    blocks_of.learn_one(x)
    drift.update(blocks_of.release)
print(f"drift: {drift.drift_detected}, p-value {drift.p_value:.2f}")

# %% How far is a row from the released subspace? These scores are not private: they are for the curator.
anomaly = SubspaceAnomaly(blocks_of)
print(
    f"distance of a row {anomaly.score_one(x):.3f}, of a strange one {anomaly.score_one(x | {'hue-mean': -60.0}):.3f}"
)

# %% Progressive validation, as with any river model. The model after the components is not private.
from river import evaluate, linear_model, metrics  # noqa: E402

approval = datasets.TrumpApproval()
percent = dict.fromkeys(next(iter(approval))[0], (0.0, 100.0)) | {"ordinal_date": (736e3, 738e3)}
regression = PrivatePCA(bounds=percent, release_every=50) | linear_model.LinearRegression(intercept_lr=0.1)
print(evaluate.progressive_val_score(approval, regression, metrics.MAE()))

# %% Files, by river's own reader. Without converters it yields text, which is converted.
path = datasets.ImageSegments().path
columns = ["hue-mean", "saturation-mean", "value-mean"]
from_file = PrivatePCA(
    n_components=1, features=columns, bounds={name: bounds[name] for name in columns}, release_every=1
)
for x, _ in stream.iter_csv(str(path)):
    from_file.learn_one(x)
print(f"{from_file.t} rows from a file; weights {from_file.components.loc['pc0'].round(2).to_dict()}")

# %% clone() starts anew, and spends budget again on the same rows. A pickle of a fitted model is as secret as
# the rows: it holds their exact sums.
print(f"a clone has seen {pca.clone().t} rows")
