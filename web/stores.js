// The panel of the stores: what each is, its documents, and how they come and go.
import {$, el, shown} from './dom.js';
import {digits, plural, size, whole} from './format.js';
import {calm, note, problem} from './notice.js';
import {storeMap} from './map.js';
import {batches, dropped, picked} from './files.js';
import {jobLines} from './jobs.js';
import {nats} from './origins.js';
import {openDocument} from './reader.js';
import * as api from './api.js';

const PAGE = 20, STILL = 200;

// Those in effect, the server's flags included, where the server tells them (`settings`); else as tuned.
function settingsOf({settings, tuned}) {
  const by = settings ?? tuned, untuned = tuned ? '' : 'not tuned';
  if (!by) return untuned;
  return `λ\u00a0${by.adaptive || by.gated ? 'adaptive, about ' : ''}${digits(by.lambda, 3)}, T\u00a0${digits(by.temperature, 3)}, k\u00a0${whole(by.k)}${untuned && ` (${untuned})`}`;
}

function factsOf(store) {
  const index = store.index ? `${plural(store.index.lists, 'list')}, with${store.index.codes ? '' : 'out'} codes` : 'none: every entry is looked at';
  return [
    ['entries', whole(store.entries) + (store.removed_entries ? `, and ${whole(store.removed_entries)} removed` : '')],
    ['documents', whole(store.documents)], ['on disk', size(store.bytes)], ['mixing', settingsOf(store)],
    ['keys', `${whole(store.dimensions)} × ${store.keys} (${store.tap}), ${store.distance}`], ['index', index],
  ];
}

function drawFacts(list, store) {
  list.replaceChildren(...factsOf(store).map(([name, value]) => el('div', {}, el('dt', {}, name), el('dd', {}, value))));
}

// ---------------------------------------------------------------- the documents of a store

// Gains of the documents of one store, by name; undefined: it had no part in the text.
const gainsOf = (gains, store) => gains?.stores.some(one => one.store === store) ? {by: new Map(gains.documents.filter(one => one.store === store).map(one => [one.document, one.gain])), all: !gains.others.documents} : undefined;

function documentTable(name, changed) {
  const filter = el('input', {type: 'search', spellcheck: 'false', autocomplete: 'off'});
  const count = el('span.small', {role: 'status'});
  const body = el('tbody', {role: 'rowgroup'});
  const back = el('button', {type: 'button', click: () => load(offset - PAGE)}, '← Previous');
  const on = el('button', {type: 'button', click: () => load(offset + PAGE)}, 'Next →');
  // Roles are told, because on narrow screens rows are laid out otherwise than those of a table.
  const table = el('table.documents', {role: 'table'}, el('caption.off', {}, `Documents of ${name}`),
    el('thead', {role: 'rowgroup'}, el('tr', {role: 'row'}, ['name', 'entries', 'size', 'gain', ''].map(text => text ? el('th', {scope: 'col', role: 'columnheader'}, text) : el('td', {role: 'cell'})))), body);
  const element = el('section.shelf', {tabindex: '-1', 'aria-label': `Documents of ${name}`},
    el('div.row', {}, el('label', {}, 'Documents whose name has ', filter), count), table, el('div.row.pager', {}, back, on));
  let offset = 0, total = 0, writable = false, request = null, timer = 0, listed = [], gains;

  const nameOf = document => document.tokens && document.entry !== undefined
    ? el('button.link', {type: 'button', click: () => openDocument({store: name, entry: document.entry, document: document.name})}, shown(document.name)) : shown(document.name);

  // What is not among those that the server listed had less than these, or no part at all.
  function gainOf(document) {
    const gain = gains?.by.get(document);
    return gain !== undefined ? nats(gain) : gains?.all ? nats(0) : '–';
  }

  function row(document) {
    const cell = el('td.act', {role: 'cell'});
    const line = el('tr', {role: 'row'}, el('th', {scope: 'row', role: 'rowheader'}, nameOf(document)), el('td', {role: 'cell', 'data-label': 'entries'}, whole(document.tokens)), el('td', {role: 'cell'}, size(document.bytes)),
      el('td.gain', {role: 'cell', 'data-label': 'gain'}, gainOf(document.name)), cell);
    // Question and answers take turns in one place: nothing else moves.
    const no = el('button', {type: 'button', click: () => ask(false)}, 'Keep');
    const confirm = el('div.confirm', {role: 'group', 'aria-label': `Remove ${document.name}?`},
      el('button.danger', {type: 'button', click: () => remove(document.name)}, 'Remove'), no);
    const button = el('button.quiet', {type: 'button', 'aria-label': `Remove ${document.name}`, click: () => ask(true)}, 'Remove…');
    const ask = is => {
      button.classList.toggle('away', is);
      confirm.classList.toggle('away', !is);
      (is ? no : button).focus();
    };
    confirm.classList.add('away');
    cell.addEventListener('keydown', event => { if (event.key === 'Escape' && button.matches('.away')) ask(false); });
    if (writable) cell.append(el('div.turns', {}, button, confirm));
    return line;
  }

  async function remove(document) {
    calm();
    try {
      const {removed} = await api.removeDocument(name, document);
      note(`Removed ${document} from ${name}: ${plural(removed, 'entry').replace('entrys', 'entries')} fewer.`);
      element.focus();
      await Promise.all([load(offset), changed()]);
    } catch (error) {
      problem(error);
    }
  }

  async function load(from) {
    request?.abort();
    const own = request = new AbortController();
    try {
      const answer = await api.documents(name, {offset: Math.max(0, from), limit: PAGE, q: filter.value}, own.signal);
      if (!answer.data.length && from > 0) return load(from - PAGE);
      [offset, total, listed] = [Math.max(0, from), answer.total, answer.data];
      draw();
    } catch (error) {
      problem(error);
    }
  }

  function draw() {
    body.replaceChildren(...listed.map(row));
    table.hidden = !listed.length;
    count.textContent = listed.length ? `${whole(offset + 1)}–${whole(offset + listed.length)} of ${whole(total)}` : 'none';
    const focused = document.activeElement;
    back.disabled = offset === 0;
    on.disabled = offset + listed.length >= total;
    back.parentElement.hidden = back.disabled && on.disabled;
    if ((focused === back || focused === on) && (focused.disabled || back.parentElement.hidden)) element.focus();
  }

  filter.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(load, STILL, 0);
  });
  return {
    element, load: () => load(offset), setWritable: is => { writable = is; },
    // Of all stores, as /v1/score tells them; null: not known.
    setGains(found) {
      gains = gainsOf(found, name);
      body.querySelectorAll('.gain').forEach((cell, i) => cell.replaceChildren(gainOf(listed[i].name))); // a row may be asking something
    },
  };
}

