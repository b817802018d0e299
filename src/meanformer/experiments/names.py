"""The words that an experiment file may use for numbers and figures. Nothing here imports JAX."""

NUMBERS: dict[str, str] = {
    "outcome": "how the computing ended",
    "time": "the time at which it ended",
    "radius": "largest distance of a token from 0 at the end",
    "bound": "the bound of the theory on that radius",
    "mean_norm": "norm of the mean at the end",
    "trace": "trace of the covariance at the end",
    "clusters": "number of clusters at the end in the frame of the run, at 1 % of the diameter at the start or end",
    "effective_rank": "exponential of the entropy of the covariance's spectrum at the end",
    "participation_ratio": "(tr Sigma)^2 / tr Sigma^2 at the end",
    "stable_rank": "tr Sigma / |Sigma| at the end",
    "average_cosine": "average cosine between two tokens at the end",
    "isoscore": "isotropy of the covariance at the end, 0 to 1",
    "fate": "what becomes of a Gaussian",
    "fate_time": "blow-up time of a Gaussian, or the time at which its fate was known",
    "rank": "rank of the limit covariance of a Gaussian that converges",
    "growth": "rate of log tr Sigma at the end of a Gaussian run",
    "mass_lost": "mass of a density that left its grid",
    "steps": "steps taken",
    "rejected": "steps tried and rejected",
    "seconds": "wall time, with compiling",
}

FIGURES: dict[str, str] = {
    "paths": "tokens, ellipses or density along the run: run.plot()",
    "spectrum": "eigenvalues of the covariance over time",
    "ranks": "effective rank, participation ratio and stable rank over time",
    "clusters": "number of clusters over time",
    "radius": "radius over time, with the bound of the theory",
    "claims": "the claims of the theory, with their slack",
    "attention": "the attention matrix at the start and at the end",
    "cone": "a 2 x 2 covariance in the cone of positive matrices",
    "disc": "a 2 x 2 covariance divided by its trace, in the disc",
    "panels": "all cases side by side",
    "heatmap": "a number of a sweep over two of its axes",
    "curves": "a number of a sweep over one axis",
}
