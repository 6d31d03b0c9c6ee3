"""Predictions before a row is spent: noise, error, regret and memory of every algorithm that applies."""

from streampca.planning.plan import Plan, plan
from streampca.planning.predictions import Prediction
from streampca.planning.question import Question

__all__ = ["Plan", "Prediction", "Question", "plan"]