// ---------------------------------------------------------------- adding documents

// A large one becomes a job.
function addForm(store, lines, changed) {
  const name = el('input', {type: 'text', required: true, maxlength: 4096, autocomplete: 'off', spellcheck: 'false'});
  const text = el('textarea', {rows: 4, required: true, spellcheck: 'false'});
  const button = el('button.primary', {type: 'submit'}, 'Add');
  async function add(event) {
    event.preventDefault();
    calm();
    button.disabled = true;
    note(`${store} is reading ${name.value}…`);
    try {
      const title = name.value, answer = await api.addDocument(store, title, text.value);
      const {unchanged, tokens} = answer.object === 'job' ? await lines.follow(`Reading ${title}`, answer) : answer;
      note(unchanged ? `${store} has this text already.` : `${store} now remembers ${title}: ${plural(tokens, 'token')}.`);
      event.target.reset();
      await changed();
    } catch (error) {
      problem(error);
    }
    button.disabled = false;
    name.focus();
  }
  return el('form', {submit: add}, el('label', {}, 'Name ', name), el('label', {}, 'Text', text), el('div.row', {}, button, el('span.small', {}, 'A document of the same name is replaced.')));
}

// About a megabyte of texts a job: requests have a size that the server takes.
const TOGETHER = 1e6;

async function addFiles(files, store, lines, changed) {
  calm();
  const sum = {documents: 0, unchanged: 0, tokens: 0}, all = await files;
  let first = 1, left = 0;
  try {
    for await (const {texts, seen, ...batch} of batches(all, TOGETHER)) {
      left = batch.left;
      if (!texts.length) continue;
      const which = all.length === 1 ? texts[0].name : seen === all.length && first === 1 ? plural(all.length, 'file') : `files ${whole(first)} to ${whole(seen)} of ${whole(all.length)}`;
      const done = await lines.follow(`Reading ${which}`, await api.addDocuments(store, texts));
      for (const name of Object.keys(sum)) sum[name] += done[name];
      first = seen + 1;
    }
    const skipped = left ? ` ${plural(left, 'file')} without text left out.` : '';
    if (left === all.length) throw new Error('There is no text in what was given.');
    note(`${store} now remembers ${plural(sum.documents, 'document')} more, ${plural(sum.tokens, 'token')}${sum.unchanged ? `; ${whole(sum.unchanged)} it had already` : ''}.${skipped}`);
  } catch (error) {
    problem(error);
  }
  await changed().catch(problem);
}

// Where files and folders are dropped; pickers stand in it, for hands that cannot drop.
function dropZone(add) {
  const file = el('input', {type: 'file', multiple: true}), folder = el('input', {type: 'file', multiple: true, webkitdirectory: true});
  for (const input of [file, folder]) input.addEventListener('change', () => {
    if (!input.files.length) return;
    add(Promise.resolve(picked(input)));
    input.value = '';
  });
  const zone = el('div.drop', {}, el('p', {}, 'Drop files or folders here, or choose'), el('div.row', {}, el('label.file', {}, 'files ', file), el('label.file', {}, 'a folder ', folder)));
  const has = event => event.dataTransfer?.types.includes('Files');
  for (const type of ['dragenter', 'dragover']) zone.addEventListener(type, event => {
    if (!has(event)) return;
    event.preventDefault();
    event.dataTransfer.dropEffect = 'copy';
    zone.classList.add('over');
  });
  zone.addEventListener('dragleave', event => { if (!zone.contains(event.relatedTarget)) zone.classList.remove('over'); });
  zone.addEventListener('drop', event => {
    zone.classList.remove('over');
    if (!has(event)) return;
    event.preventDefault();
    add(dropped(event.dataTransfer));
  });
  return zone;
}

