// What is known of one token: its probabilities, its neighbours, and the words that were likely in its place.
import {$, el, mark, meter, shown, shownWord, leadingSpace} from './dom.js';
import {digits, fixed, percent, plural, times, whole} from './format.js';
import {levelClass, levelOf} from './mixture.js';
import {openDocument} from './reader.js';
import * as api from './api.js';

const LOOKED_AT = 64, NEAREST = 8, FURTHER = 4, WORDS = 6, AROUND = 14, STILL = 180;
const STRONGEST = 32, TOGETHER = 8;

// Explanations of tokens {index, id, request}: a Map by index. ondone(n) as they come.
export async function explainAll(tokens, ondone) {
  const answers = new Map(), rest = [...tokens];
  const work = async () => {
    for (let token; (token = rest.shift());) {
      answers.set(token.index, await api.explain({...token.request, target_token: token.id, words: 0, neighbors: LOOKED_AT, around: AROUND}));
      ondone(answers.size);
    }
  };
  await Promise.all(Array.from({length: TOGETHER}, work));
  return answers;
}

// The tokens whose probability changed most, by |gain|.
export const strongest = gain => [...gain.keys()].filter(i => gain[i] && Number.isFinite(gain[i]))
  .sort((a, b) => Math.abs(gain[b]) - Math.abs(gain[a])).slice(0, STRONGEST);

function verdict(gain) {
  if (Number.isNaN(gain)) return null;
  if (!gain) return el('p.verdict', {}, 'The neighbours made no difference.');
  const word = gain > 0 ? el('span.helped', {}, 'helped') : el('span.hurt', {}, 'hurt');
  return el('p.verdict', {}, 'The neighbours ', word, `: ${times(gain)} the model’s probability.`);
}

function probabilities({lm, knn, p}) {
  const rows = [['model alone', lm], ['neighbours', knn], ['together', p]].filter(([, v]) => !Number.isNaN(v));
  const most = Math.max(...rows.map(([, v]) => v)) || 1;
  const row = ([name, v]) => el('tr', {}, el('th', {scope: 'row'}, name), el('td.meter-cell', {}, meter(v / most)), el('td', {}, digits(v, 3)), el('td', {}, fixed(Math.log(v), 2)));
  const head = el('tr', {}, el('td'), el('td'), el('th', {scope: 'col'}, 'p'), el('th', {scope: 'col'}, 'log p'));
  return el('table.probabilities', {}, el('thead', {}, head), el('tbody', {}, rows.map(row)));
}

function facts(token) {
  const rows = [['λ', token.lambda], ['nearest', token.nearest], ['entropy', token.entropy]].filter(([, v]) => v !== null && !Number.isNaN(v));
  return el('dl.facts', {}, rows.map(([name, v]) => el('div', {}, el('dt', {}, name), el('dd', {}, digits(v)))));
}

// A passage with the word that the context led to; `hit`: it is the one in question.
export function snippet(before, word, after) {
  const space = leadingSpace(word);
  return el('p.snippet', {lang: ''}, before ? [mark('…'), /^\s/.test(before) ? '' : ' '] : null, shown(before), space,
    el('mark', {}, shownWord(word.slice(space.length))), shown(after), after ? [/\s$/.test(after) ? '' : '\u00a0', mark('…')] : null);
}

function neighborItem(neighbor, token, most) {
  const hit = neighbor.token === token.id;
  return el(hit ? 'li.hit' : 'li', {}, snippet(neighbor.before, neighbor.text, neighbor.after),
    el('p.meta', {}, el('span.share', {}, meter(neighbor.share / most), percent(neighbor.share)),
      hit ? el('span.helped', {}, '✓ the same token') : null, el('span', {}, `distance ${digits(neighbor.distance)}`),
      el('button.link.name', {type: 'button', title: 'Open the document here', click: () => openDocument(neighbor)},
        shown(neighbor.document), ` · position ${whole(neighbor.position)} · ${neighbor.store}`)));
}

