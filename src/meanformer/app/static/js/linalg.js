// Small dense matrices as arrays of rows: products, eigenvalues, ranks, inertia. Pure functions.

export const shape = (M) => [M.length, M[0].length];
export const filled = (rows, columns, entry) =>
  Array.from({ length: rows }, (_, i) => Array.from({ length: columns }, (_, j) => entry(i, j)));
export const identity = (rows, columns = rows) => filled(rows, columns, (i, j) => (i === j ? 1 : 0));
export const zeros = (rows, columns = rows) => filled(rows, columns, () => 0);
export const transpose = (M) => filled(M[0].length, M.length, (i, j) => M[j][i]);
export const scaled = (M, factor) => M.map((row) => row.map((x) => (x === 0 ? 0 : factor * x)));
export const add = (M, N) => M.map((row, i) => row.map((x, j) => x + N[i][j]));
export const symmetricPart = (M) => scaled(add(M, transpose(M)), 0.5);
export const trace = (M) => M.reduce((sum, row, i) => sum + row[i], 0);
export const largest = (M) => Math.max(...M.flat().map(Math.abs));

export const multiply = (M, N) =>
  filled(M.length, N[0].length, (i, j) => N.reduce((sum, row, k) => sum + M[i][k] * row[j], 0));

/** Whether a value is a matrix: rows of finite numbers, all of one length. */
export const isMatrix = (M) =>
  Array.isArray(M) && M.length > 0 && M.every((row) => Array.isArray(row) && row.length > 0 &&
    row.length === M[0].length && row.every(Number.isFinite));

/** Whether two matrices have one shape, and entries that differ by at most `tolerance`. */
export const equal = (M, N, tolerance = 0) =>
  M.length === N.length && M.every((row, i) => row.length === N[i].length &&
    row.every((x, j) => Math.abs(x - N[i][j]) <= tolerance));

export const isSymmetric = (M) => M.length === M[0].length && equal(M, transpose(M), 1e-12 * largest(M));

/** At most six significant digits, and zeros where only rounding errors stand. */
export function rounded(M, digits = 6) {
  const noise = 1e-9 * largest(M);
  return M.map((row) => row.map((x) => (Math.abs(x) <= noise ? 0 : Number(x.toPrecision(digits)))));
}

/** Another shape: cut, or continued by the pattern of the identity. */
export const resized = (M, rows, columns) =>
  filled(rows, columns, (i, j) => (i < M.length && j < M[0].length ? M[i][j] : i === j ? 1 : 0));

/** Independent normal entries with two decimals; `uniform` draws from [0, 1). */
export function randomNormal(rows, columns = rows, uniform = Math.random) {
  const draw = () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
  return filled(rows, columns, () => Math.round(100 * draw()) / 100 + 0);
}

/**
 * Elimination with full pivoting on complex rows [re, im]: the rank, and vectors that span the kernel.
 * Pivots of at most `tolerance` times the largest entry count as zero.
 */
function eliminated(entries, tolerance) {
  const M = entries.map((row) => row.map((z) => [...z]));
  const [rows, columns] = shape(M);
  const size = Math.max(...M.flat().map(modulus));
  const order = Array.from({ length: columns }, (_, j) => j);
  let rank = 0;
  for (; rank < Math.min(rows, columns); rank++) {
    let [best, p, q] = [-1, rank, rank];
    for (let i = rank; i < rows; i++)
      for (let j = rank; j < columns; j++) if (modulus(M[i][j]) > best) [best, p, q] = [modulus(M[i][j]), i, j];
    if (!(best > tolerance * size)) break;
    [M[rank], M[p]] = [M[p], M[rank]];
    for (const row of M) [row[rank], row[q]] = [row[q], row[rank]];
    [order[rank], order[q]] = [order[q], order[rank]];
    const pivot = M[rank][rank];
    M[rank] = M[rank].map((z) => divided(z, pivot));
    for (let i = 0; i < rows; i++) {
      const factor = M[i][rank];
      if (i !== rank && modulus(factor) > 0) M[i] = M[i].map((z, j) => minus(z, times(factor, M[rank][j])));
    }
  }
  const kernel = [];
  for (let free = rank; free < columns; free++) {
    const vector = Array.from({ length: columns }, () => [0, 0]);
    vector[order[free]] = [1, 0];
    for (let i = 0; i < rank; i++) vector[order[i]] = minus([0, 0], M[i][free]);
    kernel.push(vector);
  }
  return { rank, kernel };
}

const times = ([a, b], [c, d]) => [a * c - b * d, a * d + b * c];
const minus = ([a, b], [c, d]) => [a - c, b - d];
const plus = ([a, b], [c, d]) => [a + c, b + d];
const modulus = ([a, b]) => Math.hypot(a, b);
const conjugate = ([a, b]) => [a, -b];
const divided = (z, w) => times(z, conjugate(w)).map((x) => x / (w[0] * w[0] + w[1] * w[1]));

