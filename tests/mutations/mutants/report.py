"""Mistakes in reports and in the command line: what others wrote gets through."""

from ..mutators import mutant, replace, returns

LIVE = "tests/report/test_live_page.py"
PAGE = "tests/report/test_page.py"
PICTURES = "tests/report/test_pictures.py"
ODD = "tests/report/test_odd_contents.py"
STREAMS = "tests/test_cli_streams.py"

MUTANTS = [
    mutant(
        "report_unescaped",
        "words of others are markup",
        ("report/formula.py:escape", returns("text.translate(_TURNS)")),
        tests=("tests/report/test_formula.py", PAGE),
    ),
    mutant(
        "report_policy_open",
        "the policy of a page allows every script in it",
        ("report/page.py:policy", returns("_POLICY.format(scripts=\"'unsafe-inline'\")")),
        tests=f"{LIVE}::test_scripts_are_named_by_their_hashes",
    ),
    mutant(
        "report_pictures_elsewhere",
        "pictures are read wherever a name leads",
        ("report/pictures.py:Pictures._read", replace("is_inside(name)", "True")),
        tests=f"{PICTURES}::test_nothing_else_is",
    ),
    mutant(
        "report_pictures_devices",
        "whatever is read ends",
        ("store/disk.py:_check_file", replace("stat.S_ISREG(_a)", "True")),
        tests=f"{PICTURES}::test_nothing_else_is",
    ),
    mutant(
        "contents_unchecked",
        "run.json and results.json are taken as they are",
        ("experiments/contents.py:_check", replace("fault_in(content, shape)", "None")),
        tests=f"{ODD}::test_the_words",
    ),
    mutant(
        "terminal_obeys",
        "codes for the terminal are printed",
        ("_words.py:printable", returns("str(words)")),
        tests=f"{STREAMS}::test_what_a_terminal_would_obey",
    ),
]