function addPart(store, lines, changed) {
  return el('details.add', {}, el('summary', {}, `Add documents to ${store}`), dropZone(files => addFiles(files, store, lines, changed)), el('h3', {}, 'or write one'), addForm(store, lines, changed));
}

// ---------------------------------------------------------------- upkeep

const UPKEEP = {
  tune: {label: 'Tune', doing: 'Tuning', tell: r => `Tuned on ${plural(r.tokens, 'token')} of its own: perplexity ${digits(r.ppl_lm)} alone, ${digits(r.ppl)} with it.${r.written ? '' : ' The settings before stay: they are as good.'}`},
  compact: {label: 'Compact', doing: 'Compacting', tell: r => `Compacted: ${whole(r.entries_dropped)} entries dropped, ${size(r.bytes_before)} became ${size(r.bytes_after)}.`},
  verify: {label: 'Verify', doing: 'Verifying', tell: r => r.problem_count ? `${plural(r.problem_count, 'problem')}: ${r.problems[0].file}: ${r.problems[0].what}.` : `Verified: ${whole(r.entries)} entries of ${plural(r.documents, 'document')} are as they were written.`},
};

function upkeepRow(store, lines, changed) {
  const said = el('span.small', {role: 'status'});
  const buttons = Object.entries(UPKEEP).map(([verb, {label, doing, tell}]) => {
    const button = el('button.small-button', {type: 'button', 'data-verb': verb}, label);
    button.addEventListener('click', async () => {
      calm();
      said.textContent = '';
      button.disabled = true;
      try {
        said.textContent = tell(await lines.follow(doing, await api.upkeep(store, verb)));
        await changed();
      } catch (error) {
        problem(error);
      }
      button.disabled = false;
    });
    return button;
  });
  return {element: el('div.row.upkeep', {}, buttons, said), setWritable: is => { for (const button of buttons) button.hidden = !is && button.dataset.verb !== 'verify'; }};
}

// ---------------------------------------------------------------- a store

function storeCard(store, {refresh, present}) {
  const list = el('dl.store-facts'), reason = el('p.small', {}, 'This store cannot be changed here: the server is read-only, or may not write to its folder, or the store is made of shards.');
  const documents = documentTable(store.name, refresh);
  const changed = () => Promise.all([documents.load(), refresh()]), lines = jobLines();
  const add = addPart(store.name, lines, changed), upkeep = upkeepRow(store.name, lines, changed);
  const map = storeMap(store.name, () => present(store));
  const element = el('article.card.store', {'data-store': store.name}, el('h2', {}, shown(store.name)), list, documents.element, upkeep.element, lines.element, add, map.element, reason);
  return {
    element, load: documents.load, show: map.load, name: store.name, setGains: documents.setGains,
    join: job => lines.join(job, changed),
    update(now) {
      drawFacts(list, now);
      documents.setWritable(now.writable === true);
      upkeep.setWritable(now.writable === true);
      add.hidden = !now.writable;
      reason.hidden = now.writable === true;
    },
  };
}

// refresh(): something was changed; present(store): as of storeMap; gains(): a promise of what documents did for the text
// in Read, or null.
export function startStores(doors) {
  const cards = new Map();
  let seen = false;
  const load = card => { if (seen) card.load(); };

  async function showGains() {
    const gains = await doors.gains();
    for (const card of cards.values()) card.setGains(gains);
  }
  const gainsIfSeen = () => { if (!$('stores').hidden) showGains().catch(problem); };

  // Jobs that were begun before this page was.
  async function joinJobs() {
    for (const job of (await api.jobs()).data) cards.get(job.store)?.join(job);
  }
  return {
    // Another text was read, or by other settings.
    showGains: gainsIfSeen,
    update(stores) {
      const before = cards.size;
      for (const name of cards.keys()) if (!stores.some(store => store.name === name)) cards.delete(name);
      for (const store of stores) {
        const fresh = !cards.has(store.name);
        if (fresh) cards.set(store.name, storeCard(store, doors));
        cards.get(store.name).update(store);
        if (fresh) load(cards.get(store.name));
      }
      const elements = [...cards.values()].map(card => card.element);
      const same = elements.length === $('store-list').children.length && elements.every((element, i) => element === $('store-list').children[i]);
      if (!same || !elements.length) $('store-list').replaceChildren(...elements.length ? elements : [el('p', {}, 'The server was started without stores: the model is alone. Give it some with -s STORE.')]);
      gainsIfSeen();
      if (seen && cards.size > before) joinJobs().catch(problem);
    },
    show() {
      for (const card of cards.values()) card.show();
      Promise.all([showGains(), joinJobs()]).catch(problem);
      if (seen) return;
      seen = true;
      cards.forEach(load);
    },
  };
}
