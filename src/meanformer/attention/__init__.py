"""Attention: what turns a measure into a vector field."""

# Told with every run that leaves the program. Importing this loads no JAX.
CONVENTION = (
    "A = K^T Q acts on the query, Qx.Ky = (Ax).y; a temperature (tau; Sinkhorn: eps) divides all of the exponent"
)
