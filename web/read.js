// The panel that reads a text: every token in the colour of what the neighbours changed.
import {$, el, leadingSpace, readable, shown} from './dom.js';
import {digits, fixed, plural, signedPercent, times} from './format.js';
import {columnsOf, gains, grid, knnAt, levelClass, levelOf, mean, mix, perplexity, MIDDLE} from './mixture.js';
import {calm, note, problem} from './notice.js';
import {extremes} from './extremes.js';
import {storeChoice} from './choice.js';
import {roving} from './roving.js';
import {textPicker} from './texts.js';
import {tips, hide as hideTip} from './tip.js';
import {tokenPanel} from './explain.js';
import * as api from './api.js';

let stores = [];
let request = null; // of /v1/score, under way
let text = null;    // that was read
let read = null;    // {ids, texts, tokens, columns, temperatures}
let spans = [], levels = [], p = [], gain = [];
let opened = -1;
const settings = {lambda: null, step: null};

const choice = storeChoice($('read-stores'), () => { if (text !== null) score(text); });
const panel = tokenPanel($('token'), leave);
const walk = roving($('tokens'), {items: () => spans, onmove: i => { if (opened >= 0) openToken(i); }, onopen: enter});
const most = extremes(i => {
  walk.goTo(i, 'center');
  openToken(i, true);
});
const texts = textPicker(score);
tips($('tokens'), describe);

// ---------------------------------------------------------------- asking the server

async function score(asked) {
  calm();
  if (!asked) return problem(new Error('There is no text to read.'));
  request?.abort();
  const own = request = new AbortController();
  const temperatures = grid(stores.filter(store => choice.isOn(store.name)));
  busy(true);
  try {
    const answer = await api.score({text: asked, knn: {...choice.knn(), temperatures}}, own.signal);
    text = asked;
    draw(answer, temperatures);
  } catch (error) {
    problem(error);
  }
  if (request === own) busy(false);
}

function busy(is) {
  $('read-go').textContent = is ? 'Reading…' : 'Read it';
  $('reading').setAttribute('aria-busy', is);
  if (is) note('');
}

// ---------------------------------------------------------------- the text

function spanOf(word, i) {
  const span = el('span', {role: 'button', tabindex: i ? -1 : 0, 'data-i': i}, shown(word, 'token'));
  span.className = 't';
  return span;
}

function draw({tokens}, temperatures) {
  const ids = tokens.map(token => token.token), same = read && ids.join() === read.ids.join();
  read = {ids, tokens, temperatures, columns: columnsOf(tokens), texts: same ? read.texts : readable(tokens.map(token => token.text))};
  if (!same) drawTokens();
  $('reading').hidden = false;
  $('read-count').textContent = plural(tokens.length, 'token');
  update();
  if (opened >= 0) openToken(opened);
}

function drawTokens() {
  close();
  hideTip();
  const nodes = document.createDocumentFragment();
  spans = read.texts.map((word, i) => {
    const space = leadingSpace(word), span = spanOf(word.slice(space.length), i);
    nodes.append(space, span);
    return span;
  });
  levels = new Array(spans.length).fill(null);
  $('tokens').replaceChildren(nodes);
}

// ---------------------------------------------------------------- colours and figures, for the λ and T of now

function update() {
  p = mix(read.columns, settings);
  gain = gains(p, read.columns.lm);
  gain.forEach((g, i) => {
    const level = levelOf(g);
    if (Object.is(level, levels[i])) return;
    levels[i] = level;
    spans[i].className = classOf(i);
  });
  drawFigures();
  drawKnobs();
  most.update({texts: read.texts, lm: read.columns.lm, p, gain, levels});
}

const classOf = i => `t${read.texts[i] ? '' : ' part'}${levelClass(levels[i])}${i === opened ? ' open' : ''}`;

function drawFigures() {
  const alone = perplexity(read.columns.lm), mixed = perplexity(p);
  $('ppl-lm').textContent = digits(alone);
  $('ppl').textContent = digits(mixed);
  $('ppl-change').textContent = signedPercent(mixed / alone - 1);
  $('ppl-change').className = mixed < alone ? 'helped' : mixed > alone ? 'hurt' : '';
}

