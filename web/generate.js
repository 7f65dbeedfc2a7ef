// The panel that writes: words stream in, with the stores, and beside that without them where one likes.
import {$} from './dom.js';
import {calm, problem} from './notice.js';
import {carriedPart, copyText, knnOf, numberOf, takeTurns} from './sampling.js';
import {plural} from './format.js';
import {sourcePanel} from './sources.js';
import {storeChoice} from './choice.js';
import {writer} from './writer.js';
import {hide as hideTip} from './tip.js';
import * as api from './api.js';

const SEEDS = 2 ** 32;

let request = null;

const choice = storeChoice($('generate-stores'), () => {});
const sources = sourcePanel({section: $('generate'), card: $('sources-card'), list: $('sources'), passage: $('passage')});
const mixed = writer($('output'), () => sources.changed(mixed)), alone = writer($('alone'));
sources.add(mixed, $('output'));
sources.turnTo(mixed);

// ---------------------------------------------------------------- a request

async function generate() {
  clear();
  busy(true);
  const own = request = new AbortController(), beside = $('beside').checked;
  const body = {prompt: $('prompt').value, max_tokens: numberOf('length'), temperature: numberOf('heat'), top_p: numberOf('top-p'), seed: numberOf('seed')};
  if (body.temperature !== 0) body.dry_multiplier = 0.8; // as knnlm generate: a drawn text does not go round in circles
  if (beside) body.seed ??= Math.floor(Math.random() * SEEDS); // what differs is the neighbours' doing
  try {
    await Promise.all([follow({...body, knn: knnOf(choice)}, own.signal), beside ? followAlone({...body, knn: {stores: []}}, own.signal) : null]);
  } catch (error) {
    if (own.signal.aborted) progress('stopped after');
    else problem(error);
    own.abort();
  }
  if (request === own) busy(false);
}

async function follow(body, signal) {
  let reason = null;
  for await (const choice of api.complete(body, signal)) {
    mixed.take(choice);
    reason = choice.finish_reason ?? reason;
    $('generate-count').textContent = `${plural(mixed.counts().count, 'token')}…`;
  }
  progress(reason === 'stop' ? 'the text ended after' : 'wrote');
  sources.refresh();
}

async function followAlone(body, signal) {
  for await (const choice of api.complete(body, signal)) alone.take(choice);
}

function progress(how) {
  $('generate-count').setAttribute('aria-live', 'polite');
  $('generate-count').textContent = `${how} ${plural(mixed.counts().count, 'token')}${carriedPart(mixed)}`;
}

function clear() {
  calm();
  request?.abort();
  sources.close();
  hideTip();
  mixed.begin($('prompt').value);
  alone.begin($('prompt').value);
  $('written').classList.toggle('beside', $('beside').checked);
  $('alone-text').hidden = !$('beside').checked;
  $('written').hidden = false;
}

async function copyAll() {
  if (await copyText($('output').querySelector('.prompt').textContent + mixed.plain())) $('generate-count').textContent = 'copied, with its sources';
}

function busy(is) {
  takeTurns($('generate-go'), $('stop'), is);
  $('copy').disabled = is;
  $('output').setAttribute('aria-busy', is);
  if (!is) return;
  $('generate-count').setAttribute('aria-live', 'off'); // not every token is said aloud
  $('generate-count').textContent = 'reading the prompt…';
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
  return {update: stores => choice.update(stores)};
}
