"""Mistakes in densities, distances, bounds and diagnostics: (name, mistake, edits, tests), as in `run.py`."""

VOLUMES = "tests/flows/test_finite_volume.py"
DENSITY_FLOW = "tests/flows/test_density_flow.py"
DENSITIES = "tests/measures/test_densities.py"
LIPSCHITZ = "tests/diagnostics/test_lipschitz.py"
WEAK = "tests/diagnostics/test_weak.py"
CHECK = "tests/theory/test_check.py"
MEANFIELD = "tests/theory/test_meanfield.py"
CONDITIONAL = "tests/metrics/test_conditional.py"
ENTROPIC = "tests/metrics/test_entropic.py"

THEORY = [
    (
        "downwind",
        "fluxes take the cell behind",
        (
            (
                "flows/finite_volume.py",
                "jnp.where(u > 0, from_below, from_above)",
                "jnp.where(u < 0, from_below, from_above)",
            ),
        ),
        (VOLUMES,),
    ),
    (
        "unlimited",
        "slopes are not limited where differences disagree",
        (("flows/finite_volume.py", "agree = behind * ahead > 0", "agree = behind + ahead != 0"),),
        (VOLUMES,),
    ),
    (
        "first_order",
        "no reconstruction: first-order upwind",
        (
            (
                "flows/finite_volume.py",
                "half = limited_slopes(masses, axis) / 2",
                "half = 0 * limited_slopes(masses, axis)",
            ),
        ),
        (VOLUMES,),
    ),
    (
        "long_steps",
        "steps three times as long as positivity allows",
        (("flows/densities.py", "COURANT = 0.45", "COURANT = 1.35"),),
        (DENSITY_FLOW,),
    ),
    (
        "euler_in_time",
        "the second stage of Heun's method is dropped",
        (
            (
                "flows/densities.py",
                "jax.tree.map(lambda a, b: (a + b) / 2, now.y, moved)",
                "jax.tree.map(lambda a, b: b, now.y, now.ahead)",
            ),
        ),
        (DENSITY_FLOW,),
    ),
    (
        "loss_not_counted",
        "mass lost at the lower edge is not counted",
        (("flows/finite_volume.py", "lost = lost + high.sum() - low.sum()", "lost = lost + high.sum()"),),
        (VOLUMES,),
    ),
    (
        "no_more_room",
        "the grid of a density is not extended",
        (("flows/domain.py", "return density.extended(low, high)", "return density"),),
        (DENSITY_FLOW,),
    ),
    (
        "nearest_cell",
        "tokens go to one cell whole",
        (
            (
                "measures/density.py",
                "part = np.clip(place - first, 0, 1)",
                "part = np.round(np.clip(place - first, 0, 1))",
            ),
        ),
        (DENSITIES,),
    ),
    (
        "lipschitz_half",
        "the exponent of L_mu is half as large",
        (("attention/softmax.py", "(1 + reach) * jnp.exp(reach)", "(1 + reach) * jnp.exp(reach / 2)"),),
        (LIPSCHITZ,),
    ),
    (
        "no_hardy",
        "a renormalised mask has no factor",
        (("diagnostics/bounds.py", "return p / (p - 1) if p > 1 else np.inf", "return 1.0"),),
        (LIPSCHITZ,),
    ),
    (
        "hardy_for_sums",
        "a masked integral gets the factor too",
        (
            (
                "diagnostics/bounds.py",
                "AbstractAttention) and (term.prefix or leaf.normalised)",
                "AbstractAttention) and True",
            ),
        ),
        (LIPSCHITZ,),
    ),
    (
        "trace_exponent",
        "the exponent of the trace bound without its factor 2",
        (("diagnostics/bounds.py", "np.exp(2 * float(exponent))", "np.exp(float(exponent))"),),
        (LIPSCHITZ,),
    ),
    (
        "frozen_radius",
        "stability with the radius of the start",
        (("diagnostics/bounds.py", "here = _grown(field, radius, start, t)", "here = radius"),),
        (LIPSCHITZ,),
    ),
    (
        "stein_sign",
        "the sign of the covariance term of a Gaussian's weak form",
        (("diagnostics/weak.py", "(1j * (omega @ u) - np.sum(", "(1j * (omega @ u) + np.sum("),),
        (WEAK,),
    ),
    (
        "weak_across_breaks",
        "one spline across the breaks of piecewise weights",
        (("diagnostics/weak.py", "if times[0] < b < times[-1]", "if times[0] < b < times[0]"),),
        (WEAK,),
    ),
    (
        "reference_counts_double",
        "the error of the reference run is not taken out",
        (("theory/meanfield.py", "(1 + size / many) ** -0.5", "(1 + size / many) ** 0.5"),),
        (MEANFIELD,),
    ),
    (
        "violations_pass",
        "a violated claim is told as holding",
        (("theory/check.py", "bool(self.measured <= self.bound * (1 + self.error))", "True"),),
        (CHECK,),
    ),
]
