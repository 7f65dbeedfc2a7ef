// The panel that reads a text: every token in the colour of what the neighbours changed.
import {$, el, leadingSpace, readable, shown} from './dom.js';
import {digits, percent, plural, signedPercent, times} from './format.js';
import {columnsOf, gains, grid, knnAt, levelClass, levelOf, mix, perplexity} from './mixture.js';
import {calm, note, problem} from './notice.js';
import {actions} from './actions.js';
import {comparison} from './compare.js';
import {extremes} from './extremes.js';
import {knobs} from './knobs.js';
import {origins} from './origins.js';
import {progressBar, score} from './score.js';
import {readFragment} from './link.js';
import {storeChoice} from './choice.js';
import {strip} from './strip.js';
import {roving} from './roving.js';
import {textPicker} from './texts.js';
import {tips, hide as hideTip} from './tip.js';
import {tokenPanel} from './explain.js';

let stores = [];
let request = null; // of /v1/score, under way
let text = null;    // that was read
let read = null;    // {ids, texts, tokens, columns, temperatures}
let spans = [], levels = [], p = [], gain = [];
let opened = -1;

const turning = knobs(turned), {settings} = turning;
const choice = storeChoice($('read-stores'), () => { if (text !== null) start(text); });
const panel = tokenPanel($('token'), leave);
const walk = roving($('tokens'), {items: () => spans, onmove: i => { if (opened >= 0) openToken(i); }, onopen: enter});
const most = extremes(pick);
const along = strip(pick);
const kept = comparison(pick);
const whence = origins({request: () => ({tokens: read.ids, knn: knnOf()})});
const bar = progressBar();
const texts = textPicker(start);
tips($('tokens'), describe);
actions({reading: () => ({...read, text, settings, p, gain, tokenOf, names: chosen(), knn: choice.knn(), model: $('models').hidden ? null : $('model').textContent}), keep: () => kept.keep(compared())});

// ---------------------------------------------------------------- asking the server

const chosen = () => stores.filter(store => choice.isOn(store.name)).map(store => store.name);

async function start(asked) {
  calm();
  if (!asked) return problem(new Error('There is no text to read.'));
  request?.abort();
  const own = request = new AbortController(), temperatures = grid(stores.filter(store => choice.isOn(store.name)));
  const onpart = answer => {
    text = asked;
    draw(answer, temperatures);
  };
  busy(true);
  try {
    await score({text: asked, knn: {...choice.knn(), temperatures}, signal: own.signal, onpart, onprogress: bar.show});
  } catch (error) {
    problem(error);
  }
  if (request !== own) return;
  busy(false);
  if (text === asked) onread();
  if (own.signal.aborted) $('read-count').textContent = text === asked ? `stopped after ${plural(read.ids.length, 'token')}` : 'stopped';
}

function busy(is) {
  $('read-go').textContent = is ? 'Reading…' : 'Read it';
  $('reading').setAttribute('aria-busy', is);
  bar.stop();
  if (is) note('');
}

// ---------------------------------------------------------------- the text

function spanOf(word, i) {
  const span = el('span', {role: 'button', tabindex: i ? -1 : 0, 'data-i': i}, shown(word, 'token'));
  span.className = 't';
  return span;
}

function draw({tokens}, temperatures) {
  const ids = tokens.map(token => token.token), before = read;
  read = {ids, tokens, temperatures, columns: columnsOf(tokens), texts: readable(tokens.map(token => token.text))};
  drawTokens(before);
  turning.fit(read);
  $('reading').hidden = false;
  $('read-count').textContent = plural(tokens.length, 'token');
  update();
  if (opened >= 0) openToken(opened);
}

