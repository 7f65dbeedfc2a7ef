// A map of a store: a sample of its keys in two dimensions, in the colours of their documents. What is pointed at tells
// where it stands; the token that is open in Read has its place in it, too.
import {el, plain, shown} from './dom.js';
import {percent, plural, whole} from './format.js';
import {openDocument} from './reader.js';
import * as api from './api.js';

const HEIGHT = 420, MARGIN = 16, RADIUS = 2.5, REACH = 14, COLOURS = 6, AROUND = 10, STILL = 150;

// Documents with the most points have a colour each, the others share one.
function coloursOf({points, documents}) {
  const counts = documents.map(() => 0);
  for (const {document} of points) counts[document]++;
  const ranked = [...counts.keys()].sort((a, b) => counts[b] - counts[a] || a - b);
  return {ranked, counts, of: new Map(ranked.slice(0, COLOURS).map((document, n) => [document, n]))};
}

function scaleOf(places, width) {
  const span = name => {
    const all = places.map(place => place[name]), low = Math.min(...all), high = Math.max(...all);
    return [low, high - low || 1];
  };
  const [left, wide] = span('x'), [bottom, high] = span('y');
  return ({x, y}) => [MARGIN + (x - left) / wide * (width - 2 * MARGIN), HEIGHT - MARGIN - (y - bottom) / high * (HEIGHT - 2 * MARGIN)];
}

function legendOf(map, colours) {
  const names = colours.ranked.slice(0, COLOURS).map((document, n) => el('li', {}, el(`span.swatch.s${n}`), el('span.name', {}, shown(map.documents[document])), el('span.number', {}, whole(colours.counts[document]))));
  const others = map.documents.length - names.length;
  return [...names, others > 0 ? el('li', {}, el('span.swatch'), plural(others, 'other document')) : null].filter(Boolean);
}

// store: its name. present(): the token that is open in Read, {text, tokens before it}, or null.
export function storeMap(store, present) {
  const canvas = el('canvas', {role: 'img', tabindex: '0'}), told = el('p.map-told', {role: 'status', lang: ''}), legend = el('ul.map-legend');
  const about = el('p.small'), details = el('details.map', {}, el('summary', {}, `Map of ${store}`), el('div.map-box', {}, el('div', {}, canvas, told), el('div', {}, legend, about)));
  let map = null, colours = null, query = null, at = -1, request = null, timer = 0, place = null;

  function draw() {
    if (!map || !details.open) return;
    const width = canvas.parentElement.clientWidth, pen = canvas.getContext('2d'), style = getComputedStyle(canvas), dense = devicePixelRatio || 1;
    const colour = name => style.getPropertyValue(name).trim();
    place = scaleOf(query ? [...map.points, query] : map.points, width);
    [canvas.width, canvas.height] = [width * dense, HEIGHT * dense];
    pen.scale(dense, dense);
    const dot = (point, radius, fill) => {
      const [x, y] = place(point);
      pen.beginPath();
      pen.arc(x, y, radius, 0, 2 * Math.PI);
      pen.fillStyle = fill;
      pen.fill();
    };
    const named = map.points.filter(({document}) => colours.of.has(document)); // over the others
    for (const point of map.points) if (!colours.of.has(point.document)) dot(point, RADIUS, colour('--edge'));
    for (const point of named) dot(point, RADIUS, colour(`--source${colours.of.get(point.document)}`));
    const ring = (point, radius, stroke) => {
      for (const [wide, ink] of [[7, colour('--paper')], [3, stroke]]) { // seen in a crowd, too
        pen.beginPath();
        pen.arc(...place(point), radius, 0, 2 * Math.PI);
        pen.lineWidth = wide;
        pen.strokeStyle = ink;
        pen.stroke();
      }
    };
    if (at >= 0) ring(map.points[at], 6, colour('--ink'));
    if (query) {
      ring(query, 11, colour('--danger'));
      dot(query, 5, colour('--danger'));
    }
  }

  function describe() {
    const part = map.variance ? ` The two directions have ${percent((map.variances[0] + map.variances[1]) / map.variance)} of the keys’ variance.` : '';
    const now = query ? ` The ring is the model’s state before “${plain(query.text).trim()}”, the token that is open in Read.` : ' Open a token in Read to see the state before it here.';
    about.textContent = map.points.length ? `${plural(map.points.length, 'key')} of the store, by principal components.${part}${now}` : 'There is no key to be drawn.';
    canvas.setAttribute('aria-label', `Map of ${store}: ${plural(map.points.length, 'key')} of ${plural(map.documents.length, 'document')}. The arrow keys go from one to the next.`);
  }

  // What stands around the point comes when one stays there.
  function show(i) {
    if (i === at) return;
    at = i;
    clearTimeout(timer);
    request?.abort();
    draw();
    if (i < 0) return told.replaceChildren();
    const point = map.points[i], name = el('b.name', {}, shown(map.documents[point.document])), word = el('mark', {}, shown(point.text));
    told.replaceChildren(name, ': ', word);
    timer = setTimeout(async () => {
      const {signal} = request = new AbortController();
      try {
        const {before, text, after} = await api.passage(store, point.entry, {around: AROUND}, signal);
        told.replaceChildren(name, ': … ', ...shown(before), el('mark', {}, shown(text)), ...shown(after), ' …');
      } catch (error) {
        if (!signal.aborted) told.replaceChildren(name, `: ${error.message}`);
      }
    }, STILL);
  }

  function nearest(event) {
    const box = canvas.getBoundingClientRect(), [x, y] = [event.clientX - box.left, event.clientY - box.top];
    let best = -1, least = REACH ** 2;
    map.points.forEach((point, i) => {
      const [px, py] = place(point), away = (px - x) ** 2 + (py - y) ** 2;
      if (away < least) [best, least] = [i, away];
    });
    return best;
  }

  async function locate() {
    const token = present();
    if (!token) return null;
    const found = await api.mapPlace(store, {tokens: token.tokens});
    return {...found, text: token.text};
  }

  async function load() {
    if (!details.open) return;
    about.textContent = map ? about.textContent : 'Drawing…';
    try {
      const found = await locate();
      if (!map || found?.generation !== map.generation) [map, at] = [await api.map(store), -1];
      query = found;
      colours = coloursOf(map);
      legend.replaceChildren(...legendOf(map, colours));
      describe();
      draw();
    } catch (error) {
      about.textContent = error.message;
    }
  }

  const open = i => {
    const point = map?.points[i];
    if (point) openDocument({store, entry: point.entry, document: map.documents[point.document]});
  };
  details.addEventListener('toggle', load);
  canvas.addEventListener('pointermove', event => { if (map) show(nearest(event)); });
  canvas.addEventListener('click', event => { if (map) open(nearest(event)); });
  canvas.addEventListener('keydown', event => {
    const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
    if (!map?.points.length || !(step || event.key === 'Enter')) return;
    event.preventDefault();
    if (step) show((at + step + map.points.length) % map.points.length);
    else open(at);
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
  new ResizeObserver(draw).observe(canvas.parentElement);
  return {element: details, load};
}
