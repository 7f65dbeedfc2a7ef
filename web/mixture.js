// p = λ p_kNN + (1-λ) p_LM of every token, for any λ and any T of the grid.

const STEPS = 33;
export const MIDDLE = (STEPS - 1) / 2;

// Temperatures around the tuned ones, up to 16 times larger and smaller; where nothing was tuned, 256 times.
export function grid(stores) {
  const tuned = stores.map(store => store.tuned?.temperature).filter(t => t > 0);
  const middle = tuned.length ? Math.exp(tuned.reduce((sum, t) => sum + Math.log(t), 0) / tuned.length) : 1;
  return Array.from({length: STEPS}, (_, i) => middle * 2 ** ((i - MIDDLE) / (tuned.length ? 4 : 2)));
}

const column = (tokens, of) => Float64Array.from(tokens, token => of(token) ?? NaN);

// The numbers of an answer of /v1/score, as columns.
export function columnsOf(tokens) {
  return {
    lm: column(tokens, t => t.p_lm), knn: column(tokens, t => t.p_knn), lambda: column(tokens, t => t.lambda), mixed: column(tokens, t => t.p),
    at: tokens[0]?.p_knn_at ? tokens[0].p_knn_at.map((_, j) => column(tokens, t => t.p_knn_at?.[j])) : [],
  };
}

// step: of the grid, or null as tuned.
export const knnAt = (columns, step) => step === null ? columns.knn : columns.at[step] ?? columns.knn;

// lambda: a number, or null as tuned.
export function mix(columns, {lambda, step}) {
  const {lm, mixed} = columns, knn = knnAt(columns, step);
  if (lambda === null && step === null) return mixed;
  return lm.map((p, i) => {
    const weight = Number.isNaN(knn[i]) ? 0 : lambda ?? columns.lambda[i];
    return weight ? weight * knn[i] + (1 - weight) * p : p;
  });
}

const known = values => values.filter(v => !Number.isNaN(v));

export function perplexity(p) {
  const all = known(p);
  return all.length ? Math.exp(-all.reduce((sum, v) => sum + Math.log(v), 0) / all.length) : NaN;
}

export function mean(values) {
  const all = known(values);
  return all.length ? all.reduce((sum, v) => sum + v, 0) / all.length : NaN;
}

// log p - log p_LM.
export const gains = (p, lm) => p.map((v, i) => v === lm[i] ? 0 : Math.log(v) - Math.log(lm[i]));

const LEVELS = 6, HIGHEST = Math.log(16);

// -6 to 6, by the root of the gain: neighbours hurt by log(1-λ) at most, a tenth of what they can help, and that is
// to be seen on the same scale. Level 3 is twice, 6 is 16 times and more.
export const levelOf = gain => Math.sign(gain) * Math.round(LEVELS * Math.sqrt(Math.min(1, Math.abs(gain) / HIGHEST)));

export const levelClass = level => Number.isNaN(level) ? ' none' : level ? ` ${level > 0 ? 'p' : 'n'} l${Math.abs(level)}` : '';