function drawKnobs() {
  const {lambda, step} = settings, average = mean(read.columns.lambda), without = Number.isNaN(mean(read.columns.knn));
  const varied = read.columns.lambda.some(l => Math.abs(l - average) > 1e-6);
  $('lambda-tuned').checked = lambda === null;
  $('temperature-tuned').checked = step === null;
  if (lambda === null) $('lambda').value = average;
  if (step === null) $('temperature').value = MIDDLE;
  const temperature = read.temperatures[$('temperature').value];
  $('lambda-out').textContent = lambda === null ? `${fixed(average, 2)}${varied ? ' on average' : ''}` : fixed(lambda, 2);
  $('temperature-out').textContent = digits(temperature, 3);
  for (const id of ['lambda', 'temperature', 'lambda-tuned', 'temperature-tuned']) $(id).disabled = without;
  $('lambda').setAttribute('aria-valuetext', $('lambda-out').textContent);
  $('temperature').setAttribute('aria-valuetext', $('temperature-out').textContent);
}

let waiting = 0;
function turned() {
  if (!waiting) waiting = requestAnimationFrame(() => {
    waiting = 0;
    update();
    if (opened >= 0) panel.show(tokenOf(opened));
  });
}

// ---------------------------------------------------------------- one token

function describe(i) {
  const {lm, knn} = read.columns;
  if (Number.isNaN(gain[i])) return ['no probability'];
  const word = gain[i] > 0 ? el('b.helped', {}, `helped ${times(gain[i])}`) : gain[i] < 0 ? el('b.hurt', {}, `hurt ${times(gain[i])}`) : el('b', {}, Number.isNaN(knn[i]) ? 'no neighbours' : 'no change');
  return [el('span.change', {}, `p ${digits(lm[i], 2)} → ${digits(p[i], 2)}`), ' ', word];
}

function knnOf() {
  const knn = choice.knn();
  if (settings.lambda !== null) knn.lambda = settings.lambda;
  if (settings.step !== null) knn.temperature = read.temperatures[settings.step];
  return knn;
}

function tokenOf(i) {
  const {columns, tokens} = read, knn = knnAt(columns, settings.step);
  return {
    index: i, id: read.ids[i], text: read.texts[i], lm: columns.lm[i], knn: knn[i], p: p[i], gain: gain[i],
    lambda: settings.lambda ?? columns.lambda[i], nearest: tokens[i].nearest, entropy: tokens[i].entropy,
    request: {tokens: read.ids.slice(0, i), knn: knnOf()},
  };
}

function openToken(i, now = false) {
  const before = opened;
  opened = i;
  if (before >= 0) spans[before].className = classOf(before);
  spans[i].className = classOf(i);
  $('reading').classList.add('opened');
  panel.show(tokenOf(i), now);
}

// Enter on the token that is open goes on into its panel.
function enter(i, byKey) {
  hideTip();
  if (opened === i && byKey) $('token').focus();
  else openToken(i, true);
  spans[i].scrollIntoView({block: 'nearest'});
}

function close() {
  const before = opened;
  opened = -1;
  if (before >= 0 && spans[before]) spans[before].className = classOf(before);
  $('reading').classList.remove('opened');
  panel.hide();
}

function leave() {
  if (opened < 0) return;
  const i = opened;
  close();
  walk.makeCurrent(i);
  spans[i].focus({preventScroll: true});
}

// ---------------------------------------------------------------- listening

function drawLegend() {
  const swatches = Array.from({length: 13}, (_, i) => el('span', {class: 't' + levelClass(i - 6)}, i === 6 ? '' : '\u00a0\u00a0'));
  const ticks = ['÷16', '÷2', '=', '×2', '×16'].map(text => el('span', {}, text));
  $('legend').replaceChildren(el('span.end', {}, 'hurt'), el('span.scale', {}, el('span.swatches', {}, swatches), el('span.ticks', {}, ticks)), el('span.end', {}, 'helped'));
}

function listen() {
  $('lambda').addEventListener('input', () => { settings.lambda = Number($('lambda').value); turned(); });
  $('temperature').addEventListener('input', () => { settings.step = Number($('temperature').value); turned(); });
  $('lambda-tuned').addEventListener('change', event => { settings.lambda = event.target.checked ? null : Number($('lambda').value); turned(); });
  $('temperature-tuned').addEventListener('change', event => { settings.step = event.target.checked ? null : Number($('temperature').value); turned(); });
  $('read').addEventListener('keydown', event => { if (event.key === 'Escape') leave(); });
}

export function startRead() {
  drawLegend();
  listen();
  return {
    update(list) {
      stores = list;
      choice.update(list);
      texts.update(list);
    },
    begin: texts.begin,
  };
}
