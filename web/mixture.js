// p = λ p_kNN + (1-λ) p_LM of every token, for any λ and any T of the grid.

const STEPS = 33;
export const MIDDLE = (STEPS - 1) / 2;

// Temperatures around those in effect (`settings` where the server tells them, else as tuned), up to 16 times larger
// and smaller; where nothing was tuned, 256 times.
export function grid(stores) {
  const tuned = stores.map(store => (store.settings ?? store.tuned)?.temperature).filter(t => t > 0);
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

// ---------------------------------------------------------------- which λ and T are best

const pairs = (columns, step) => {
  const knn = knnAt(columns, step);
  return Array.from(columns.lm, (p, i) => [p, Number.isNaN(knn[i]) ? p : knn[i]]).filter(([p]) => !Number.isNaN(p));
};
const perplexityAt = (all, lambda) => Math.exp(-all.reduce((sum, [lm, knn]) => sum + Math.log(lm + lambda * (knn - lm)), 0) / all.length);

// Perplexity at each of the λ.
export const curve = (columns, step, lambdas) => {
  const all = pairs(columns, step);
  return lambdas.map(lambda => perplexityAt(all, lambda));
};

// The log-likelihood is concave in λ: its slope is 0 where it is highest.
const HALVINGS = 14;
function bestLambda(all) {
  let low = 0, high = 1;
  for (let i = 0; i < HALVINGS; i++) {
    const middle = (low + high) / 2;
    let slope = 0;
    for (const [lm, knn] of all) slope += (knn - lm) / (lm + middle * (knn - lm));
    if (slope > 0) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}

// The best λ, in steps of the slider, at one temperature.
const LAMBDA_STEPS = 100;
export function tunedAt(columns, step) {
  const all = pairs(columns, step), best = bestLambda(all);
  const around = [Math.floor(best * LAMBDA_STEPS), Math.ceil(best * LAMBDA_STEPS)].map(n => n / LAMBDA_STEPS);
  const [a, b] = around.map(lambda => ({lambda, step, perplexity: perplexityAt(all, lambda)}));
  return b.perplexity < a.perplexity ? b : a;
}

// The best λ and T of what the columns hold.
export function tuned(columns) {
  const all = columns.at.map((_, step) => tunedAt(columns, step));
  return all.reduce((best, one) => one.perplexity < best.perplexity ? one : best, {perplexity: Infinity});
}

// Which step of the grid the neighbours were mixed at: the one whose p_kNN is theirs; null: none of them, as where
// stores have temperatures of their own.
export function stepInEffect({knn, at}) {
  const differs = column => column.some((p, i) => Math.abs(p - knn[i]) > 1e-4 * knn[i] + 1e-12);
  const step = at.findIndex(column => !differs(column));
  return step < 0 ? null : step;
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
