// The panel that writes: words stream in, each passage of a store among them is underlined and numbered. A single word
// that a store carried is marked quietly.
import {$, el, readable, shown} from './dom.js';
import {percent, plural, whole} from './format.js';
import {calm, problem} from './notice.js';
import {passagePanel} from './passage.js';
import {storeChoice} from './choice.js';
import {roving} from './roving.js';
import {tips, hide as hideTip} from './tip.js';
import * as api from './api.js';

const STYLES = 6; // .s0 to .s5 of style.css
const REDRAW = 150;

let request = null;
let runs = [];             // elements of what stands in a source
let last = null;           // the run that grows: {source, node}; null: what stands in none
let space = '';            // white space that came after it
let sources = new Map();   // by number
let lengths = new Map();   // tokens of each that came
let count = 0, carried = 0;

const choice = storeChoice($('generate-stores'), () => {});
const panel = passagePanel($('passage'), leave);
const walk = roving($('output'), {items: () => runs, onopen: i => openRun(i)});
tips($('output'), describe);

// ---------------------------------------------------------------- words as they come

// The text of a chunk, cut where its tokens end: [[piece, token]]. Tokens that end within a character get its rest.
function piecesOf(chunk, tokens) {
  const words = readable(tokens.map(token => token.text)), pieces = [];
  let at = 0;
  tokens.forEach((token, i) => {
    const end = i === tokens.length - 1 ? chunk.length : chunk.startsWith(words[i], at) ? at + words[i].length : at;
    pieces.push([chunk.slice(at, end), token]);
    at = end;
  });
  return tokens.length ? pieces : [[chunk, null]];
}

// White space around a run is not part of it; that between two words of it is.
function write(text, source) {
  const words = text.trim(), before = space + text.slice(0, text.indexOf(words));
  if (!words) {
    space += text;
    return;
  }
  space = text.slice(text.indexOf(words) + words.length);
  if (last?.source === source) return extend(before + words);
  $('output').append(before);
  last = source === null ? null : startRun(source);
  extend(words);
}

function extend(text) {
  const nodes = shown(text, 'text');
  if (last) last.node.lastChild.before(el('span', {}, nodes));
  else $('output').append(...nodes);
}

const styleOf = ({footnote}) => footnote ? `s${(footnote - 1) % STYLES}` : 'lone';

function startRun(source) {
  const known = sources.get(source);
  const node = el('span', {role: 'button', tabindex: runs.length ? -1 : 0, 'data-i': runs.length, 'data-source': source, class: `run ${styleOf(known)}`},
    el('sup', {}, known.footnote));
  $('output').append(node);
  runs.push(node);
  return {source, node};
}

function take({text, knn}) {
  for (const source of knn?.sources ?? []) sources.set(source.number, source);
  for (const [piece, token] of piecesOf(text, knn?.tokens ?? [])) {
    write(piece, token?.source ?? null);
    if (token) tally(piece, sources.get(token.source));
  }
  if (knn?.tokens?.length || knn?.sources?.length) drawSources();
}

// A source comes with its first tokens, and again when it has ended: until then it grows here.
function tally(piece, source) {
  count++;
  if (!source) return;
  if (source.footnote) carried++;
  const taken = (lengths.get(source.number) ?? 0) + 1;
  lengths.set(source.number, taken);
  if (taken <= source.tokens) return;
  source.tokens = taken;
  source.text += piece;
}

// ---------------------------------------------------------------- a request

const numberOf = id => $(id).value === '' ? undefined : Number($(id).value);

async function generate() {
  clear();
  busy(true);
  const own = request = new AbortController();
  try {
    await follow(own.signal);
  } catch (error) {
    if (own.signal.aborted) progress('stopped after');
    else problem(error);
  }
  if (request === own) busy(false);
}

