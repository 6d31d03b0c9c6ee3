"""
Gradients: nearly of low rank
=============================

Per-example gradients of a softmax regression on the digits, clipped to norm 1,
as private training would see them: 650 numbers each. Most of their variance is
in a few directions, and a private release finds the first of them. An image is
in ten of these rows, so that the guarantee is for one gradient.
"""

import numpy as np
import streampca as sp
from sklearn.datasets import load_digits

digits = load_digits()
target = np.eye(10)[digits.target]
inputs = np.column_stack([digits.data / 16.0, np.ones(len(target))])
weights, kept = np.zeros((65, 10)), []
for _ in range(10):  # ten passes, each with the weights of the one before
    scores = np.exp(inputs @ weights)
    error = scores / scores.sum(axis=1, keepdims=True) - target
    outer = inputs[:, :, None] * error[:, None, :]
    kept.append(outer.reshape(len(inputs), -1))
    weights -= 0.05 * (inputs.T @ error) / len(inputs)
gradients = np.concatenate(kept)
norms = np.maximum(1.0, np.linalg.norm(gradients, axis=1))
mechanism = sp.GaussianCovariance(n_components=5, epsilon=8.0, center=False)
release = mechanism.release(gradients / norms[:, None], row_norm=1.0)
figure = release.plot("scree")
