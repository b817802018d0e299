"""Mutation check: deliberate mistakes in the library, each of which the suite must catch.

    make mutants                                       all of them
    python tests/mutations/run.py --list
    python tests/mutations/run.py --only mask_strict

A mistake is a replacement of text in a copy of the package; the text must occur exactly once, so that this script fails
when the code moves on. The tests named for a mistake run first, and if they pass, the whole suite. The exit code is
not zero when a mistake survives.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from fast import FAST
from folders import FOLDERS

from theory import THEORY

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "meanformer"
# A copy without a mistake, and the script itself, are no part of what is checked; pictures and pages are far from it.
LEFT_OUT = ["tests/test_package.py", "tests/docs", "tests/plots", "tests/experiments", "tests/test_cli.py"]


class Mutant(NamedTuple):
    """`edits` are (file, text, replacement); `tests` are the most relevant tests."""

    name: str
    mistake: str
    edits: tuple[tuple[str, str, str], ...]
    tests: tuple[str, ...]


FIELDS = "tests/attention/test_golden_fields.py"
IDENTITIES = "tests/attention/test_identities.py"
COMBINATIONS = "tests/attention/test_combinations.py"
CONVENTIONS = "tests/attention/test_conventions.py"
SOLVER = "tests/attention/test_sinkhorn_solver.py"
RUNS = "tests/flows/test_golden_trajectories.py"
FLOW_IDENTITIES = "tests/flows/test_flow_identities.py"
TRAJECTORY = "tests/flows/test_trajectory.py"
STEPS = "tests/flows/test_steps.py"
SPHERE = "tests/flows/test_sphere_flow.py"
OUTCOMES = "tests/flows/test_flow_outcomes.py"
GRADIENTS = "tests/flows/test_flow_gradients.py"
SUMS = "tests/reduce/test_exact_sums.py"
BRANCHES = "tests/reduce/test_exact_branches.py"
CLOUDS = "tests/measures/test_clouds.py"
LAWS = "tests/measures/test_laws.py"
BOUND = "tests/diagnostics/test_support_bound.py"

MUTANTS = [
    # The kernels
    Mutant(
        "transposed",
        "A transposed: queries and keys swapped",
        (
            ("attention/kernel.py", "return _affine(self.Q, self.query_bias, x)", "return _affine(self.K, None, x)"),
            ("attention/kernel.py", "return _affine(self.K, self.key_bias, y)", "return _affine(self.Q, None, y)"),
        ),
        (f"{FIELDS}::test_velocity",),
    ),
    Mutant(
        "half_distance",
        "factor 2 dropped: half the squared distance",
        (("reduce/reducers.py", "return -sum((q[:, None, i]", "return -0.5 * sum((q[:, None, i]"),),
        (f"{FIELDS}::test_velocity[l2]",),
    ),
    Mutant(
        "half_distance_large_k",
        "the same for key dimensions above 16",
        (("reduce/reducers.py", "return -jnp.sum((q.T[:, :, None]", "return -0.5 * jnp.sum((q.T[:, :, None]"),),
        (f"{SUMS}::test_logits_of_any_key_dimension",),
    ),
    Mutant(
        "distance_not_squared",
        "distances are not squared",
        (
            (
                "reduce/reducers.py",
                "return -sum((q[:, None, i] - k[None, :, i]) ** 2 for",
                "return -sum(jnp.abs(q[:, None, i] - k[None, :, i]) for",
            ),
        ),
        (f"{FIELDS}::test_velocity[l2]",),
    ),
    Mutant(
        "tau_on_one_factor",
        "L2: tau divides Q alone",
        (
            ("attention/l2.py", "self.maps.keys(y) / unit", "self.maps.keys(y)"),
            ("attention/l2.py", "self.maps.queries(x) / unit", "self.maps.queries(x) / self.tau"),
        ),
        (f"{FIELDS}::test_velocity[l2]",),
    ),
    Mutant(
        "linear_without_tau",
        "linear attention forgets tau",
        (("attention/linear.py", "self.maps.queries(x) / self.tau, self", "self.maps.queries(x), self"),),
        (f"{FIELDS}::test_velocity[linear]",),
    ),
    Mutant(
        "sigmoid_per_token",
        "sigmoid per token: + log n for - log n",
        (("attention/sigmoid.py", "self.bias - jnp.log(count)", "self.bias + jnp.log(count)"),),
        (f"{CONVENTIONS}::test_sigmoid_per_token_is_the_sum_of_networks",),
    ),
    Mutant(
        "unnormalised_normalised",
        "unnormalised attention without its partition function",
        (("attention/unnormalised.py", "mean * jnp.exp(log_total)[:, None]", "mean"),),
        (f"{FIELDS}::test_velocity[usa]",),
    ),
    Mutant(
        "value_bias_dropped",
        "the value bias dropped",
        (("attention/kernel.py", "return _affine(self.V, self.value_bias, y)", "return _affine(self.V, None, y)"),),
        (f"{COMBINATIONS}::test_biases_are_a_constant_coordinate",),
    ),
    # The measure
    Mutant(
        "log_weights_ignored",
        "weights ignored by the normalised kinds",
        (("reduce/reducers.py", "jnp.log(jnp.where(some, weights, 1))", "jnp.zeros_like(weights)"),),
        (f"{FIELDS}::test_velocity[softmax]",),
    ),
    Mutant(
        "summed_weights_ignored",
        "weights ignored by the kinds that sum",
        (
            (
                "attention/kernel.py",
                "return Tokens(keys, mu.weights, values, mu.positions)",
                "return Tokens(keys, jnp.full_like(mu.weights, 1 / mu.n), values, mu.positions)",
            ),
        ),
        (f"{FIELDS}::test_velocity[sigmoid]",),
    ),
    Mutant(
        "zero_weight_counts",
        "a token of zero weight counts as one of weight one",
        (
            (
                "reduce/reducers.py",
                "jnp.log(jnp.where(some, weights, 1)), -jnp.inf)",
                "jnp.log(jnp.where(some, weights, 1)), 0)",
            ),
        ),
        (f"{COMBINATIONS}::test_zero_weight_acts_on_nobody", f"{IDENTITIES}::test_row_00_field_is_the_dense_one"),
    ),
    Mutant(
        "zero_weight_maximum",
        "hardmax looks at tokens of zero weight",
        (("reduce/reducers.py", "counts = tokens.weights[:, None] > 0", "counts = tokens.weights[:, None] >= 0"),),
        (f"{COMBINATIONS}::test_zero_weight_acts_on_nobody", SUMS),
    ),
    Mutant(
        "ties_not_by_weight",
        "hardmax shares ties equally, not by weight",
        (
            (
                "reduce/reducers.py",
                "logits == new_top[None, :], tokens.weights[:, None], 0)",
                "logits == new_top[None, :], jnp.ones_like(tokens.weights)[:, None], 0)",
            ),
        ),
        (f"{CONVENTIONS}::test_hardmax_shares_ties_by_weight",),
    ),
    Mutant(
        "maximum_not_rescaled",
        "blocked average: what was summed is not rescaled to the new maximum",
        (("reduce/reducers.py", "kept = jnp.exp(top - shift)", "kept = jnp.ones_like(top)"),),
        (f"{SUMS}::test_blocks_equal_dense",),
    ),
    Mutant(
        "padding_counts",
        "tokens that fill the last block count",
        (
            (
                "reduce/exact.py",
                "_blocks(tokens.weights, size, reducer.empty_weight)",
                "_blocks(tokens.weights, size)",
            ),
        ),
        (f"{SUMS}::test_blocks_equal_dense",),
    ),
    Mutant(
        "resample_unweighted",
        "resampling ignores the weights",
        (("measures/cloud.py", "(n,), p=self.weights)", "(n,))"),),
        (f"{CLOUDS}::test_resample",),
    ),
    Mutant(
        "ball_covariance",
        "covariance of the ball: R^2/d for R^2/(d+2)",
        (("measures/laws.py", "self.radius**2 / (self.d + 2)", "self.radius**2 / self.d"),),
        (LAWS,),
    ),
    # Masks
    Mutant(
        "bound_beyond_its_limit",
        "blocked average: the bound is used although terms that matter underflow",
        (("reduce/bounds.py", "- math.log(n)", "- math.log(n) + 9e9"),),
        (f"{BRANCHES}::test_both_branches_on_both_sides_of_the_limit",),
    ),
    Mutant(
        "bound_without_its_middle",
        "blocked average: the middle of the keys is not added back to the log-sum",
        (("reduce/bounds.py", "queries @ middle + s, 2 *", "s, 2 *"),),
        (f"{BRANCHES}::test_both_branches_on_both_sides_of_the_limit",),
    ),
    Mutant(
        "middle_without_derivative",
        "the middle of the keys is added back to the log-sum without the derivative in the queries",
        (("reduce/bounds.py", "queries @ middle + s, 2 *", "jax.lax.stop_gradient(queries @ middle) + s, 2 *"),),
        (f"{BRANCHES}::test_derivatives_of_both_branches",),
    ),
    Mutant(
        "nothing_skipped",
        "blocks are folded that are not kept, or that no query sees",
        (("reduce/exact.py", "if matters is None else", "if True else"),),
        (f"{BRANCHES}::test_blocks_that_are_not_kept",),
    ),
    Mutant(
        "skip_by_the_last_token",
        "a block is skipped unless all of its tokens are seen",
        (("reduce/exact.py", "places.min(axis=1)[None, :]", "places.max(axis=1)[None, :]"),),
        (f"{BRANCHES}::test_blocks_of_the_future_are_skipped", SUMS),
    ),
    Mutant(
        "mask_strict",
        "mask < for <=: a token does not see itself",
        (("reduce/exact.py", "tokens.positions[:, None] <= s[None, :]", "tokens.positions[:, None] < s[None, :]"),),
        (f"{FIELDS}::test_causal",),
    ),
    Mutant(
        "sinkhorn_mask_strict",
        "the same in masked Sinkhorn",
        (("attention/sinkhorn.py", "positions <= position", "positions < position"),),
        (f"{COMBINATIONS}::test_causal_sinkhorn_is_sinkhorn_on_what_is_seen", f"{FIELDS}::test_causal"),
    ),
    Mutant(
        "sinkhorn_prefix_not_renormalised",
        "masked Sinkhorn: the guess of one prefix is kept as the solution of the next",
        (("attention/sinkhorn.py", "mixed = self._mix_with(seen, solution.g,", "mixed = self._mix_with(seen, guess,"),),
        (f"{FIELDS}::test_causal",),
    ),
    Mutant(
        "prefix_ignored",
        "Causal(prefix=True) ignored",
        (
            (
                "attention/kernel.py",
                "if s is None or not view.prefix:",
                "if s is None or view.prefix or not view.prefix:",
            ),
        ),
        (f"{COMBINATIONS}::test_prefix_option",),
    ),
    Mutant(
        "prefix_mass_strict",
        "the mass seen leaves out the token itself",
        (("attention/kernel.py", 's, side="right")]', 's, side="left")]'),),
        (f"{COMBINATIONS}::test_prefix_option",),
    ),
    # Sinkhorn
    Mutant(
        "sinkhorn_column_update",
        "Sinkhorn stopped on the column update: rows are no probabilities",
        (
            (
                "attention/sinkhorn.py",
                "            return self._mix_with(mu, self.potentials(mu, sums=view.sums.for_potentials).g, x, "
                "values, view.sums)\n",
                "            solution, problem = self.potentials(mu), self._problem(mu, EXACT)\n"
                "            g = problem.sweep(solution.g)\n"
                "            mixed = self._mix_with(mu, g, x, values, EXACT)\n"
                "            if x.shape[0] != mu.n:\n"
                "                return mixed\n"
                "            return mixed * jnp.exp(solution.f - problem.rows(g)[1])[:, None]\n",
            ),
        ),
        (f"{SOLVER}::test_early_stop_is_reported_and_rows_are_probabilities", IDENTITIES),
    ),
    Mutant(
        "sinkhorn_eps",
        "Sinkhorn: both factors divided by eps, not by its root",
        (("attention/sinkhorn.py", "unit = jnp.sqrt(self.eps)", "unit = self.eps"),),
        (f"{FIELDS}::test_velocity[sinkhorn_dot]",),
    ),
    Mutant(
        "sinkhorn_kernels_swapped",
        "Sinkhorn: the distance kernel has the logits of the dot kernel",
        (("attention/sinkhorn.py", 'return dot if self.kernel == "dot" else minus_squared_distance', "return dot"),),
        (f"{FIELDS}::test_velocity[sinkhorn_l2]",),
    ),
    Mutant(
        "sinkhorn_matrix",
        "effective matrix of the distance kernel without its 2",
        (("attention/sinkhorn.py", '(1 if self.kernel == "dot" else 2) * self.A', "self.A"),),
        (f"{SOLVER}::test_effective_matrix",),
    ),
    Mutant(
        "implicit_derivative",
        "the derivative of the potentials dropped",
        (
            (
                "attention/potentials.py",
                "return (g, report), (g_dot, no_tangents)",
                "return (g, report), (0 * g_dot, no_tangents)",
            ),
        ),
        (f"{SOLVER}::test_derivative_both_modes",),
    ),
    Mutant(
        "sinkhorn_never_stalls",
        "a Sinkhorn problem that was not solved counts as solved",
        (
            (
                "attention/potentials.py",
                "return Potentials(f, g, *report)",
                "return Potentials(f, g, *report[:-1], jnp.ones_like(report[-1]))",
            ),
        ),
        (f"{SOLVER}::test_early_stop_is_reported_and_rows_are_probabilities", OUTCOMES),
    ),
    # Combinations
    Mutant(
        "output_transposed",
        "W transposed",
        (
            (
                "attention/heads.py",
                "return velocity if W is None else velocity @ W.T",
                "return velocity if W is None else velocity @ W.reshape(W.shape[::-1])",
            ),
        ),
        (f"{FIELDS}::test_multihead",),
    ),
    Mutant(
        "network_heads_by_rows",
        "the output matrix of a network cut by rows",
        (("attention/heads.py", "W=[W.T for W in cut(O.T)]", "W=[W.T for W in cut(O)]"),),
        (f"{COMBINATIONS}::test_heads_of_a_network",),
    ),
    Mutant(
        "norm_of_query_only",
        "pre-norm: the context is not normalised",
        (
            (
                "attention/norm.py",
                "return self.field.evaluate(mu.with_points(self.norm(mu.points)), self.norm(x), t, view)",
                "return self.field.evaluate(mu, self.norm(x), t, view)",
            ),
        ),
        (f"{COMBINATIONS}::test_pre_and_post_norm",),
    ),
    Mutant(
        "break_before",
        "a break belongs to the piece before it",
        (("attention/schedule.py", 't, side="right")\n\n    def evaluate', 't, side="left")\n\n    def evaluate'),),
        (f"{COMBINATIONS}::test_piecewise",),
    ),
    Mutant(
        "bound_missing_head",
        "the support bound forgets all heads but one",
        (
            (
                "diagnostics/bounds.py",
                "for term in field.terms(t):\n        if not term.leaf.bounded",
                "for term in field.terms(t)[:1]:\n        if not term.leaf.bounded",
            ),
        ),
        (f"{BOUND}::test_several_heads_add_up",),
    ),
    # Flows
    Mutant(
        "frame_without_drift",
        "rescaled frame without - Vz",
        (("flows/frames.py", "terms[0].view(view)) - y @ self.V.T", "terms[0].view(view))"),),
        (f"{RUNS}::test_golden_rescaled_and_row_27_hull", FLOW_IDENTITIES),
    ),
    Mutant(
        "moving_frame_inverse",
        "moving frame: the inverse propagator moves by - V Phi^-1",
        (("flows/frames.py", "-back @ V", "-V @ back"),),
        (f"{FLOW_IDENTITIES}::test_row_26_rescaled_frame", TRAJECTORY),
    ),
    Mutant(
        "no_retraction",
        "sphere: no way back after a step",
        (
            (
                "spaces.py",
                "return self.radius.astype(x.dtype) * x / jnp.linalg.norm(x, axis=-1, keepdims=True)",
                "return x",
            ),
        ),
        (SPHERE,),
    ),
    Mutant(
        "no_retraction_of_steps",
        "sphere: states are brought back when saved, not after a step",
        (("flows/solvers.py", "return self.retract(y1), error", "return y1, error"),),
        (f"{STEPS}::test_euler_steps_on_the_sphere_are_layers",),
    ),
    Mutant(
        "no_projection",
        "sphere: velocities are not tangent",
        (("spaces.py", "return v - x * ((x * v).sum", "return v - 0 * x * ((x * v).sum"),),
        (SPHERE,),
    ),
    Mutant(
        "layers_step",
        "layers of half the step",
        (("flows/layers.py", "a + step * v, y, here", "a + 0.5 * step * v, y, here"),),
        (f"{RUNS}::test_golden_layers",),
    ),
    Mutant(
        "layers_time",
        "layers read a schedule one layer late",
        (("flows/layers.py", "starts = times[:-1].reshape(-1, period)", "starts = times[1:].reshape(-1, period)"),),
        (f"{TRAJECTORY}::test_layers_use_a_schedule_at_their_own_times",),
    ),
    Mutant(
        "layers_order",
        "layers in the reverse order",
        (
            (
                "flows/layers.py",
                "tuple(stack(fields[place::period]) for",
                "tuple(stack(fields[place::period][::-1]) for",
            ),
        ),
        (f"{TRAJECTORY}::test_layers_use_a_schedule_at_their_own_times", f"{RUNS}::test_golden_layers"),
    ),
    Mutant(
        "across_breaks",
        "a flow does not restart at the breaks of a piecewise field",
        (("flows/setup.py", "    if not breaks:\n", "    if breaks or not breaks:\n"),),
        (f"{STEPS}::test_constant_steps_end_at_breaks",),
    ),
    Mutant(
        "interpolation_linear",
        "at(t) without the slopes",
        (("flows/system.py", "value + h * ((u**3", "value + 0 * h * ((u**3"),),
        (f"{TRAJECTORY}::test_at_is_exact_at_save_times_and_of_fourth_order_between",),
    ),
]


MUTANTS += [Mutant(*mistake) for mistake in (*THEORY, *FAST, *FOLDERS)]


def mutated(mutant: Mutant | None, folder: Path) -> None:
    """A copy of the package in `folder`, with the mistake."""
    shutil.copytree(PACKAGE, folder / "meanformer", ignore=shutil.ignore_patterns("__pycache__"))
    for file, text, replacement in mutant.edits if mutant else ():
        path = folder / "meanformer" / file
        source = path.read_text()
        if source.count(text) != 1:
            sys.exit(f"mutant {mutant.name}: its text occurs {source.count(text)} times in {file}, not once:\n{text}")
        path.write_text(source.replace(text, replacement))


def suite(folder: Path, tests: list[str], workers: int) -> tuple[int, str]:
    """The exit code of pytest on the copy, and the first test that fails."""
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    where = "import meanformer; print(meanformer.__file__)"
    used = subprocess.run([sys.executable, "-c", where], env=environment, cwd=ROOT, capture_output=True, text=True)
    if not used.stdout.startswith(str(folder)):
        return 3, f"the copy is not what is imported: {used.stdout or used.stderr}"
    command = [sys.executable, "-m", "pytest", "-x", "-n", str(workers), "-p", "no:cacheprovider", "--tb=no", *tests]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    failed = re.search(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return done.returncode, failed.group(1) if failed else done.stdout[-500:] + done.stderr[-500:]


def whole_suite() -> list[str]:
    """All tests but those that cannot know."""
    return ["tests", *(f"--ignore={place}" for place in LEFT_OUT)]


def verdict(mutant: Mutant) -> tuple[Mutant, str | None, float]:
    """The test that catches the mistake, or None."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        mutated(mutant, Path(name))
        code, test = suite(Path(name), list(mutant.tests), 0)
        if code == 0:
            code, test = suite(Path(name), whole_suite(), 0)
    seconds = time.monotonic() - start
    if code not in (0, 1):
        test = f"(pytest ended with code {code}) {test}"
    return mutant, test if code else None, seconds


