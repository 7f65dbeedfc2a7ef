// A passage of a store, with what was taken from it marked.
import {el, shown} from './dom.js';
import {percent, plural, whole} from './format.js';
import {openDocument, passageText} from './reader.js';
import * as api from './api.js';

const AROUND = 100;

// The panel itself scrolls on narrow screens, what is around it on wide ones.
function center(mark, panel) {
  for (const scroller of [panel, panel.parentElement]) {
    const box = scroller.getBoundingClientRect();
    scroller.scrollTop += mark.getBoundingClientRect().top - box.top - Math.min(box.height, innerHeight) / 2;
  }
}

export function passagePanel(panel, onclose) {
  let request = null;
  const head = source => el('header', {}, el('div', {}, el('p.small', {}, `${source.footnote ? `source ${source.footnote}` : 'a single word'}, of the store ${source.store}`),
    el('h2', {id: `${panel.id}-title`}, el('button.link', {type: 'button', title: 'Open the document here', click: () => openDocument(source, source.length)}, shown(source.document))),
    el('p.small', {}, `token ${whole(source.position)} (byte ${whole(source.offset)}) · ${plural(source.tokens, 'token')}${source.differ ? `, ${whole(source.differ)} of them other ones` : ''} · share ${percent(source.share)}`)),
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
        body.replaceChildren(passageText(await api.passage(source.store, source.entry, {around: AROUND, tokens: source.length}, signal)));
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
