"""The dynamics of deep transformers, as a flow of measures.

The state is a measure, attention turns it into a vector field, a flow moves it:

    import meanformer as mf

    run = mf.flow(mf.Softmax(Q, K, V), tokens, t1=4.0)

Importing this module imports no JAX: each public name loads its part when first used.
Numbers are float64 unless `MEANFORMER_X64=0` is in the environment.
"""

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

from meanformer import _guard

_guard.check_installed_jax()
_guard.enable_x64()

if TYPE_CHECKING:
    from meanformer import models as models
    from meanformer._checks import InputError as InputError
    from meanformer.attention.affine import Affine as Affine
    from meanformer.attention.apply import push_attention as push_attention
    from meanformer.attention.apply import velocity as velocity
    from meanformer.attention.base import AbstractField as AbstractField
    from meanformer.attention.causal import Causal as Causal
    from meanformer.attention.closure import NotGaussianPreserving as NotGaussianPreserving
    from meanformer.attention.hardmax import Hardmax as Hardmax
    from meanformer.attention.heads import MultiHead as MultiHead
    from meanformer.attention.kernel import AbstractAttention as AbstractAttention
    from meanformer.attention.kernel import Projections as Projections
    from meanformer.attention.l2 import L2 as L2
    from meanformer.attention.linear import Linear as Linear
    from meanformer.attention.lipschitz import Lipschitz as Lipschitz
    from meanformer.attention.norm import LayerNorm as LayerNorm
    from meanformer.attention.norm import PostNorm as PostNorm
    from meanformer.attention.norm import PreNorm as PreNorm
    from meanformer.attention.norm import RMSNorm as RMSNorm
    from meanformer.attention.perceptron import Perceptron as Perceptron
    from meanformer.attention.planned import Plan as Plan
    from meanformer.attention.planned import plan as plan
    from meanformer.attention.schedule import Piecewise as Piecewise
    from meanformer.attention.schedule import Scheduled as Scheduled
    from meanformer.attention.sigmoid import Sigmoid as Sigmoid
    from meanformer.attention.sinkhorn import Sinkhorn as Sinkhorn
    from meanformer.attention.softmax import Softmax as Softmax
    from meanformer.attention.unnormalised import Unnormalised as Unnormalised
    from meanformer.attention.view import View as View
    from meanformer.diagnostics.attention import AttentionPath as AttentionPath
    from meanformer.diagnostics.attention import AttentionSummary as AttentionSummary
    from meanformer.diagnostics.attention import attention_along as attention_along
    from meanformer.diagnostics.attention import attention_summary as attention_summary
    from meanformer.diagnostics.bounds import Stability as Stability
    from meanformer.diagnostics.bounds import euler_bound as euler_bound
    from meanformer.diagnostics.bounds import lipschitz_constants as lipschitz_constants
    from meanformer.diagnostics.bounds import stability_bound as stability_bound
    from meanformer.diagnostics.bounds import support_bound as support_bound
    from meanformer.diagnostics.bounds import trace_bound as trace_bound
    from meanformer.diagnostics.clusters import clusters as clusters
    from meanformer.diagnostics.criteria import boolean_attention as boolean_attention
    from meanformer.diagnostics.criteria import collapse_limit as collapse_limit
    from meanformer.diagnostics.criteria import hyperplane_limit as hyperplane_limit
    from meanformer.diagnostics.criteria import paranormal_limit as paranormal_limit
    from meanformer.diagnostics.criteria import polytope_limit as polytope_limit
    from meanformer.diagnostics.energy import EnergyPath as EnergyPath
    from meanformer.diagnostics.energy import e0_energy as e0_energy
    from meanformer.diagnostics.energy import energy_along as energy_along
    from meanformer.diagnostics.energy import gaussian_energy as gaussian_energy
    from meanformer.diagnostics.energy import l2_energy as l2_energy
    from meanformer.diagnostics.energy import ot_energy as ot_energy
    from meanformer.diagnostics.energy import softmax_energy as softmax_energy
    from meanformer.diagnostics.energy import sphere_energy as sphere_energy
    from meanformer.diagnostics.gap import GaussianGap as GaussianGap
    from meanformer.diagnostics.gap import SlowMeanFieldWarning as SlowMeanFieldWarning
    from meanformer.diagnostics.gap import gaussian_gap as gaussian_gap
    from meanformer.diagnostics.history import ClusterHistory as ClusterHistory
    from meanformer.diagnostics.history import clusters_along as clusters_along
    from meanformer.diagnostics.spectra import average_cosine as average_cosine
    from meanformer.diagnostics.spectra import effective_rank as effective_rank
    from meanformer.diagnostics.spectra import isoscore as isoscore
    from meanformer.diagnostics.spectra import participation_ratio as participation_ratio
    from meanformer.diagnostics.spectra import stable_rank as stable_rank
    from meanformer.diagnostics.verdict import Verdict as Verdict
    from meanformer.diagnostics.weak import WeakResidual as WeakResidual
    from meanformer.diagnostics.weak import weak_residual as weak_residual
    from meanformer.fate import Fate as Fate
    from meanformer.fate import Fates as Fates
    from meanformer.flows.densities import MassLostWarning as MassLostWarning
    from meanformer.flows.domain import LargeGridWarning as LargeGridWarning
    from meanformer.flows.flow import flow as flow
    from meanformer.flows.frames import Rescaled as Rescaled
    from meanformer.flows.layers import layers as layers
    from meanformer.flows.save import linear_times as linear_times
    from meanformer.flows.save import log_times as log_times
    from meanformer.flows.stop import AbstractStop as AbstractStop
    from meanformer.flows.stop import RadiusAbove as RadiusAbove
    from meanformer.flows.stop import Stationary as Stationary
    from meanformer.flows.stop import WallClock as WallClock
    from meanformer.flows.trajectory import Trajectory as Trajectory
    from meanformer.gaussian.bounds import blowup_bounds as blowup_bounds
    from meanformer.gaussian.bounds import conserved as conserved
    from meanformer.gaussian.bounds import frozen_covariance as frozen_covariance
    from meanformer.gaussian.bounds import rank_bound as rank_bound
    from meanformer.gaussian.bounds import stationarity as stationarity
    from meanformer.gaussian.closed import l2_blowup_time as l2_blowup_time
    from meanformer.gaussian.closed import matched_flow as matched_flow
    from meanformer.gaussian.closed import one_dimensional as one_dimensional
    from meanformer.gaussian.closed import softmax_blowup_time as softmax_blowup_time
    from meanformer.gaussian.closed import softmax_identity_flow as softmax_identity_flow
    from meanformer.gaussian.fates import fates as fates
    from meanformer.measures.cloud import PointCloud as PointCloud
    from meanformer.measures.cloud import stack_clouds as stack_clouds
    from meanformer.measures.convert import to_cloud as to_cloud
    from meanformer.measures.convert import to_density as to_density
    from meanformer.measures.convert import to_gaussian as to_gaussian
    from meanformer.measures.density import Density as Density
    from meanformer.measures.gaussian import Gaussian as Gaussian
    from meanformer.measures.gaussian import gaussian_mixture as gaussian_mixture
    from meanformer.measures.labelled import Labelled as Labelled
    from meanformer.measures.labelled import image_patches as image_patches
    from meanformer.measures.labelled import labelled_tokens as labelled_tokens
    from meanformer.measures.laws import empirical as empirical
    from meanformer.measures.laws import uniform_ball as uniform_ball
    from meanformer.measures.laws import uniform_cube as uniform_cube
    from meanformer.measures.laws import uniform_sphere as uniform_sphere
    from meanformer.metrics.bures import bures_geodesic as bures_geodesic
    from meanformer.metrics.bures import bures_wasserstein as bures_wasserstein
    from meanformer.metrics.conditional import conditional_wasserstein as conditional_wasserstein
    from meanformer.metrics.entropic import EntropicDistance as EntropicDistance
    from meanformer.metrics.entropic import NotConvergedWarning as NotConvergedWarning
    from meanformer.metrics.entropic import entropic_cost as entropic_cost
    from meanformer.metrics.entropic import sinkhorn_divergence as sinkhorn_divergence
    from meanformer.metrics.wasserstein import sliced_wasserstein as sliced_wasserstein
    from meanformer.metrics.wasserstein import wasserstein as wasserstein
    from meanformer.outcome import Ending as Ending
    from meanformer.outcome import Outcome as Outcome
    from meanformer.plots.bounds import plot_claims as plot_claims
    from meanformer.plots.bounds import plot_slack as plot_slack
    from meanformer.plots.clusters import plot_clusters as plot_clusters
    from meanformer.plots.covariances import plot_cone as plot_cone
    from meanformer.plots.covariances import plot_disc as plot_disc
    from meanformer.plots.covariances import plot_ranks as plot_ranks
    from meanformer.plots.densities import plot_density as plot_density
    from meanformer.plots.gaussians import plot_spectrum as plot_spectrum
    from meanformer.spaces import AbstractSpace as AbstractSpace
    from meanformer.spaces import Euclidean as Euclidean
    from meanformer.spaces import Sphere as Sphere
    from meanformer.store.errors import FolderError as FolderError
    from meanformer.store.journal import Journal as Journal
    from meanformer.store.load import load as load
    from meanformer.store.table import load_table as load_table
    from meanformer.theory.check import Checked as Checked
    from meanformer.theory.check import Claim as Claim
    from meanformer.theory.check import check as check
    from meanformer.theory.meanfield import MeanFieldRate as MeanFieldRate
    from meanformer.theory.meanfield import mean_field_rate as mean_field_rate

    __version__: str