// The nearest, and of those further away the first that have the token.
function neighborList({neighbors}, token) {
  if (!neighbors.length) return el('p.small', {}, 'No store was asked: there are no neighbours.');
  const nearest = neighbors.slice(0, NEAREST), further = neighbors.slice(NEAREST).filter(n => n.token === token.id).slice(0, FURTHER);
  const sum = nearest.reduce((all, n) => all + n.share, 0), hits = nearest.filter(n => n.token === token.id).length;
  const most = Math.max(...nearest.map(n => n.share), 1e-9), list = some => el('ol.neighbors', {}, some.map(n => neighborItem(n, token, most)));
  return [el('p.small', {}, `The nearest ${whole(nearest.length)} have ${percent(Math.min(1, sum))} of p`, el('sub', {}, 'kNN'), `; ${hits ? whole(hits) : 'none'} of them went on with this token.`),
    list(nearest), further.length ? [el('h3', {}, 'Further away, with this token'), list(further)] : null];
}

function wordRow(word) {
  const text = word.text.slice(leadingSpace(word.text).length);
  return el(word.target ? 'tr.target' : 'tr', {}, el('th', {scope: 'row', lang: ''}, shownWord(text), word.target ? el('span.off', {}, ' (this token)') : null),
    [word.p_lm, word.p_knn, word.p].map(p => el('td', {}, digits(p, 2))));
}

function wordTable({words}) {
  const head = ['model', 'neighbours', 'together'].map(name => el('th', {scope: 'col'}, name));
  return el('table.words', {}, el('thead', {}, el('tr', {}, el('th', {scope: 'col'}, 'next'), head)), el('tbody', {}, words.map(wordRow)));
}

function explanation(answer, token) {
  const cut = answer.cut ? el('p.small', {}, `Found by the last ${plural(answer.tokens, 'token')} before it.`) : null;
  return [el('h3', {}, 'Nearest neighbours'), neighborList(answer, token), cut, el('h3', {}, 'What else was likely'), wordTable(answer)];
}

function head(token, onclose) {
  const space = leadingSpace(token.text);
  return el('header', {}, el('div', {}, el('p.small', {}, `token ${whole(token.index + 1)}`),
    el('h2', {id: 'token-title', lang: ''}, el('span', {class: 't' + levelClass(levelOf(token.gain))}, shownWord(token.text.slice(space.length))))),
    el('button.close', {type: 'button', 'aria-label': 'Close', click: onclose}, '✕'));
}

// The panel that shows tokens: {index, id, text, lm, knn, p, gain, lambda, nearest, entropy, request}.
export function tokenPanel(panel, onclose) {
  const numbers = el('div'), rest = el('div.rest', {'aria-live': 'polite'});
  let asked = null, request = null;

  async function ask(token) {
    request = new AbortController();
    const {signal} = request;
    rest.setAttribute('aria-busy', 'true');
    try {
      const answer = await api.explain({...token.request, target_token: token.id, words: WORDS, neighbors: LOOKED_AT, around: AROUND}, signal);
      rest.replaceChildren(...explanation(answer, token).flat(Infinity).filter(Boolean));
    } catch (error) {
      if (signal.aborted) return;
      rest.replaceChildren(el('p.problem', {}, error.message));
    }
    rest.removeAttribute('aria-busy');
  }

  return {
    // Numbers at once; neighbours when it stays a moment (at once with `now`).
    show(token, now = false) {
      if (panel.hidden || asked?.index !== token.index) rest.replaceChildren(el('p.small', {}, 'Looking for the nearest…'));
      clearTimeout(asked?.timer);
      request?.abort();
      numbers.replaceChildren(head(token, onclose), ...[verdict(token.gain), probabilities(token), facts(token)].filter(Boolean));
      if (panel.hidden) panel.replaceChildren(numbers, rest);
      panel.hidden = false;
      asked = {index: token.index, timer: setTimeout(() => ask(token), now ? 0 : STILL)};
    },
    hide() {
      clearTimeout(asked?.timer);
      request?.abort();
      panel.hidden = true;
    },
  };
}
