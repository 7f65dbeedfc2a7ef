// Where gain and loss came from: the tokens that changed most are explained, and what each won or lost goes to the
// documents of the neighbours that had a part in it.
import {$, el, meter, shown} from './dom.js';
import {fixed, percent, plural} from './format.js';
import {openDocument} from './reader.js';
import * as api from './api.js';

const TOKENS = 32, NEIGHBORS = 100, AROUND = 10, TOGETHER = 8, SHOWN = 12;

// Explanations of tokens {index, id, request}: a Map by index. ondone(n) as they come.
export async function explainAll(tokens, signal, ondone = () => {}) {
  const answers = new Map(), rest = [...tokens];
  const work = async () => {
    for (let token; (token = rest.shift());) {
      answers.set(token.index, await api.explain({...token.request, target_token: token.id, words: 0, neighbors: NEIGHBORS, around: AROUND}, signal));
      ondone(answers.size);
    }
  };
  await Promise.all(Array.from({length: TOGETHER}, work));
  return answers;
}

// The tokens whose probability changed most, by |gain|.
export const strongest = (gain, count = TOKENS) => [...gain.keys()].filter(i => gain[i] && Number.isFinite(gain[i]))
  .sort((a, b) => Math.abs(gain[b]) - Math.abs(gain[a])).slice(0, count);

// What helped had the token, what hurt had others.
function credit({neighbors}, id, gain, add) {
  const part = neighbors.filter(n => (n.token === id) === gain > 0), sum = part.reduce((all, n) => all + n.share, 0);
  if (!sum) return add(null, gain);
  for (const n of part) add(n, gain * n.share / sum);
}

function sums(tokens, answers) {
  const documents = new Map(), stores = new Map();
  const add = (n, gain) => {
    const key = n ? `${n.store}\0${n.document}` : '', one = documents.get(key) ?? {gain: 0, neighbor: n};
    one.gain += gain;
    documents.set(key, one);
    stores.set(n?.store ?? null, (stores.get(n?.store ?? null) ?? 0) + gain);
  };
  for (const token of tokens) credit(answers.get(token.index), token.id, token.gain, add);
  return {documents: [...documents.values()].sort((a, b) => Math.abs(b.gain) - Math.abs(a.gain)), stores};
}

const nats = gain => el('span', {class: `number ${gain > 0 ? 'helped' : 'hurt'}`}, `${gain > 0 ? '+' : ''}${fixed(gain, 2)}`);

function documentItem({gain, neighbor}, most) {
  const name = neighbor ? el('button.link.name', {type: 'button', click: () => openDocument(neighbor)}, shown(neighbor.document)) : el('span.name', {}, 'neighbours further away');
  return el('li', {}, name, meter(Math.abs(gain) / most), nats(gain));
}

function result(tokens, answers, all) {
  const {documents, stores} = sums(tokens, answers), part = tokens.reduce((sum, t) => sum + Math.abs(t.gain), 0) / all;
  const most = Math.max(...documents.map(d => Math.abs(d.gain)), 1e-9), named = [...stores].filter(([name]) => name !== null);
  const rows = named.map(([name, gain]) => el('li', {}, el('b.name', {}, name), nats(gain)));
  return [el('p.small', {}, `In nats, of the ${plural(tokens.length, 'token')} that changed most: ${percent(part)} of all change.`),
    el('ul.origins.by-store', {}, rows), el('ol.origins.by-document', {}, documents.slice(0, SHOWN).map(d => documentItem(d, most))),
    documents.length > SHOWN ? el('p.small', {}, `and ${plural(documents.length - SHOWN, 'document')} with less`) : null].filter(Boolean);
}

// tokenOf(i): as of tokenPanel; gains(): those of now.
export function origins({tokenOf, gains}) {
  const body = $('origins-body'), button = $('origins-go');
  let request = null;
  function clear() {
    request?.abort();
    request = null;
    body.replaceChildren();
    button.disabled = false;
    button.textContent = 'Find out';
  }
  async function ask() {
    clear();
    const own = request = new AbortController(), gain = gains(), tokens = strongest(gain).map(tokenOf);
    button.disabled = true;
    try {
      const answers = await explainAll(tokens, own.signal, n => { button.textContent = `${n} of ${tokens.length}…`; });
      if (own.signal.aborted) return;
      const all = gain.reduce((sum, g) => sum + (Number.isFinite(g) ? Math.abs(g) : 0), 0);
      body.replaceChildren(...tokens.length ? result(tokens, answers, all) : [el('p.small', {}, 'The neighbours changed nothing.')]);
    } catch (error) {
      if (own.signal.aborted) return;
      own.abort();
      body.replaceChildren(el('p.problem', {}, error.message));
    }
    button.disabled = false;
    button.textContent = 'Again';
  }
  button.addEventListener('click', ask);
  return {clear};
}