# Public name -> its module. A new name goes here and in the block above; a test compares the two.
_EXPORTS: dict[str, str] = {
    "PointCloud": "meanformer.measures.cloud",
    "stack_clouds": "meanformer.measures.cloud",
    "Gaussian": "meanformer.measures.gaussian",
    "Density": "meanformer.measures.density",
    "to_cloud": "meanformer.measures.convert",
    "to_gaussian": "meanformer.measures.convert",
    "to_density": "meanformer.measures.convert",
    "uniform_ball": "meanformer.measures.laws",
    "uniform_cube": "meanformer.measures.laws",
    "uniform_sphere": "meanformer.measures.laws",
    "gaussian_mixture": "meanformer.measures.gaussian",
    "Labelled": "meanformer.measures.labelled",
    "image_patches": "meanformer.measures.labelled",
    "labelled_tokens": "meanformer.measures.labelled",
    "empirical": "meanformer.measures.laws",
    "AbstractField": "meanformer.attention.base",
    "AbstractAttention": "meanformer.attention.kernel",
    "View": "meanformer.attention.view",
    "Projections": "meanformer.attention.kernel",
    "Softmax": "meanformer.attention.softmax",
    "L2": "meanformer.attention.l2",
    "Sinkhorn": "meanformer.attention.sinkhorn",
    "Sigmoid": "meanformer.attention.sigmoid",
    "Linear": "meanformer.attention.linear",
    "Unnormalised": "meanformer.attention.unnormalised",
    "Hardmax": "meanformer.attention.hardmax",
    "MultiHead": "meanformer.attention.heads",
    "Causal": "meanformer.attention.causal",
    "Affine": "meanformer.attention.affine",
    "Perceptron": "meanformer.attention.perceptron",
    "PreNorm": "meanformer.attention.norm",
    "PostNorm": "meanformer.attention.norm",
    "LayerNorm": "meanformer.attention.norm",
    "RMSNorm": "meanformer.attention.norm",
    "Scheduled": "meanformer.attention.schedule",
    "Piecewise": "meanformer.attention.schedule",
    "velocity": "meanformer.attention.apply",
    "plan": "meanformer.attention.planned",
    "Plan": "meanformer.attention.planned",
    "push_attention": "meanformer.attention.apply",
    "Euclidean": "meanformer.spaces",
    "Sphere": "meanformer.spaces",
    "AbstractSpace": "meanformer.spaces",
    "Outcome": "meanformer.outcome",
    "Ending": "meanformer.outcome",
    "InputError": "meanformer._checks",
    "flow": "meanformer.flows.flow",
    "MassLostWarning": "meanformer.flows.densities",
    "LargeGridWarning": "meanformer.flows.domain",
    "layers": "meanformer.flows.layers",
    "Rescaled": "meanformer.flows.frames",
    "linear_times": "meanformer.flows.save",
    "log_times": "meanformer.flows.save",
    "Stationary": "meanformer.flows.stop",
    "RadiusAbove": "meanformer.flows.stop",
    "WallClock": "meanformer.flows.stop",
    "AbstractStop": "meanformer.flows.stop",
    "Trajectory": "meanformer.flows.trajectory",
    "Journal": "meanformer.store.journal",
    "load": "meanformer.store.load",
    "load_table": "meanformer.store.table",
    "FolderError": "meanformer.store.errors",
    "clusters": "meanformer.diagnostics.clusters",
    "effective_rank": "meanformer.diagnostics.spectra",
    "participation_ratio": "meanformer.diagnostics.spectra",
    "stable_rank": "meanformer.diagnostics.spectra",
    "support_bound": "meanformer.diagnostics.bounds",
    "NotGaussianPreserving": "meanformer.attention.closure",
    "Fate": "meanformer.fate",
    "Fates": "meanformer.fate",
    "fates": "meanformer.gaussian.fates",
    "softmax_identity_flow": "meanformer.gaussian.closed",
    "softmax_blowup_time": "meanformer.gaussian.closed",
    "matched_flow": "meanformer.gaussian.closed",
    "one_dimensional": "meanformer.gaussian.closed",
    "l2_blowup_time": "meanformer.gaussian.closed",
    "blowup_bounds": "meanformer.gaussian.bounds",
    "conserved": "meanformer.gaussian.bounds",
    "frozen_covariance": "meanformer.gaussian.bounds",
    "rank_bound": "meanformer.gaussian.bounds",
    "stationarity": "meanformer.gaussian.bounds",
    "bures_wasserstein": "meanformer.metrics.bures",
    "bures_geodesic": "meanformer.metrics.bures",
    "gaussian_energy": "meanformer.diagnostics.energy",
    "energy_along": "meanformer.diagnostics.energy",
    "EnergyPath": "meanformer.diagnostics.energy",
    "ot_energy": "meanformer.diagnostics.energy",
    "softmax_energy": "meanformer.diagnostics.energy",
    "l2_energy": "meanformer.diagnostics.energy",
    "e0_energy": "meanformer.diagnostics.energy",
    "gaussian_gap": "meanformer.diagnostics.gap",
    "GaussianGap": "meanformer.diagnostics.gap",
    "SlowMeanFieldWarning": "meanformer.diagnostics.gap",
    "Stability": "meanformer.diagnostics.bounds",
    "euler_bound": "meanformer.diagnostics.bounds",
    "lipschitz_constants": "meanformer.diagnostics.bounds",
    "stability_bound": "meanformer.diagnostics.bounds",
    "trace_bound": "meanformer.diagnostics.bounds",
    "Lipschitz": "meanformer.attention.lipschitz",
    "WeakResidual": "meanformer.diagnostics.weak",
    "weak_residual": "meanformer.diagnostics.weak",
    "Checked": "meanformer.theory.check",
    "Claim": "meanformer.theory.check",
    "check": "meanformer.theory.check",
    "MeanFieldRate": "meanformer.theory.meanfield",
    "mean_field_rate": "meanformer.theory.meanfield",
    "wasserstein": "meanformer.metrics.wasserstein",
    "sliced_wasserstein": "meanformer.metrics.wasserstein",
    "sinkhorn_divergence": "meanformer.metrics.entropic",
    "conditional_wasserstein": "meanformer.metrics.conditional",
    "entropic_cost": "meanformer.metrics.entropic",
    "EntropicDistance": "meanformer.metrics.entropic",
    "NotConvergedWarning": "meanformer.metrics.entropic",
    "isoscore": "meanformer.diagnostics.spectra",
    "average_cosine": "meanformer.diagnostics.spectra",
    "attention_summary": "meanformer.diagnostics.attention",
    "AttentionSummary": "meanformer.diagnostics.attention",
    "attention_along": "meanformer.diagnostics.attention",
    "AttentionPath": "meanformer.diagnostics.attention",
    "clusters_along": "meanformer.diagnostics.history",
    "ClusterHistory": "meanformer.diagnostics.history",
    "sphere_energy": "meanformer.diagnostics.energy",
    "boolean_attention": "meanformer.diagnostics.criteria",
    "polytope_limit": "meanformer.diagnostics.criteria",
    "hyperplane_limit": "meanformer.diagnostics.criteria",
    "paranormal_limit": "meanformer.diagnostics.criteria",
    "collapse_limit": "meanformer.diagnostics.criteria",
    "Verdict": "meanformer.diagnostics.verdict",
    "plot_density": "meanformer.plots.densities",
    "plot_slack": "meanformer.plots.bounds",
    "plot_claims": "meanformer.plots.bounds",
    "plot_clusters": "meanformer.plots.clusters",
    "plot_spectrum": "meanformer.plots.gaussians",
    "plot_cone": "meanformer.plots.covariances",
    "plot_disc": "meanformer.plots.covariances",
    "plot_ranks": "meanformer.plots.covariances",
}

__all__ = list(_EXPORTS)  # pyright: ignore[reportUnsupportedDunderAll]  # the block above tells pyright


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value = metadata.version("meanformer")
    elif name == "models":  # a part with names of its own, and an extra
        value = import_module("meanformer.models")
    elif name in _EXPORTS:
        value = getattr(import_module(_EXPORTS[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value  # found without this function from now on
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