function squareRoot([a, b]) {
  const r = Math.hypot(a, b);
  return [Math.sqrt(Math.max(0, (r + a) / 2)), (b < 0 ? -1 : 1) * Math.sqrt(Math.max(0, (r - a) / 2))];
}

const toComplex = (M) => M.map((row) => row.map((x) => [x, 0]));

export const rank = (M, tolerance = 1e-9) => (largest(M) === 0 ? 0 : eliminated(toComplex(M), tolerance).rank);

/** The inverse by elimination; null for a matrix that has none in floating point. */
export function inverse(M) {
  const n = M.length;
  const rows = M.map((row, i) => [...row, ...identity(n)[i]]);
  for (let k = 0; k < n; k++) {
    let p = k;
    for (let i = k; i < n; i++) if (Math.abs(rows[i][k]) > Math.abs(rows[p][k])) p = i;
    if (!(Math.abs(rows[p][k]) > 1e-13 * largest(M))) return null;
    [rows[k], rows[p]] = [rows[p], rows[k]];
    rows[k] = rows[k].map((x) => x / rows[k][k]);
    for (let i = 0; i < n; i++) if (i !== k) rows[i] = rows[i].map((x, j) => x - rows[i][k] * rows[k][j]);
  }
  return rows.map((row) => row.slice(n));
}

/** Eigenvalues (largest first) and orthonormal eigenvectors, as columns, of a symmetric matrix: Jacobi's rotations. */
export function symmetricEigen(S) {
  const n = S.length;
  let [M, vectors] = [S.map((row) => [...row]), identity(n)];
  for (let sweep = 0; sweep < 60; sweep++) {
    let off = 0;
    for (let p = 0; p < n; p++) for (let q = p + 1; q < n; q++) off = Math.max(off, Math.abs(M[p][q]));
    if (off <= 1e-15 * largest(M)) break;
    for (let p = 0; p < n; p++)
      for (let q = p + 1; q < n; q++) {
        if (M[p][q] === 0) continue;
        const angle = 0.5 * Math.atan2(2 * M[p][q], M[q][q] - M[p][p]);
        const [c, s] = [Math.cos(angle), Math.sin(angle)];
        const turn = (rows) => rows.map((row) => row.map((x, j) =>
          j === p ? c * row[p] - s * row[q] : j === q ? s * row[p] + c * row[q] : x));
        M = transpose(turn(transpose(turn(M))));
        vectors = turn(vectors);
      }
  }
  const order = M.map((_, i) => i).sort((i, j) => M[j][j] - M[i][i]);
  return { values: order.map((i) => M[i][i]), vectors: vectors.map((row) => order.map((i) => row[i])) };
}

/** How many eigenvalues of a symmetric matrix are positive, zero and negative. */
export function inertia(S, tolerance = 1e-9) {
  const { values } = symmetricEigen(S);
  const zero = tolerance * Math.max(...values.map(Math.abs));
  const [positive, negative] = [values.filter((x) => x > zero).length, values.filter((x) => x < -zero).length];
  return { positive, zero: values.length - positive - negative, negative };
}

/** Eigenvalues [re, im] of a square matrix, by real part from the largest on; pairs next to each other, + before -. */
export function eigenvalues(M) {
  const size = largest(M);
  if (size === 0) return M.map(() => [0, 0]);
  const raw = isSymmetric(M) ? symmetricEigen(M).values.map((x) => [x, 0])
    : M.length === 2 ? ofTwo(toComplex(M)) : shiftedQR(hessenberg(M));
  // Pairs of a real matrix are made exact. A multiple eigenvalue comes out with errors far above rounding, and what has
  // no partner near its conjugate is real.
  const rest = [...raw].sort((z, w) => Math.abs(w[1]) - Math.abs(z[1]));
  const found = [];
  while (rest.length) {
    const z = rest.shift();
    const distance = (w) => modulus(minus(w, conjugate(z)));
    const place = rest.reduce((best, w, k) => (best < 0 || distance(w) < distance(rest[best]) ? k : best), -1);
    if (Math.abs(z[1]) <= 1e-7 * size || place < 0 || distance(rest[place]) >= Math.abs(z[1])) {
      found.push([[z[0], 0]]);
      continue;
    }
    const [partner] = rest.splice(place, 1);
    const mean = [(z[0] + partner[0]) / 2, Math.abs(z[1] - partner[1]) / 2];
    found.push([mean, conjugate(mean)]);
  }
  return found.sort(([z], [w]) => falling(z, w)).flat().map(([re, im]) => [re, im === 0 ? 0 : im]);
}

const falling = (z, w) => w[0] - z[0] || w[1] - z[1];

