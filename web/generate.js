// The panel that writes: words stream in, with the stores, and beside that without them where one likes.
import {$, el, shown} from './dom.js';
import {copy} from './clipboard.js';
import {percent, plural, whole} from './format.js';
import {calm, problem} from './notice.js';
import {passagePanel} from './passage.js';
import {storeChoice} from './choice.js';
import {roving} from './roving.js';
import {styleOf, writer} from './writer.js';
import {tips, hide as hideTip} from './tip.js';
import * as api from './api.js';

const REDRAW = 150, SEEDS = 2 ** 32;

let request = null, drawing = 0;

const choice = storeChoice($('generate-stores'), () => {});
const panel = passagePanel($('passage'), leave);
const mixed = writer($('output'), drawSources), alone = writer($('alone'));
const walk = roving($('output'), {items: mixed.runs, onopen: i => openRun(i)});
tips($('output'), describe);

// ---------------------------------------------------------------- a request

const numberOf = id => $(id).value === '' ? undefined : Number($(id).value);

// What is left out is as tuned.
function knnOf() {
  const knn = {...choice.knn(), explain: true};
  for (const name of ['lambda', 'temperature', 'k']) if ($(`knn-${name}`).value !== '') knn[name] = Number($(`knn-${name}`).value);
  return knn;
}

async function generate() {
  clear();
  busy(true);
  const own = request = new AbortController(), beside = $('beside').checked;
  const body = {prompt: $('prompt').value, max_tokens: numberOf('length'), temperature: numberOf('heat'), top_p: numberOf('top-p'), seed: numberOf('seed')};
  if (beside) body.seed ??= Math.floor(Math.random() * SEEDS); // what differs is the neighbours' doing
  try {
    await Promise.all([follow({...body, knn: knnOf()}, own.signal), beside ? followAlone({...body, knn: {stores: []}}, own.signal) : null]);
  } catch (error) {
    if (own.signal.aborted) progress('stopped after');
    else problem(error);
    own.abort();
  }
  if (request === own) busy(false);
}

async function follow(body, signal) {
  let reason = null;
  for await (const {choices} of api.complete(body, signal)) {
    if (!choices.length) continue;
    mixed.take(choices[0]);
    reason = choices[0].finish_reason ?? reason;
    $('generate-count').textContent = `${plural(mixed.counts().count, 'token')}…`;
  }
  progress(reason === 'stop' ? 'the text ended after' : 'wrote');
  if (!$('passage').hidden) panel.show(mixed.source(Number($('passage').dataset.number)));
}

async function followAlone(body, signal) {
  for await (const {choices} of api.complete(body, signal)) if (choices.length) alone.take(choices[0]);
}

function progress(how) {
  const {count, carried} = mixed.counts();
  $('generate-count').setAttribute('aria-live', 'polite');
  const part = count ? `, ${percent(carried / count)} of them in ${plural(mixed.numbered().length, 'passage')} of the stores` : '';
  $('generate-count').textContent = `${how} ${plural(count, 'token')}${part}`;
}

function clear() {
  calm();
  request?.abort();
  close();
  hideTip();
  mixed.begin($('prompt').value);
  alone.begin($('prompt').value);
  $('written').classList.toggle('beside', $('beside').checked);
  $('alone-text').hidden = !$('beside').checked;
  $('written').hidden = false;
}

async function copyAll() {
  const done = await copy($('output').querySelector('.prompt').textContent + mixed.plain());
  if (done) $('generate-count').textContent = 'copied, with its sources';
  else problem(new Error('The browser lets this page copy nothing: it does so by https, or on this machine alone.'));
}

// Focus goes along with the button that can be pressed.
function busy(is) {
  const [from, to] = is ? [$('generate-go'), $('stop')] : [$('stop'), $('generate-go')];
  const had = document.activeElement === from;
  to.disabled = false;
  if (had) to.focus();
  from.disabled = true;
  $('copy').disabled = is;
  $('output').setAttribute('aria-busy', is);
  if (!is) return;
  $('generate-count').setAttribute('aria-live', 'off'); // not every token is said aloud
  $('generate-count').textContent = 'reading the prompt…';
}

// ---------------------------------------------------------------- sources

function sourceItem(source) {
  return el('li', {}, el('button', {type: 'button', 'data-number': source.number},
    el('span', {class: `badge ${styleOf(source)}`}, source.footnote),
    el('span.about', {}, el('span.name', {}, shown(source.document)), el('span.quote', {lang: ''}, shown(source.text.trim())),
      el('span.small', {}, `${plural(source.tokens, 'token')} · share ${percent(source.share)} · position ${whole(source.position)} · ${source.store}`))));
}

function drawSources() {
  if (!drawing) drawing = setTimeout(() => {
    drawing = 0;
    const focused = document.activeElement?.dataset?.number;
    $('sources').replaceChildren(...mixed.numbered().map(sourceItem));
    $('sources-card').hidden = !mixed.numbered().length;
    if (focused) $('sources').querySelector(`[data-number="${focused}"]`)?.focus();
  }, REDRAW);
}

function describe(i) {
  const source = mixed.source(Number(mixed.runs()[i].dataset.source));
  return source ? [el('b', {}, source.footnote ? `${source.footnote} ` : ''), el('span.name', {}, shown(source.document)), ` · share ${percent(source.share)}`] : [];
}

let from = null; // where the focus goes back to
function openSource(number, element) {
  const source = mixed.source(number);
  if (!source) return;
  from = element;
  hideTip();
  for (const run of mixed.runs()) run.classList.toggle('open', Number(run.dataset.source) === number);
  $('generate').classList.add('opened');
  panel.show(source);
  if (element.dataset.i) element.scrollIntoView({block: 'nearest'});
}

function openRun(i) {
  const run = mixed.runs()[i];
  openSource(Number(run.dataset.source), run);
}

function close() {
  panel.hide();
  $('generate').classList.remove('opened');
  for (const run of mixed.runs()) run.classList.remove('open');
}

function leave() {
  if ($('passage').hidden) return;
  close();
  const back = from?.isConnected ? from : $('sources').querySelector(`[data-number="${from?.dataset.number}"]`);
  if (back?.dataset.i) walk.makeCurrent(Number(back.dataset.i));
  back?.focus({preventScroll: true});
}

// ---------------------------------------------------------------- listening

export function startGenerate() {
  $('prompt').value = 'How do I read a file';
  $('generate-form').addEventListener('submit', event => {
    event.preventDefault();
    generate();
  });
  $('copy').addEventListener('click', copyAll);
  $('stop').addEventListener('click', () => request?.abort());
  $('sources').addEventListener('click', event => {
    const button = event.target.closest('[data-number]');
    if (button) openSource(Number(button.dataset.number), button);
  });
  $('generate').addEventListener('keydown', event => { if (event.key === 'Escape') leave(); });
  return {update: stores => choice.update(stores)};
}
