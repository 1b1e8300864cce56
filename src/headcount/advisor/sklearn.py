"""`HeadCountAdvisor`: the advisor as a scikit-learn estimator; only this module needs scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headcount.advisor.advice import Advice, advise
from headcount.core import BadInput, MissingExtra

try:
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.utils import ClassifierTags
    from sklearn.utils.validation import check_array, check_is_fitted, check_random_state, validate_data
except ImportError:  # pragma: no cover
    raise MissingExtra("scikit-learn", "sklearn", "HeadCountAdvisor") from None


class HeadCountAdvisor(RegressorMixin, BaseEstimator):  # pyright: ignore[reportUntypedBaseClass]
    """An estimator of how many attention heads sequences need.

    X is [samples, length, dim], or [samples, length] for tokens of one number; there, whole numbers of an integer type
    are ids and become one-hot vectors. y holds numbers, vectors or, with kind="classification", labels; kind="auto"
    treats text and a few different whole numbers as labels.

    After `fit` there are `recommended_heads_`, `interval_`, `intrinsic_dimension_` (None if no transition was seen),
    `curve_` (one row per head count) and `advice_` (what `hc.advise` returns); `predict` uses the best model found.

    budget: seconds, or a text such as "2m" (default 300). heads_max: the largest head count to try. confidence: the
    level of the interval. device: "cpu" or "cuda". steps: of every model, whatever the budget, so that the same data
    give the same answer. random_state: the seed.
    """

    def __init__(
        self,
        *,
        budget: float | str = 300.0,
        heads_max: int = 32,
        confidence: float = 0.95,
        kind: str = "regression",
        device: str = "cpu",
        steps: int | None = None,
        random_state: Any = 0,
    ) -> None:
        self.budget = budget
        self.heads_max = heads_max
        self.confidence = confidence
        self.kind = kind
        self.device = device
        self.steps = steps
        self.random_state = random_state

    def fit(self, X: Any, y: Any, mask: Any = None) -> HeadCountAdvisor:
        """Search for the smallest head count within a margin of the best.

        X, y: sequences and their targets, as the class describes them. mask: True at real tokens.
        """
        numbers = self.kind == "regression"
        checked: Any = validate_data(
            self,
            X,
            y,
            allow_nd=True,
            dtype=np.float64,
            multi_output=self.kind != "classification",
            y_numeric=numbers,
            ensure_min_samples=2,
        )
        inputs, targets = checked
        try:
            self.advice_ = self._ask(_tokens(inputs, _holds_ids(X)), targets, mask)
        except BadInput as error:  # what scikit-learn expects for bad data
            raise ValueError(str(error)) from None
        self._axes, self._column = inputs.ndim, targets.ndim == 2
        record = self.advice_.record
        self.recommended_heads_ = record.recommended_heads
        self.interval_ = tuple(record.interval)
        self.intrinsic_dimension_ = None if record.no_transition else record.recommended_heads
        self.curve_ = [point.data() for point in record.curve]
        vars(self).pop("classes_", None)
        if self.advice_.material.classes is not None:
            self.classes_ = np.asarray(self.advice_.material.classes)
        return self

    def predict(self, X: Any, mask: Any = None) -> NDArray[Any]:
        """Predict with the best model that was found, whatever its head count.

        X: sequences, also of another length. mask: True at real tokens.
        """
        check_is_fitted(self)
        if self._axes == 3:  # scikit-learn counts the second axis as features, which is the length here
            inputs: Any = check_array(X, allow_nd=True, dtype="float64", estimator=self, input_name="X")
        else:
            inputs = validate_data(self, X, allow_nd=True, dtype=np.float64, reset=False)
        try:
            predicted = self.advice_.predict(inputs[:, :, None] if self._axes == 2 == inputs.ndim else inputs, mask)
        except BadInput as error:
            raise ValueError(str(error)) from None
        return predicted.reshape(len(predicted), -1) if self._column else predicted

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R² or, if y was found to hold classes, the accuracy.

        X, y: sequences and their true values. sample_weight: one weight per sequence.
        """
        check_is_fitted(self)
        if self.advice_.material.classes is None:
            return float(super().score(X, y, sample_weight))
        from sklearn.metrics import accuracy_score

        return float(accuracy_score(np.ravel(y), np.ravel(self.predict(X)), sample_weight=sample_weight))

    def _ask(self, X: NDArray[Any], y: NDArray[Any], mask: Any) -> Advice:
        seed = self.random_state
        if seed is None or not isinstance(seed, int | np.integer):
            seed = int(check_random_state(seed).randint(2**31 - 1))
        return advise(
            X,
            y,
            mask,
            budget=self.budget,
            heads_max=self.heads_max,
            confidence=self.confidence,
            device=self.device,
            seed=int(seed),
            kind=self.kind,  # pyright: ignore[reportArgumentType]
            steps=self.steps,
            quiet=True,
        )

    def __sklearn_tags__(self) -> Any:
        """Return what the estimator accepts: numbers and vectors or, if `kind` says so or `fit` found them, classes."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = self.kind != "classification"
        tags.regressor_tags.poor_score = True  # the best of small models, trained for a budget
        tags.non_deterministic = self.steps is None
        if self.kind == "classification" or hasattr(self, "classes_"):
            tags.estimator_type = "classifier"
            tags.classifier_tags = ClassifierTags()
        return tags


def _holds_ids(X: Any) -> bool:
    """Whether X is a table of whole numbers, by its type."""
    array = np.asarray(X)
    return array.ndim == 2 and array.dtype.kind in "iu"


def _tokens(X: NDArray[np.float64], ids: bool) -> NDArray[Any]:
    """Return X[samples, length, dim]; a table holds sequences of numbers, or of ids, which stay two-dimensional."""
    if X.ndim == 2 and X.shape[1] < 2:
        raise ValueError(f"n_features = {X.shape[1]}: heads choose among tokens, so lengths of 2 or more are needed")
    if ids:
        return X.astype(np.int64)
    return X[:, :, None] if X.ndim == 2 else X
