// Which documents helped a text and which hurt it: the server shares the gain of its tokens out to them.
import {$, el, meter, shown} from './dom.js';
import {fixed, plural} from './format.js';
import {openDocument} from './reader.js';
import * as api from './api.js';

const ASKED = 1000, SHOWN = 12;

export const nats = gain => el('span', {class: `number ${gain > 0 ? 'helped' : gain < 0 ? 'hurt' : ''}`}, `${gain > 0 ? '+' : ''}${fixed(gain, 2)}`);

function documentItem({gain, ...at}, most) {
  return el('li', {}, el('button.link.name', {type: 'button', title: 'Open the document where it mattered most', click: () => openDocument(at)}, shown(at.document)), meter(Math.abs(gain) / most), nats(gain));
}

function result({total, stores, documents, others}, tokens) {
  const most = Math.abs(documents[0].gain) || 1, rest = documents.slice(SHOWN);
  const more = {documents: others.documents + rest.length, gain: rest.reduce((sum, {gain}) => sum + gain, others.gain)};
  return [el('p.small', {}, `Of ${plural(tokens, 'token')}, in nats: `, nats(total), ' in all. A document gains where its words came, and loses where others did.'),
    el('ul.origins.by-store', {}, stores.map(({store, gain}) => el('li', {}, el('b.name', {}, store), nats(gain)))),
    el('ol.origins.by-document', {}, documents.slice(0, SHOWN).map(one => documentItem(one, most))),
    more.documents ? el('p.small', {}, `and ${plural(more.documents, 'document')} more: `, nats(more.gain)) : null].filter(Boolean);
}

// request(): of /v1/score, for the text and the settings of now.
export function origins({request}) {
  const body = $('origins-body'), button = $('origins-go');
  let known = null, own = null; // a promise of what was found; its request

  function clear() {
    own?.abort();
    known = own = null;
    body.replaceChildren();
    button.hidden = button.disabled = false;
    button.textContent = 'Find out';
  }

  function close(found) {
    const had = document.activeElement === button;
    button.disabled = false;
    button.hidden = found;
    button.textContent = 'Find out';
    if (found && had) body.querySelector('button')?.focus();
  }

  async function find(signal) {
    button.disabled = true;
    button.textContent = 'Asking…';
    const {gain, count} = await api.score({...request(), documents: ASKED}, signal);
    body.replaceChildren(...gain.documents.length ? result(gain, count) : [el('p.small', {}, 'The neighbours changed nothing.')]);
    return gain;
  }

  // Found out once for each reading and its settings. Null: it was asked for in vain.
  function ask() {
    if (known) return known;
    const mine = own = new AbortController();
    known = find(mine.signal).catch(error => {
      if (!mine.signal.aborted) {
        body.replaceChildren(el('p.problem', {}, error.message));
        known = null;
      }
      return null;
    }).finally(() => { if (own === mine) close(Boolean(known)); });
    return known;
  }

  button.addEventListener('click', ask);
  return {clear, ask};
}
