"""The map of tokens in a page: it plays through the layers, and tells the names of tokens."""

import html
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib import colors

from ..plots.tokenmap import depth_name, shown, spread_out, token_colours, view
from .page import Markup, own_script

# More tokens than this are thinned out: they would not be told apart.
MOST_TOKENS = 1500
# So many tokens are tried for a name beside them.
MOST_NAMES = 150
# Longer names are cut.
LETTERS = 40
# Coordinates are whole multiples of this.
UNIT = 1e-3
HINT = "Point at a token, or at a word: its name, and its way through the layers. A click keeps it."


def moving_map(results: Mapping[str, Any]) -> Markup | None:
    """The HTML of the map, its data and its script inside; None if there is no map in `results`.

    Its look is in `model.css`.
    """
    data = _data(results)
    if data is None:
        return None
    last = len(data["points"]) - 1
    about = html.escape(f"Map of {len(data['labels'])} tokens; the arrow keys go from token to token")
    return Markup(f"""<div class="tokenmap" hidden>
<div class="map-bar">
<button type="button" class="map-play">▶ play</button>
<input type="range" class="map-layer" min="0" max="{last}" step="1" value="0" aria-label="layers passed">
<input type="search" class="map-find" placeholder="find a token" aria-label="find a token" autocomplete="off">
</div>
<p class="map-where" role="status"></p>
<div class="map-stage">
<canvas class="map-canvas" tabindex="0" role="img" aria-label="{about}"></canvas>
<div class="map-zoom"><button type="button" class="map-farther" aria-label="farther">−</button>
<button type="button" class="map-closer" aria-label="closer">+</button></div>
</div>
<div class="map-words" tabindex="0" role="group" aria-label="the tokens in their order"></div>
<p class="map-told" aria-live="polite"></p>
<script type="application/json" class="map-data">{in_script(data)}</script>
</div>
{own_script("tokenmap.js")}""")


def in_script(data: Any) -> str:
    """JSON that no text in it can end: a token may be named `</script>`."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def short(name: str) -> str:
    """A name of at most 40 letters."""
    return name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}…"


def _data(results: Mapping[str, Any]) -> dict[str, Any] | None:
    table, given = results.get("map") or {}, results.get("input") or {}
    if not table.get("points"):
        return None
    points = np.array(table["points"], np.float64)
    last, explained = len(points) - 1, table.get("explained")
    names = [depth_name(layer, last) for layer in range(last + 1)]
    deep = table.get("deep") or {}
    beyond = [k for k, layer in enumerate(deep.get("layers") or []) if layer > last]
    if beyond:
        points = np.concatenate([points, np.array([deep["points"][k] for k in beyond], np.float64)])
        names += [f"after {int(deep['layers'][k]):,} layers, beyond the model" for k in beyond]
        shares = deep.get("explained")
        explained = [*explained, *(shares[k] for k in beyond)] if explained and shares else None
    n = points.shape[1]
    labels = [short(shown(label)) for label in given.get("labels") or range(n)]
    kept = np.arange(n) if n <= MOST_TOKENS else np.unique(np.linspace(0, n - 1, MOST_TOKENS).round().astype(int))
    grid = given.get("grid") if len(kept) == n else None
    box, points = view(points), points[:, kept]
    weights = np.array(given.get("weights") or np.ones(n), np.float64)[kept]
    light, dark = (
        [colors.to_hex(row) for row in token_colours(n, given.get("grid"), dark=night)[kept]] for night in (False, True)
    )
    return {
        "points": [np.rint(layer.ravel() / UNIT).astype(int).tolist() for layer in points],
        "box": np.rint(box.ravel() / UNIT).astype(int).tolist(),
        "names": names,
        "explained": [f"{100 * share:.0f}" for share in explained] if explained else None,
        "labels": [labels[i] for i in kept],
        "numbers": None if len(kept) == n else kept.tolist(),
        "grid": grid if grid and grid[0] * grid[1] <= n else None,
        "hollow": np.flatnonzero(weights == 0).tolist(),
        "order": spread_out(points, MOST_NAMES),
        "light": light,
        "dark": dark,
        "hint": HINT,
    }
