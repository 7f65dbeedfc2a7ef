// A passage of a store, with what was taken from it marked.
import {el, leadingSpace, shown} from './dom.js';
import {percent, plural, whole} from './format.js';
import * as api from './api.js';

const AROUND = 100;

// The entry is the first token that was taken; the others are the beginning of what comes after it.
function taken(source, {text, after}) {
  const more = source.text.startsWith(text) ? source.text.slice(text.length) : '';
  return after.startsWith(more) ? [text + more, after.slice(more.length)] : [text, after];
}

function passageText(source, passage) {
  const [mine, after] = taken(source, passage), space = leadingSpace(mine);
  return el('p.passage', {lang: ''}, shown(passage.before, 'text'), space, el('mark', {}, shown(mine.slice(space.length), 'text')), shown(after, 'text'));
}

// The panel itself scrolls on narrow screens, what is around it on wide ones.
function center(mark, panel) {
  for (const scroller of [panel, panel.parentElement]) {
    const box = scroller.getBoundingClientRect();
    scroller.scrollTop += mark.getBoundingClientRect().top - box.top - Math.min(box.height, innerHeight) / 2;
  }
}

export function passagePanel(panel, onclose) {
  let request = null;
  const head = source => el('header', {}, el('div', {}, el('p.small', {}, `source ${source.number}, of the store ${source.store}`),
    el('h2', {id: 'passage-title'}, shown(source.document)),
    el('p.small', {}, `token ${whole(source.position)} (byte ${whole(source.offset)}) · ${plural(source.tokens, 'token')} · share ${percent(source.share)}`)),
    el('button.close', {type: 'button', 'aria-label': 'Close', click: onclose}, '✕'));
  return {
    async show(source) {
      request?.abort();
      const {signal} = request = new AbortController();
      const body = el('div', {'aria-live': 'polite'}, el('p.small', {}, 'Fetching the passage…'));
      panel.dataset.number = source.number;
      panel.replaceChildren(head(source), body);
      panel.hidden = false;
      try {
        body.replaceChildren(passageText(source, await api.passage(source.store, source.entry, AROUND, signal)));
        center(body.querySelector('mark'), panel);
      } catch (error) {
        if (!signal.aborted) body.replaceChildren(el('p.problem', {}, error.message));
      }
    },
    hide() {
      request?.abort();
      panel.hidden = true;
    },
  };
}
