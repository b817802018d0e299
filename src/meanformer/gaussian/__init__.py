"""Gaussians under attention: closed forms, bounds, conserved quantities, fates."""
