"""Deliberately wrong fields and runs: a checker that lets them pass is no checker."""

from typing import ClassVar

import equinox as eqx

import meanformer as mf


class Loud(mf.AbstractAttention):
    """Softmax, three times too large, that still claims the bounds of softmax."""

    maps: mf.Projections
    averages: ClassVar[bool] = True
    normalised: ClassVar[bool] = True

    def mix(self, mu, x, values, view):
        return 3 * self.quiet.mix(mu, x, values, view)

    def lipschitz(self, left, radius):
        return self.quiet.lipschitz(left, radius)

    @property
    def quiet(self):
        return eqx.tree_at(lambda f: f.maps, mf.Softmax(1.0, 1.0, 1.0), self.maps)


def loud(Q, K, V):
    return Loud(mf.Softmax(Q, K, V).maps)


def claiming(run, field):
    """The run of one field that claims to be that of another."""
    return eqx.tree_at(lambda r: r.system.field, run, field, is_leaf=lambda node: node is run.system.field)


def altered(run, change):
    """A run with other states: `change` maps what was saved, as NumPy arrays, to what shall be."""
    return eqx.tree_at(lambda r: r.saved, run, change(run.saved), is_leaf=lambda node: node is run.saved)
