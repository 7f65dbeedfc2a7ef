// The tokens that the neighbours changed most.
import {$, el, leadingSpace, plain, shownWord} from './dom.js';
import {levelClass} from './mixture.js';
import {times} from './format.js';

const COUNT = 10, BEFORE = 24, STILL = 60;

function contextBefore(texts, i) {
  let before = '';
  for (let j = i - 1; j >= 0 && before.length < BEFORE; j--) before = texts[j] + before;
  return Array.from(plain(before).replace(/\s+/g, ' ')).slice(-BEFORE).join('');
}

function item({texts, levels, gain}, i) {
  const space = leadingSpace(texts[i]), word = el('span', {class: 't' + levelClass(levels[i])}, shownWord(texts[i].slice(space.length)));
  return el('li', {}, el('button', {type: 'button', 'data-token': i},
    el('span.words-before', {lang: ''}, '…', el('span.context', {}, el('span', {}, contextBefore(texts, i), space)), word), el('span.number', {}, times(gain[i]))));
}

// Whether the token, or the words before it, have what is searched for.
const has = (texts, i, wanted) => !wanted || plain(contextBefore(texts, i) + texts[i]).replace(/\s+/g, ' ').toLowerCase().includes(wanted);

// Without a neighbour that has the token, the loss is log(1-λ) for all alike: those come first that lost most of p.
function strongest({texts, lm, p, gain}, sign, wanted) {
  const change = i => Math.abs(p[i] - lm[i]), rough = i => Math.round(Math.abs(gain[i]) * 1000);
  return [...gain.keys()].filter(i => gain[i] * sign > 0 && has(texts, i, wanted)).sort((a, b) => rough(b) - rough(a) || change(b) - change(a)).slice(0, COUNT);
}

// update({texts, lm, p, gain, levels}): columns, a row a token. onpick(i): one of the list was chosen.
export function extremes(onpick) {
  let now = null, timer = 0;
  function draw() {
    const sign = document.querySelector('[name=pick]:checked').value === 'best' ? 1 : -1, wanted = $('extremes-search').value.trim().toLowerCase();
    const some = strongest(now, sign, wanted), none = `No ${wanted ? 'such ' : ''}token was ${sign > 0 ? 'helped' : 'hurt'}.`;
    const items = some.length ? some.map(i => item(now, i)) : [el('li.empty', {}, none)];
    $('extremes-list').replaceChildren(...items);
  }
  $('extremes').open = matchMedia('(min-width: 60rem)').matches;
  $('extremes').addEventListener('change', draw);
  $('extremes-search').addEventListener('input', draw);
  $('extremes').addEventListener('click', event => {
    const button = event.target.closest('[data-token]');
    if (button) onpick(Number(button.dataset.token));
  });
  return {
    update(columns) {
      now = columns;
      clearTimeout(timer);
      timer = setTimeout(draw, STILL);
    },
  };
}
