"""Bounds, weak forms and other numbers of a state or a run."""

from ..mutators import mutant, replace

LIPSCHITZ = "tests/diagnostics/test_lipschitz.py"
WEAK = "tests/diagnostics/test_weak.py"

MUTANTS = [
    mutant(
        "log_defect_without_series",
        "the energy of small variances under L2 is what cancellation leaves",
        ("diagnostics/defect.py:log_defect", replace("s < 0.5", "s < 0")),
        tests="tests/diagnostics/test_gaussian_energies.py::test_l2_energy_of_any_size",
    ),
    mutant(
        "bound_missing_head",
        "the support bound forgets all heads but one",
        ("diagnostics/bounds.py:growth", replace("field.terms(_a)", "field.terms(_a)[:1]")),
        tests="tests/diagnostics/test_support_bound.py::test_several_heads_add_up",
    ),
    mutant(
        "bound_of_all_pieces",
        "the bound at a time counts the pieces after it",
        ("diagnostics/bounds.py:_grown_radii.at", replace("jnp.clip(t, start, end)", "end")),
        ("diagnostics/bounds.py:_grown_radii.at", replace("jnp.where(t > start, after, grown)", "after")),
        tests="tests/diagnostics/test_support_bound.py::test_bounds_at_many_times",
    ),
    mutant(
        "no_hardy",
        "a renormalised mask has no factor",
        ("diagnostics/bounds.py:hardy_factor", replace("_a / (_a - 1)", "1.0")),
        tests=f"{LIPSCHITZ}::test_masked_stability_has_the_factor_of_hardy",
    ),
    mutant(
        "hardy_for_sums",
        "a masked integral gets the factor too",
        ("diagnostics/bounds.py:hardy_factor", replace("term.prefix or _a", "True")),
        tests=f"{LIPSCHITZ}::test_masked_stability_has_the_factor_of_hardy",
    ),
    mutant(
        "trace_exponent",
        "the exponent of the trace bound without its factor 2",
        ("diagnostics/bounds.py:trace_bound", replace("grown(_a, 2 * _b)", "grown(_a, _b)")),
        tests=f"{LIPSCHITZ}::test_euler_error_and_trace",
    ),
    mutant(
        "frozen_radius",
        "stability with the radius of the start",
        ("diagnostics/bounds.py:_exponent.rate", replace("_grown(*_a)", "radius")),
        tests=f"{LIPSCHITZ}::test_time_dependent_and_piecewise_constants",
    ),
    mutant(
        "stein_sign",
        "the sign of the covariance term of a Gaussian's weak form",
        (
            "diagnostics/weak.py:_moment",
            replace("1j * _a - np.sum(_b, **_)", "1j * _a + np.sum(_b, **_)", near="value GL"),
        ),
        tests=f"{WEAK}::test_gaussians",
    ),
    mutant(
        "weak_across_breaks",
        "one spline across the breaks of piecewise weights",
        ("diagnostics/weak.py:_ends", replace("_a < b < _c", "False")),
        tests=f"{WEAK}::test_weights_in_pieces",
    ),
]
