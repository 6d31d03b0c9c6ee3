"""scikit-learn's own checks, those that run by default and those that do not, by name. None is skipped."""

from collections.abc import Callable

import pytest
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import estimator_checks_generator

from streampca.sklearn import PrivatePCA

ESTIMATORS = [PrivatePCA(row_norm=1.0), PrivatePCA(n_components=1, bounds=(-10.0, 10.0), center=False)]
#: Checks that scikit-learn keeps for its own estimators.
MORE = [
    "check_dataframe_column_names_consistency", "check_do_not_raise_errors_in_init_or_set_params",
    "check_get_feature_names_out_error", "check_global_output_transform_pandas",
    "check_global_set_output_transform_polars", "check_inplace_ensure_writeable", "check_n_features_in_after_fitting",
    "check_set_output_transform", "check_set_output_transform_pandas", "check_set_output_transform_polars",
    "check_transformer_get_feature_names_out", "check_transformer_get_feature_names_out_pandas",
]  # fmt: skip
# Not `parametrize_with_checks`, whose iterator pytest 9 warns of with scikit-learn up to 1.9.0.
CHECKS = [(estimator, check) for each in ESTIMATORS for estimator, check in estimator_checks_generator(each)]


@pytest.mark.parametrize(("estimator", "check"), CHECKS, ids=[check.func.__name__ for _, check in CHECKS])
def test_sklearn_check(
    estimator: PrivatePCA, check: Callable[[PrivatePCA], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # else scikit-learn skips one of them
    check(estimator)


# Some of them fit on a table and transform an array, or the other way round, of which scikit-learn warns.
@pytest.mark.filterwarnings("ignore:X (does not have valid|has) feature names:UserWarning")
@pytest.mark.parametrize("name", MORE)
def test_sklearn_check_not_run_by_default(name: str) -> None:
    getattr(estimator_checks, name)("PrivatePCA", PrivatePCA(row_norm=1.0))
