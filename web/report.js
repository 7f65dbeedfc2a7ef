// A reading as one file that needs no server: the page of `knnlm eval --report` (web/report.html) with this reading's data,
// as src/eval/report.h describes them.
import {digits, fixed, percent, signedPercent, whole} from './format.js';

const PLACE = '@KNNLM_DATA@', NEIGHBORS = 8, DIGITS = 5;

const number = v => Number.isNaN(v) || v === null ? null : v === Infinity ? 'inf' : v === -Infinity ? '-inf' : Number(v.toPrecision(DIGITS));

function neighborRow(n, id, names) {
  if (!names.includes(n.document)) names.push(n.document);
  return [n.before, n.text, n.after, names.indexOf(n.document), n.position, number(n.share), number(n.distance), n.token === id ? 1 : 0];
}

function tokenRow(reading, i, names) {
  const {lm, knn, p, lambda, nearest, entropy} = reading.tokenOf(i), found = reading.explained.get(i)?.neighbors ?? [];
  return [...[Math.log(lm), Math.log(knn), NaN, Math.log(p), lambda, nearest, entropy].map(number),
    found.slice(0, NEIGHBORS).map(n => neighborRow(n, reading.ids[i], names)), reading.texts[i]];
}

function rowsOf({alone, mixed, helped, hurt, ids, lambda, temperature, stores, model}) {
  return [['model', model], ['stores', stores.join(', ') || 'none'], ['tokens', whole(ids.length)], ['λ', lambda], ['T', temperature],
    ['model’s perplexity', digits(alone)], ['with neighbours', `${digits(mixed)} (${signedPercent(mixed / alone - 1)})`], ['helped, of the tokens', percent(helped)],
    ['hurt, of the tokens', percent(hurt)]];
}

function curveOf({curve, marked}) {
  return {title: 'Perplexity over λ', x_label: 'λ', y_label: 'perplexity', log_x: false, marked_x: number(marked), x: curve.x.map(number), y: curve.y.map(number)};
}

// reading: {title, model, stores, ids, texts, tokenOf, explained (a Map of explanations by token), alone, mixed, helped, hurt,
// lambda, temperature (as text), curve {x, y} or null, marked}.
function dataOf(reading) {
  const names = [reading.title], tokens = [0, ...reading.ids.map((_, i) => tokenRow(reading, i, names))];
  return {tokens, names, title: `knnlm: ${reading.title}`, rows: rowsOf(reading), curves: reading.curve ? [curveOf(reading)] : [], scored: reading.ids.length};
}

// In a script element "<" may end it.
export async function reportOf(reading) {
  const response = await fetch('report.html');
  if (!response.ok) throw new Error(`The server has no page for reports (${response.status}).`);
  const [head, tail] = (await response.text()).split(PLACE);
  return head + JSON.stringify(dataOf(reading)).replaceAll('<', '\\u003c') + tail;
}

export function save(name, html) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([html], {type: 'text/html'}));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
