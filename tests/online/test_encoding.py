from __future__ import annotations

import logging

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core.dispatcher import Dispatcher
from scipy.special import expit

from benchmarks.reference import ReferenceModel
from everlearn.deep.mlp import rollout_kernel
from everlearn.online import OnlineWorldModel
from everlearn.online.encoding import LosseEncoding
from everlearn.online.kernels import imagination as kernels
from everlearn.support.errors import InvalidInputError
from everlearn.world_model import step_kernels
from everlearn.world_model.memory import NoMemory
from everlearn.world_model.scaling import InputScaling
from tests.online.worlds import ACTIONS, OBSERVATIONS, small_model, walk


def logistic(x: np.ndarray) -> np.ndarray:
    out = np.empty_like(x)
    kernels.logistic(x, out)
    return out


@pytest.mark.parametrize(("dtype", "error"), [(np.float32, 4e-7), (np.float64, 1e-13)])
def test_logistic_is_accurate_monotone_and_inside_the_unit_interval(
    dtype: type, error: float
) -> None:
    x = np.linspace(-40, 40, 160_000).astype(dtype)
    y = logistic(x)
    assert np.abs(y - expit(x.astype(np.float64))).max() < error
    assert np.diff(y).min() >= -2 * np.finfo(dtype).eps
    assert y.min() > 0
    assert y.max() < 1
    odd = np.array([np.nan, np.inf, -np.inf, 0] * 4, dtype)
    assert ((logistic(odd) > 0) & (logistic(odd) < 1)).all()


@settings(max_examples=60, deadline=None)
@given(
    inputs=st.integers(1, 9),
    features=st.integers(1, 6),
    bins=st.integers(2, 11),
    grid_dim=st.integers(1, 4),
    scale=st.sampled_from([0.0, 1.0, 1e3, 1e9]),
)
def test_cells_are_distinct_in_range_and_values_sum_to_one_per_grid(
    inputs: int, features: int, bins: int, grid_dim: int, scale: float
) -> None:
    rng = np.random.default_rng(0)
    encoding = LosseEncoding(inputs, features, bins, grid_dim, rng, np.float64)
    x = scale * rng.normal(size=(5, inputs))
    cells, values = encoding(x)
    corners = 2**grid_dim
    assert cells.shape == values.shape == (5, features * corners)
    assert encoding.active == features * corners
    assert encoding.cells == features * bins**grid_dim
    grids = np.repeat(np.arange(features), corners)
    assert (cells // bins**grid_dim == grids).all()
    assert all(len(set(row)) == len(row) for row in cells.tolist())
    assert (values >= 0).all()
    np.testing.assert_allclose(values.reshape(5, features, corners).sum(axis=2), 1, atol=1e-12)


@pytest.mark.parametrize("grid_dim", [1, 2, 3])
def test_encoding_equals_the_plain_transcription(grid_dim: int) -> None:
    model = small_model(grid_dim=grid_dim, precision="float64")
    reference = ReferenceModel(model)
    obs, action = (np.array(part) for part in list(zip(*walk(40), strict=True))[:2])
    cells, values = model.encode(obs, action)
    expected_cells, expected = reference.encode(obs, action, np.zeros((40, 0)))
    np.testing.assert_array_equal(cells, expected_cells)
    np.testing.assert_allclose(values, expected, atol=1e-12)


def test_the_paper_has_24300_cells_and_1200_active() -> None:
    model = OnlineWorldModel(OBSERVATIONS, ACTIONS)
    assert (model.encoding.cells, model.encoding.active) == (24_300, 1_200)
    projection = model.encoding.projection[:, :5]
    assert projection.std() == pytest.approx(5**-0.5, rel=0.05)


def test_bounds_go_to_the_gain() -> None:
    low, high = np.array([-2.0, 0.0, 5.0]), np.array([2.0, 1.0, 5.0])
    scaling = InputScaling(low, high, np.array([3.0, 1.5, 3.0]))
    scaled = np.stack([(x - scaling.centre) * scaling.multiplier for x in (low, high)])
    np.testing.assert_allclose(scaled, [[-3, -1.5, 0], [3, 1.5, 0]])
    assert scaling.frozen


UNBOUNDED = spaces.Box(-np.inf, np.inf, (3,), np.float64)


def test_unbounded_inputs_wait_for_a_warm_up_that_is_announced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = OnlineWorldModel(UNBOUNDED, ACTIONS, features=7, bins=5, warm_up=20, threads=1)
    data = [(1e3 * o, a, 1e3 * n, m) for o, a, n, m in walk(30)]
    np.testing.assert_array_equal(model.predict(data[0][0], data[0][1]), np.float32(data[0][0]))
    for transition in data[:19]:
        model.learn(*transition)
    assert model.warming_up
    assert model.steps == 0
    assert not model.weights.any()
    with caplog.at_level(logging.WARNING):
        model.learn(*data[19])
    assert "fixed by 20 samples" in caplog.text
    assert not model.warming_up
    assert model.steps == 20
    seen = np.array([o for o, _, _, _ in data[:20]])
    scaled = (seen - model.inputs.scaling.centre[:3]) * model.inputs.scaling.multiplier[:3]
    np.testing.assert_allclose(scaled.std(axis=0), 1.5)
    centre = model.inputs.scaling.centre.copy()
    model.learn(*data[20])
    np.testing.assert_array_equal(centre, model.inputs.scaling.centre)
    assert model.steps == 21


def test_a_batch_completes_the_warm_up() -> None:
    model = OnlineWorldModel(UNBOUNDED, ACTIONS, features=7, bins=5, warm_up=20, threads=1)
    data = walk(30)
    model.learn(*data[0])
    obs, action, following, _ = (np.array(part) for part in zip(*data[1:], strict=True))
    model.learn_batch(obs, action, following)
    assert model.steps == 30
    assert np.abs(model.residual()).max() < 1e-4


@pytest.mark.parametrize(
    ("name", "value"), [("features", 0), ("bins", 1), ("grid_dim", 0), ("features", 2.5)]
)
def test_impossible_sizes_are_refused(name: str, value: float) -> None:
    with pytest.raises(InvalidInputError, match=name):
        small_model(**{name: value})


def test_spaces_must_be_flat_boxes() -> None:
    with pytest.raises(InvalidInputError, match="one-dimensional Box"):
        OnlineWorldModel(spaces.Discrete(3), ACTIONS)
    with pytest.raises(InvalidInputError, match="one-dimensional Box"):
        OnlineWorldModel(OBSERVATIONS, spaces.Box(-1, 1, (2, 2)))
    assert NoMemory().inputs == 0


def test_bits_do_not_depend_on_which_kernel_is_compiled_first() -> None:
    """A function without options of its own inherits those of the caller that compiles it."""
    called = [
        kernel
        for module in (kernels, step_kernels, rollout_kernel)
        for kernel in vars(module).values()
        if isinstance(kernel, Dispatcher) and kernel is not kernels.logistic
    ]
    assert len(called) > 12
    assert all("fastmath" in kernel.targetoptions for kernel in called)