def main() -> int:
    """Run the check."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these mutants")
    parser.add_argument("--list", action="store_true", help="name the mutants and end")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    options = parser.parse_args()
    names = [mutant.name for mutant in MUTANTS]
    if options.list:
        print("\n".join(f"{mutant.name:<34} {mutant.mistake}" for mutant in MUTANTS))
        return 0
    if unknown := set(options.only or ()) - set(names):
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    chosen = [mutant for mutant in MUTANTS if not options.only or mutant.name in options.only]

    for mutant in chosen:  # all texts are looked up before any waiting
        with tempfile.TemporaryDirectory() as name:
            mutated(mutant, Path(name))

    survivors, catchers = 0, set()
    with ThreadPoolExecutor(options.jobs) as pool:
        for done in as_completed([pool.submit(verdict, mutant) for mutant in chosen]):
            mutant, test, seconds = done.result()
            caught = test is not None and test.startswith("tests/")
            survivors += not caught
            catchers |= {test} if caught else set()
            print(f"{'caught  ' if caught else 'SURVIVES'} {mutant.name:<34} {seconds:4.0f} s  {mutant.mistake}")
            print(f"{'':9}{'by ' if caught else ''}{test or 'all tests pass'}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} mistakes caught")

    # A test that fails anyway catches nothing: all of them must pass without a mistake.
    with tempfile.TemporaryDirectory() as name:
        mutated(None, Path(name))
        code, test = suite(Path(name), sorted(catchers), options.jobs) if catchers else (0, "")
    print(f"without a mistake {'these tests pass' if code == 0 else f'this test fails too: {test}'}")
    return int(survivors > 0 or code != 0)


if __name__ == "__main__":
    sys.exit(main())