/** The two eigenvalues of a complex 2 x 2 matrix. */
function ofTwo([[a, b], [c, d]]) {
  const middle = plus(a, d).map((x) => x / 2);
  const half = minus(a, d).map((x) => x / 2);
  const root = squareRoot(plus(times(half, half), times(b, c)));
  return [plus(middle, root), minus(middle, root)];
}

/** A similar matrix with zeros below the first subdiagonal, by reflections. */
function hessenberg(M) {
  const n = M.length;
  let H = M;
  for (let k = 0; k < n - 2; k++) {
    const v = H.map((row, i) => (i > k ? row[k] : 0));
    const norm = Math.hypot(...v);
    if (norm === 0) continue;
    v[k + 1] += (v[k + 1] < 0 ? -1 : 1) * norm;
    const square = v.reduce((sum, x) => sum + x * x, 0);
    const reflection = filled(n, n, (i, j) => (i === j ? 1 : 0) - (2 * v[i] * v[j]) / square);
    H = multiply(multiply(reflection, H), reflection);
  }
  return H;
}

/** Eigenvalues of a Hessenberg matrix by complex QR steps with Wilkinson's shift. */
function shiftedQR(real) {
  const H = toComplex(real);
  const found = [];
  let last = H.length - 1;
  for (let step = 0; last >= 0 && step < 600; step++) {
    const small = (k) => modulus(H[k][k - 1]) <= 1e-15 * (modulus(H[k][k]) + modulus(H[k - 1][k - 1]));
    let first = last;
    while (first > 0 && !small(first)) first--;
    if (first === last) {
      found.push(H[last][last]);
      last--;
    } else qrStep(H, first, last, step);
  }
  while (last >= 0) found.push(H[last--][last + 1]);
  return found;
}

function qrStep(H, first, last, step) {
  const corner = [last - 1, last].map((i) => [H[i][last - 1], H[i][last]]);
  const [one, two] = ofTwo(corner);
  const near = modulus(minus(one, H[last][last])) < modulus(minus(two, H[last][last])) ? one : two;
  // Now and then another shift, since a cycle is possible.
  const shift = step % 11 === 10 ? plus(near, [modulus(H[last][last - 1]), 0]) : near;
  for (let i = first; i <= last; i++) H[i][i] = minus(H[i][i], shift);
  const turns = [];
  for (let k = first; k < last; k++) {
    const r = Math.hypot(modulus(H[k][k]), modulus(H[k + 1][k]));
    const [c, s] = r === 0 ? [[1, 0], [0, 0]] : [H[k][k].map((x) => x / r), H[k + 1][k].map((x) => x / r)];
    turns.push([c, s]);
    for (let j = k; j <= last; j++) {
      const [x, y] = [H[k][j], H[k + 1][j]];
      H[k][j] = plus(times(conjugate(c), x), times(conjugate(s), y));
      H[k + 1][j] = minus(times(c, y), times(s, x));
    }
  }
  turns.forEach(([c, s], place) => {
    const k = first + place;
    for (let i = first; i <= Math.min(k + 2, last); i++) {
      const [x, y] = [H[i][k], H[i][k + 1]];
      H[i][k] = plus(times(x, c), times(y, s));
      H[i][k + 1] = minus(times(y, conjugate(c)), times(x, conjugate(s)));
    }
  });
  for (let i = first; i <= last; i++) H[i][i] = plus(H[i][i], shift);
}

/** Real columns that span the eigenspaces, in the order of `eigenvalues`, (Re, Im) for a pair; null if none do. */
export function eigenbasis(M) {
  if (isSymmetric(M)) return symmetricEigen(M).vectors;
  const size = largest(M);
  const columns = [];
  const seen = [];
  for (const z of eigenvalues(M).filter(([, im]) => im >= 0)) {
    if (seen.some((w) => modulus(minus(z, w)) < 1e-6 * size)) continue;
    seen.push(z);
    const shifted = toComplex(M).map((row, i) => row.map((x, j) => (i === j ? minus(x, z) : x)));
    for (const vector of eliminated(shifted, 1e-6).kernel) {
      const norm = Math.hypot(...vector.flat());
      columns.push(vector.map(([re]) => re / norm));
      if (z[1] > 0) columns.push(vector.map(([, im]) => im / norm));
    }
  }
  if (columns.length !== M.length) return null;
  const basis = transpose(columns);
  const back = inverse(basis);
  // Almost parallel eigenvectors would make huge entries out of small changes.
  return back === null || largest(back) > 1e5 ? null : basis;
}

/** The matrix with these eigenvalues (as `eigenvalues` orders them) on the columns of a basis. */
export function withEigenvalues(values, basis) {
  const D = zeros(values.length);
  values.forEach(([re, im], k) => {
    D[k][k] = re;
    if (im > 0) [D[k][k + 1], D[k + 1][k]] = [im, -im];
  });
  return multiply(multiply(basis, D), inverse(basis));
}
