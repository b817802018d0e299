// A start that was changed by hand, as the measure of an experiment: tokens by their coordinates.

/** Options of a law that hold for tokens by their coordinates too. `centre` is not kept: the rest would move along. */
const KEPT = ["project", "positions", "dtype"];

/** The measure whose tokens are the start of the recording, with token i moved to `coordinates`. */
export function movedMeasure(measure, recording, i, coordinates) {
  const points = Array.isArray(measure.points) && measure.points.length === recording.n && !measure.centre
    ? [...measure.points] : pointsOf(recording);
  points[i] = Array.from(coordinates, (x) => Number(x.toPrecision(4)));
  const moved = { kind: "points", points };
  if (!recording.equalWeights) moved.weights = weightsOf(recording);
  for (const name of KEPT) if (measure[name] !== undefined) moved[name] = measure[name];
  return moved;
}

function pointsOf({ n, d, start }) {
  const row = (i) => Array.from({ length: d }, (_, c) => Number(start[i * d + c].toPrecision(7)));
  return Array.from({ length: n }, (_, i) => row(i));
}

const weightsOf = ({ weights }) => Array.from(weights, (w) => Number(w.toPrecision(12)));
