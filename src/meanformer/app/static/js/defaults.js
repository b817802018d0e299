// What the page shows at first: one experiment for each view.

const identity = () => [[1, 0], [0, 1]];
const softmax = () => ({ kind: "softmax", Q: identity(), K: identity(), V: identity(), tau: 1 });

/** Five petals around 0, the cloud of the tour. */
const petals = () => ({
  kind: "mixture",
  n: 200,
  d: 2,
  centre: true,
  means: [[0, 1], [-0.951057, 0.309017], [-0.587785, -0.809017], [0.587785, -0.809017], [0.951057, 0.309017]],
  covs: [
    [[0.02, 0], [0, 0.1]],
    [[0.092361, -0.023511], [-0.023511, 0.027639]],
    [[0.047639, 0.038042], [0.038042, 0.072361]],
    [[0.047639, -0.038042], [-0.038042, 0.072361]],
    [[0.092361, 0.023511], [0.023511, 0.027639]],
  ],
});

/** Covariances of trace one, at the points of `rings` around the middle of the disc ((a-b), 2c). */
function covariances(rings) {
  const found = [];
  for (const { radius, count, turn } of rings) {
    for (let k = 0; k < count; k++) {
      const angle = turn + (2 * Math.PI * k) / count;
      const [x, y] = [radius * Math.cos(angle), radius * Math.sin(angle)];
      const [a, b, c] = [(1 + x) / 2, (1 - x) / 2, y / 2].map((value) => Math.round(value * 1e4) / 1e4);
      found.push([[a, c], [c, b]]);
    }
  }
  return found;
}

export function defaultState() {
  return {
    view: "tokens",
    tokens: {
      experiment: {
        seed: 3,
        attention: softmax(),
        measure: { kind: "ball", n: 300, d: 2, radius: 3 },
        flow: { t1: 6, frame: "rescaled" },
        save: { times: 101 },
      },
    },
    gaussian: {
      experiment: {
        // A draw of which both fates are seen: some starts blow up, some lose their rank.
        attention: {
          kind: "softmax",
          Q: [[2, -2.6], [0.4, -0.6]],
          K: [[-0.5, -0.2], [-2, -0.2]],
          V: [[-0.9, 3.3], [0.2, -0.4]],
          tau: 1,
        },
        measure: { kind: "gaussian", d: 2, cov: [[0.5, 0], [0, 0.5]] },
        flow: { t1: "inf" },
      },
      starts: covariances([{ radius: 0.35, count: 4, turn: 0.4 }, { radius: 0.8, count: 8, turn: 0.2 }]),
    },
    sides: {
      experiment: {
        seed: 0,
        attention: softmax(),
        measure: petals(),
        flow: { t1: 6, frame: "rescaled" },
        save: { times: 101 },
      },
      kinds: ["softmax", "l2", "sinkhorn", "sigmoid", "hardmax", "unnormalised"],
    },
    density: {
      experiment: {
        attention: { kind: "l2", Q: [[0.7]], K: [[0.7]], V: [[1]], tau: 1 },
        measure: {
          kind: "density",
          cells: 300,
          of: { kind: "mixture", means: [[-1], [1.5]], covs: [[0.1]], weights: [0.4, 0.6] },
        },
        flow: { t1: 1 },
        save: { times: 101 },
      },
    },
    display: { colour: "cluster", paths: true, hull: false, bound: false, starts: false, fit: "run", speed: 1 },
  };
}
