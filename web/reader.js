// A document of a store in a window of its own, opened at one of its words; one can read on in both directions.
import {$, el, leadingSpace, mark, shown} from './dom.js';
import {whole} from './format.js';
import * as api from './api.js';

const AROUND = 300, STEP = 2 * AROUND;

const dialog = $('document'), title = $('document-title'), about = $('document-about'), body = $('document-body');
let place = null;   // {store, document, entry, position, begins, ends}: what is shown
let request = null;

// A quiet ellipsis where the document goes on.
export function passageText({before, text, after, begins, ends}) {
  const space = leadingSpace(text);
  return el('p.passage', {lang: ''}, begins ? null : mark('…'), shown(before, 'text'), space, el('mark', {}, shown(text.slice(space.length), 'text')),
    shown(after, 'text'), ends ? null : mark('…'));
}

async function show(store, entry, tokens, wanted = () => true) {
  request?.abort();
  const {signal} = request = new AbortController();
  const found = await api.passage(store, entry, {around: AROUND, tokens}, signal);
  if (!wanted(found)) return false;
  place = {...found, entry};
  title.replaceChildren(...shown(found.document));
  about.textContent = `${store} · token ${whole(found.position)}, byte ${whole(found.offset)}`;
  body.replaceChildren(passageText(found));
  $('document-earlier').disabled = found.begins;
  $('document-later').disabled = found.ends;
  return true;
}

function fail(error) {
  if (error.name !== 'AbortError') body.replaceChildren(el('p.problem', {}, error.message));
}

// Where a document ends is not told: a step that would leave it is halved.
async function turn(sign) {
  const {store, entry, position, document} = place;
  for (let step = sign < 0 ? Math.min(STEP, position) : STEP; step >= 1; step = Math.floor(step / 2)) {
    try {
      if (await show(store, entry + sign * step, 1, found => found.document === document && found.position === position + sign * step)) {
        body.scrollTop = 0;
        return;
      }
    } catch (error) {
      if (error.status !== 404) return fail(error);
    }
  }
}

// {store, entry, document}: as neighbours and sources have it; `tokens` of it are marked.
export async function openDocument({store, entry, document}, tokens = 1) {
  title.replaceChildren(...shown(document));
  about.textContent = store;
  body.replaceChildren(el('p.small', {}, 'Fetching the passage…'));
  if (!dialog.open) dialog.showModal();
  try {
    await show(store, entry, tokens);
    const mark = body.querySelector('mark');
    body.scrollTop += mark.getBoundingClientRect().top - body.getBoundingClientRect().top - body.clientHeight / 2;
  } catch (error) {
    fail(error);
  }
}

$('document-earlier').addEventListener('click', () => turn(-1));
$('document-later').addEventListener('click', () => turn(1));
$('document-close').addEventListener('click', () => dialog.close());
dialog.addEventListener('close', () => request?.abort());