async function follow(signal) {
  const body = {
    prompt: $('prompt').value, max_tokens: numberOf('length'), temperature: numberOf('heat'), top_p: numberOf('top-p'), seed: numberOf('seed'),
    knn: {...choice.knn(), explain: true},
  };
  let reason = null;
  for await (const {choices} of api.complete(body, signal)) {
    if (!choices.length) continue;
    take(choices[0]);
    reason = choices[0].finish_reason ?? reason;
    $('generate-count').textContent = `${plural(count, 'token')}…`;
  }
  progress(reason === 'stop' ? 'the text ended after' : 'wrote');
  if (!$('passage').hidden) panel.show(sources.get(Number($('passage').dataset.number)));
}

function progress(how) {
  $('generate-count').setAttribute('aria-live', 'polite');
  const part = count ? `, ${percent(carried / count)} of them in ${plural(numbered().length, 'passage')} of the stores` : '';
  $('generate-count').textContent = `${how} ${plural(count, 'token')}${part}`;
}

function clear() {
  calm();
  request?.abort();
  close();
  hideTip();
  [runs, last, space, sources, lengths, count, carried] = [[], null, '', new Map(), new Map(), 0, 0];
  $('output').replaceChildren(el('span.prompt', {}, shown($('prompt').value, 'text')));
  $('written').hidden = false;
  drawSources();
}

// Focus goes along with the button that can be pressed.
function busy(is) {
  const [from, to] = is ? [$('generate-go'), $('stop')] : [$('stop'), $('generate-go')];
  const had = document.activeElement === from;
  to.disabled = false;
  if (had) to.focus();
  from.disabled = true;
  $('output').setAttribute('aria-busy', is);
  if (!is) return;
  $('generate-count').setAttribute('aria-live', 'off'); // not every token is said aloud
  $('generate-count').textContent = 'reading the prompt…';
}

// ---------------------------------------------------------------- sources

const numbered = () => [...sources.values()].filter(source => source.footnote).sort((a, b) => a.footnote - b.footnote);

function sourceItem(source) {
  return el('li', {}, el('button', {type: 'button', 'data-number': source.number},
    el('span', {class: `badge ${styleOf(source)}`}, source.footnote),
    el('span.about', {}, el('span.name', {}, shown(source.document)), el('span.quote', {lang: ''}, shown(source.text.trim())),
      el('span.small', {}, `${plural(source.tokens, 'token')} · share ${percent(source.share)} · position ${whole(source.position)} · ${source.store}`))));
}

let drawing = 0;
function drawSources() {
  if (!drawing) drawing = setTimeout(() => {
    drawing = 0;
    const focused = document.activeElement?.dataset?.number;
    $('sources').replaceChildren(...numbered().map(sourceItem));
    $('sources-card').hidden = !numbered().length;
    if (focused) $('sources').querySelector(`[data-number="${focused}"]`)?.focus();
  }, REDRAW);
}

function describe(i) {
  const source = sources.get(Number(runs[i].dataset.source));
  return source ? [el('b', {}, source.footnote ? `${source.footnote} ` : ''), el('span.name', {}, shown(source.document)), ` · share ${percent(source.share)}`] : [];
}

let from = null; // where the focus goes back to
function openSource(number, element) {
  const source = sources.get(number);
  if (!source) return;
  from = element;
  hideTip();
  for (const run of runs) run.classList.toggle('open', Number(run.dataset.source) === number);
  $('generate').classList.add('opened');
  panel.show(source);
  if (element.dataset.i) element.scrollIntoView({block: 'nearest'});
}

function openRun(i) {
  openSource(Number(runs[i].dataset.source), runs[i]);
}

function close() {
  panel.hide();
  $('generate').classList.remove('opened');
  for (const run of runs) run.classList.remove('open');
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
  $('stop').addEventListener('click', () => request?.abort());
  $('sources').addEventListener('click', event => {
    const button = event.target.closest('[data-number]');
    if (button) openSource(Number(button.dataset.number), button);
  });
  $('generate').addEventListener('keydown', event => { if (event.key === 'Escape') leave(); });
  return {update: stores => choice.update(stores)};
}