// What the text before had at its beginning stays: of a long text more and more comes.
function drawTokens(before) {
  let same = 0;
  while (before && same < read.ids.length && read.ids[same] === before.ids[same] && read.texts[same] === before.texts[same]) same++;
  if (opened >= same) close();
  hideTip();
  if (before && same < before.ids.length) {
    while ($('tokens').lastChild !== (spans[same - 1] ?? null)) $('tokens').lastChild.remove();
    spans.length = levels.length = same;
  }
  const nodes = document.createDocumentFragment();
  for (let i = same; i < read.texts.length; i++) {
    const word = read.texts[i], space = leadingSpace(word), span = spanOf(word.slice(space.length), i);
    nodes.append(space, span);
    spans.push(span);
    levels.push(null);
  }
  $('tokens').append(nodes);
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
  turning.draw(read);
  most.update({texts: read.texts, lm: read.columns.lm, p, gain, levels});
  along.update(gain);
  kept.update(compared());
  whence.clear();
}

// The model is part of it where there are several.
const modelName = () => $('models').hidden ? '' : `${$('model').textContent}, `;
const nameOf = () => `${modelName()}λ ${$('lambda-out').textContent}, T ${$('temperature-out').textContent}, ${chosen().join(' + ') || 'no store'}`;
const compared = () => ({ids: read.ids, texts: read.texts, gain, perplexity: perplexity(p), name: nameOf()});

const classOf = i => `t${read.texts[i] ? '' : ' part'}${levelClass(levels[i])}${i === opened ? ' open' : ''}`;

function drawFigures() {
  const alone = perplexity(read.columns.lm), mixed = perplexity(p);
  $('ppl-lm').textContent = digits(alone);
  $('ppl').textContent = digits(mixed);
  $('ppl-change').textContent = signedPercent(mixed / alone - 1);
  $('ppl-change').className = mixed < alone ? 'helped' : mixed > alone ? 'hurt' : '';
  drawShares();
}

// Of all tokens, and what it made of one on average.
function drawShares() {
  const part = (sign, word) => {
    const some = gain.filter(g => g * sign > 0), each = some.reduce((sum, g) => sum + g, 0) / some.length;
    return some.length ? [el(`b.${word}`, {}, word), ` ${percent(some.length / gain.length)} of the tokens (${times(each)} on average)`] : [el(`b.${word}`, {}, word), ' none'];
  };
  $('shares').replaceChildren(...part(1, 'helped'), ', ', ...part(-1, 'hurt'));
}

let waiting = 0;
function turned() {
  if (!waiting && read) waiting = requestAnimationFrame(() => {
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

function pick(i) {
  walk.goTo(i, 'center');
  openToken(i, true);
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

let chooseModel = null, onread = null;

// A link that was followed: its text, settings and model. False: it has no text.
async function follow() {
  try {
    const found = await readFragment(location.hash);
    if (!found) return false;
    if (found.model) await chooseModel(found.model);
    choice.set(found.stores);
    turning.wish(found);
    $('read-text').value = found.text;
    $('samples').value = '';
    start(found.text);
    return true;
  } catch (error) {
    problem(error);
    return false;
  }
}

// chooseModel(name): the page speaks with that one from now on. onread(): a text was read.
export function startRead(doors) {
  ({chooseModel, onread} = doors);
  drawLegend();
  $('read').addEventListener('keydown', event => { if (event.key === 'Escape') leave(); });
  $('read-cancel').addEventListener('click', () => request?.abort());
  addEventListener('hashchange', follow);
  return {
    update(list) {
      stores = list;
      choice.update(list);
      texts.update(list);
      whence.clear(); // documents may have come or gone
    },
    // The token that is open, and those before it.
    present: () => opened < 0 ? null : {text: read.texts[opened], tokens: read.ids.slice(0, opened)},
    // What each document did for the text that was read; null: none was, or without stores.
    gains: () => text === null || $('reading').getAttribute('aria-busy') === 'true' ? null : whence.ask(),
    // The same text, by another model.
    again() {
      turning.wish({lambda: settings.lambda, temperature: null});
      if (text !== null) start(text);
    },
    async begin() {
      if (!await follow()) texts.begin();
    },
  };
}
