// λ and T: their sliders, the curve of perplexity over λ, and what is in effect where nobody turned them.
import {$, svg} from './dom.js';
import {digits, fixed} from './format.js';
import {curve, mean, stepInEffect, tuned, tunedAt, MIDDLE} from './mixture.js';

const HEIGHT = 26, TOP = 3, POINTS = 50;
const LAMBDAS = Array.from({length: POINTS + 1}, (_, i) => i / POINTS);
const CONTROLS = ['lambda', 'temperature', 'lambda-tuned', 'temperature-tuned', 'tune'];

// By its logarithm; what is far above the model's own would flatten all the rest.
function scaleOf(values) {
  const logs = values.filter(Number.isFinite).map(Math.log), low = Math.min(...logs), first = Math.log(values[0]);
  const high = Math.min(Math.max(...logs), first + Math.max(first - low, .1));
  return v => TOP + (HEIGHT - 2 * TOP) * (1 - (Math.min(Math.log(v), high) - low) / (high - low || 1));
}

const upright = (name, x) => svg('line', {class: name, x1: 100 * x, x2: 100 * x, y1: 0, y2: HEIGHT});

function drawCurve(values, best, lambda) {
  const y = scaleOf(values), points = values.map((v, i) => `${(100 * LAMBDAS[i]).toFixed(2)},${y(v).toFixed(2)}`);
  $('lambda-curve').replaceChildren(upright('best', best.lambda), upright('now', lambda), svg('polyline', {points: points.join(' ')}));
  const words = `lowest ${digits(best.perplexity)} at λ ${fixed(best.lambda, 2)}`;
  $('lambda-curve').setAttribute('aria-label', `Perplexity over λ: ${digits(values[0])} at 0, ${digits(values.at(-1))} at 1, ${words}`);
  $('lambda-best').textContent = words;
}

// The step of the grid that is nearest to a temperature.
function nearestStep(temperatures, wanted) {
  const away = temperatures.map(t => Math.abs(Math.log(t / wanted)));
  return away.indexOf(Math.min(...away));
}

// onturn(): a setting was changed. settings: {lambda, step}, null each: as tuned.
export function knobs(onturn) {
  const settings = {lambda: null, step: null};
  let wished = null; // a temperature that the next reading is to have
  let known = null;  // {columns, step, values, best, effect}: of the curve that is drawn

  function measure({columns}) {
    if (known?.columns === columns && known.step === settings.step) return;
    const effect = known?.columns === columns ? known.effect : stepInEffect(columns);
    known = {columns, effect, step: settings.step, values: curve(columns, settings.step, LAMBDAS), best: tunedAt(columns, settings.step)};
  }

  function drawLambda({columns}) {
    const {lambda} = settings, average = mean(columns.lambda), varied = columns.lambda.some(l => Math.abs(l - average) > 1e-6);
    $('lambda-tuned').checked = lambda === null;
    $('lambda').value = lambda ?? average;
    $('lambda-out').textContent = lambda === null ? `${fixed(average, 2)}${varied ? ' on average' : ''}` : fixed(lambda, 2);
    $('lambda').setAttribute('aria-valuetext', $('lambda-out').textContent);
    drawCurve(known.values, known.best, lambda ?? average);
  }

  function drawTemperature({temperatures}) {
    const {step} = settings, at = step ?? known.effect;
    $('temperature-tuned').checked = step === null;
    $('temperature').value = at ?? MIDDLE;
    $('temperature-out').textContent = at === null ? 'varies' : digits(temperatures[at], 3);
    $('temperature').setAttribute('aria-valuetext', $('temperature-out').textContent);
  }

  function draw(read) {
    const without = Number.isNaN(mean(read.columns.knn));
    for (const id of CONTROLS) $(id).disabled = without;
    $('lambda-curve').toggleAttribute('hidden', without);
    $('lambda-best').hidden = without;
    if (!without) measure(read);
    known = without ? {effect: null, columns: null} : known;
    if (without) $('lambda-out').textContent = $('temperature-out').textContent = '–';
    else {
      drawLambda(read);
      drawTemperature(read);
    }
  }

  const set = change => {
    Object.assign(settings, change);
    onturn();
  };
  $('lambda').addEventListener('input', () => set({lambda: Number($('lambda').value)}));
  $('temperature').addEventListener('input', () => set({step: Number($('temperature').value)}));
  $('lambda-tuned').addEventListener('change', event => set({lambda: event.target.checked ? null : Number($('lambda').value)}));
  $('temperature-tuned').addEventListener('change', event => set({step: event.target.checked ? null : Number($('temperature').value)}));
  $('tune').addEventListener('click', () => {
    const {lambda, step} = tuned(known.columns);
    set({lambda, step});
  });
  return {
    settings, draw,
    // The next reading is to be seen with these; null: as tuned.
    wish({lambda, temperature}) {
      Object.assign(settings, {lambda, step: null});
      wished = temperature;
      if (lambda !== null) $('lambda').value = lambda;
    },
    // Before a reading is drawn: its temperatures are known now.
    fit({temperatures}) {
      if (wished === null) return;
      settings.step = nearestStep(temperatures, wished);
      $('temperature').value = settings.step;
      wished = null;
    },
  };
}
