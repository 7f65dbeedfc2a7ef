// The sources of what was written: a list of them, and the passage of the one that is opened. Generate and Chat have them.
import {el, shown} from './dom.js';
import {percent, plural, whole} from './format.js';
import {passagePanel} from './passage.js';
import {roving} from './roving.js';
import {styleOf} from './writer.js';
import {tips, hide as hideTip} from './tip.js';

const REDRAW = 150;

function sourceItem(source) {
  return el('li', {}, el('button', {type: 'button', 'data-number': source.number},
    el('span', {class: `badge ${styleOf(source)}`}, source.footnote),
    el('span.about', {}, el('span.name', {}, shown(source.document)), el('span.quote', {lang: ''}, shown(source.text.trim())),
      el('span.small', {}, `${plural(source.tokens, 'token')} · share ${percent(source.share)} · position ${whole(source.position)} · ${source.store}`))));
}

function describe(writer, i) {
  const source = writer.source(Number(writer.runs()[i].dataset.source));
  return source ? [el('b', {}, source.footnote ? `${source.footnote} ` : ''), el('span.name', {}, shown(source.document)), ` · share ${percent(source.share)}`] : [];
}

// section: the panel; card and list: where the sources of one text are listed; passage: where one is opened.
export function sourcePanel({section, card, list, passage}) {
  let writer = null; // whose sources are listed
  let from = null;   // where the focus goes back to
  let drawing = 0;
  const walks = new Map(), titles = new Map(); // by writer
  const panel = passagePanel(passage, leave);

  function draw() {
    drawing = 0;
    const sources = writer?.numbered() ?? [], focused = list.contains(document.activeElement) ? document.activeElement.dataset.number : null;
    list.replaceChildren(...sources.map(sourceItem));
    card.hidden = !sources.length;
    card.querySelector('h2').textContent = titles.get(writer) ?? 'Sources';
    if (focused) list.querySelector(`[data-number="${focused}"]`)?.focus();
  }

  function mark(number) {
    for (const other of walks.keys()) for (const run of other.runs()) run.classList.toggle('open', other === writer && Number(run.dataset.source) === number);
  }

  function open(number, element) {
    const source = writer.source(number);
    if (!source) return;
    from = element;
    hideTip();
    mark(number);
    section.classList.add('opened');
    panel.show(source);
    if (element.dataset.i) element.scrollIntoView({block: 'nearest'});
  }

  function close() {
    panel.hide();
    section.classList.remove('opened');
    mark(null);
  }

  function leave() {
    if (passage.hidden) return;
    close();
    const back = from?.isConnected ? from : list.querySelector(`[data-number="${from?.dataset.number}"]`);
    if (back?.dataset.i) walks.get(writer).makeCurrent(Number(back.dataset.i));
    back?.focus({preventScroll: true});
  }

  // Its sources are those listed.
  function turnTo(which) {
    writer = which;
    draw();
  }

  list.addEventListener('click', event => {
    const button = event.target.closest('[data-number]');
    if (button) open(Number(button.dataset.number), button);
  });
  section.addEventListener('keydown', event => { if (event.key === 'Escape') leave(); });

  return {
    close, turnTo,
    // Its runs, within `output`, open their sources, which are listed under a title.
    add(which, output, title = 'Sources') {
      titles.set(which, title);
      const openRun = i => {
        const run = which.runs()[i];
        if (writer !== which) turnTo(which);
        open(Number(run.dataset.source), run);
      };
      walks.set(which, roving(output, {items: which.runs, onopen: openRun}));
      tips(output, i => describe(which, i));
    },
    clear() {
      close();
      walks.clear();
      titles.clear();
      turnTo(null);
    },
    // Sources of a writer have changed: shown soon, where they are listed.
    changed(which) {
      if (which === writer && !drawing) drawing = setTimeout(draw, REDRAW);
    },
    // The one that is open has changed, perhaps.
    refresh() {
      if (!passage.hidden) panel.show(writer.source(Number(passage.dataset.number)));
    },
  };
}
