"""The explorer: an interactive page for the dynamics of attention, served to a browser on this machine.

`launch` starts the server (`server`, with a `session` for each page; `guard` and `access` say who is let in), which
hands what pages ask for to worker processes (`pool`, `worker`, `work`). What is asked for is an experiment, the same
data as in an experiment file, `checked` against the `limits`; its frames come back as they are computed (`stream`,
`gaussians`), packed by `protocol`. The page itself is in `static/`, and what strangers see in `door/`.

Needs the extra `app`: fastapi, uvicorn, websockets. Only worker processes import JAX.
"""
