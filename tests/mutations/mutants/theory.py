"""Claims, checks and the mean-field limit."""

from ..mutators import mutant, replace

MUTANTS = [
    mutant(
        "reference_counts_double",
        "the error of the reference run is not taken out",
        ("theory/meanfield.py:mean_field_rate", replace("-0.5", "0.5")),
        tests="tests/theory/test_meanfield.py::test_reference_by_a_large_run",
    ),
    mutant(
        "violations_pass",
        "a violated claim is told as holding",
        ("theory/check.py:Claim.holds", replace("bool(_)", "True")),
        tests="tests/theory/test_check.py::test_the_table",
    ),
]
