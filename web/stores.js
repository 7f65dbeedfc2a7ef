// The panel of the stores: what each is, its documents, and how they come and go.
import {$, el, shown} from './dom.js';
import {digits, plural, size, whole} from './format.js';
import {calm, note, problem} from './notice.js';
import {storeMap} from './map.js';
import {jobLines} from './jobs.js';
import {openDocument} from './reader.js';
import * as api from './api.js';

const PAGE = 20, STILL = 200;

// Those in effect, the server's flags included, where the server tells them (`settings`); else as tuned.
function settingsOf({settings, tuned}) {
  const by = settings ?? tuned, untuned = tuned ? '' : 'not tuned';
  if (!by) return untuned;
  return `λ ${by.adaptive || by.gated ? 'adaptive, about ' : ''}${digits(by.lambda, 3)}, T ${digits(by.temperature, 3)}, k ${whole(by.k)}${untuned && ` (${untuned})`}`;
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

function documentTable(name, changed) {
  const filter = el('input', {type: 'search', spellcheck: 'false', autocomplete: 'off'});
  const count = el('span.small', {role: 'status'});
  const body = el('tbody');
  const back = el('button', {type: 'button', click: () => load(offset - PAGE)}, '← Previous');
  const on = el('button', {type: 'button', click: () => load(offset + PAGE)}, 'Next →');
  const table = el('table.documents', {}, el('caption.off', {}, `Documents of ${name}`),
    el('thead', {}, el('tr', {}, ['name', 'tokens', 'size', ''].map(text => text ? el('th', {scope: 'col'}, text) : el('td')))), body);
  const element = el('section.shelf', {tabindex: '-1', 'aria-label': `Documents of ${name}`},
    el('div.row', {}, el('label', {}, 'Documents whose name has ', filter), count), table, el('div.row.pager', {}, back, on));
  let offset = 0, total = 0, writable = false, request = null, timer = 0;

  const nameOf = document => document.tokens && document.entry !== undefined
    ? el('button.link', {type: 'button', click: () => openDocument({store: name, entry: document.entry, document: document.name})}, shown(document.name)) : shown(document.name);

  function row(document) {
    const cell = el('td.act');
    const line = el('tr', {}, el('th', {scope: 'row'}, nameOf(document)), el('td', {}, whole(document.tokens)), el('td', {}, size(document.bytes)), cell);
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
      [offset, total] = [Math.max(0, from), answer.total];
      draw(answer.data);
    } catch (error) {
      problem(error);
    }
  }

  function draw(documents) {
    body.replaceChildren(...documents.map(row));
    table.hidden = !documents.length;
    count.textContent = documents.length ? `${whole(offset + 1)}–${whole(offset + documents.length)} of ${whole(total)}` : 'none';
    const focused = document.activeElement;
    back.disabled = offset === 0;
    on.disabled = offset + documents.length >= total;
    back.parentElement.hidden = back.disabled && on.disabled;
    if ((focused === back || focused === on) && (focused.disabled || back.parentElement.hidden)) element.focus();
  }

  filter.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(load, STILL, 0);
  });
  return {element, load: () => load(offset), setWritable: is => { writable = is; }};
}

// ---------------------------------------------------------------- adding a document

// Large ones, and those of a folder, become jobs.
function addForm(store, lines, changed) {
  const name = el('input', {type: 'text', required: true, maxlength: 4096, autocomplete: 'off', spellcheck: 'false'});
  const text = el('textarea', {rows: 4, required: true, spellcheck: 'false'});
  const file = el('input', {type: 'file'}), folder = el('input', {type: 'file', multiple: true, webkitdirectory: true});
  const button = el('button.primary', {type: 'submit'}, 'Add');
  file.addEventListener('change', async () => {
    if (!file.files[0]) return;
    text.value = await file.files[0].text();
    name.value ||= file.files[0].name;
  });
  folder.addEventListener('change', () => addFolder(folder, store, lines, changed));
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
  return el('details.add', {}, el('summary', {}, `Add documents to ${store}`),
    el('form', {submit: add}, el('div.row', {}, el('label', {}, 'Name ', name), el('label.file', {}, 'from a file ', file)),
      el('label', {}, 'Text', text), el('div.row', {}, button, el('span.small', {}, 'A document of the same name is replaced.'))),
    el('label.file', {}, 'or all texts of a folder ', folder));
}

async function addFolder(folder, store, lines, changed) {
  calm();
  try {
    const files = [...folder.files], texts = await Promise.all(files.map(one => one.text()));
    const all = files.map((one, i) => ({name: one.webkitRelativePath || one.name, text: texts[i]})).filter(({text}) => text && !text.includes('\0'));
    folder.value = '';
    if (!all.length) throw new Error('The folder has no text.');
    const {documents, unchanged, tokens} = await lines.follow(`Reading ${plural(all.length, 'document')}`, await api.addDocuments(store, all));
    const skipped = files.length - all.length, left = skipped ? ` ${plural(skipped, 'file')} without text left out.` : '';
    note(`${store} now remembers ${plural(documents, 'document')} more, ${plural(tokens, 'token')}${unchanged ? `; ${whole(unchanged)} it had already` : ''}.${left}`);
    await changed();
  } catch (error) {
    problem(error);
  }
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
  const list = el('dl.store-facts'), reason = el('p.small', {}, 'This store cannot be changed here: the server is read-only, or may not write to its folder.');
  const documents = documentTable(store.name, refresh);
  const changed = () => Promise.all([documents.load(), refresh()]), lines = jobLines();
  const add = addForm(store.name, lines, changed), upkeep = upkeepRow(store.name, lines, changed);
  const map = storeMap(store.name, () => present(store));
  const element = el('article.card.store', {'data-store': store.name}, el('h2', {}, shown(store.name)), list, documents.element, upkeep.element, lines.element, add, map.element, reason);
  return {
    element, load: documents.load, show: map.load,
    update(now) {
      drawFacts(list, now);
      documents.setWritable(now.writable === true);
      upkeep.setWritable(now.writable === true);
      add.hidden = !now.writable;
      reason.hidden = now.writable === true;
    },
  };
}

// refresh(): something was changed; present(store): as of storeMap.
export function startStores(doors) {
  const cards = new Map();
  let seen = false;
  const load = card => { if (seen) card.load(); };
  return {
    update(stores) {
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
    },
    show() {
      for (const card of cards.values()) card.show();
      if (seen) return;
      seen = true;
      cards.forEach(load);
    },
  };
}
