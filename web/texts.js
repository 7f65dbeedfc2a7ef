// What is to be read: typed, one of the samples, a passage of a store, or a file.
import {$, el} from './dom.js';
import {problem} from './notice.js';
import {samples} from './samples.js';
import * as api from './api.js';

const LARGEST_FILE = 4e6, PASSAGE = 90, TRIES = 6;

async function passageOf(store) {
  const ids = store.entries + (store.removed_entries ?? 0);
  for (let tries = 1;; tries++) {
    try {
      const {before, text, after} = await api.passage(store.name, Math.floor(Math.random() * ids), {around: PASSAGE});
      return (before + text + after).trimStart();
    } catch (error) {
      if (error.status !== 404 || tries === TRIES) throw error; // that entry was removed
    }
  }
}

async function contentOf(file) {
  if (file.size > LARGEST_FILE) throw new Error(`${file.name} is larger than ${LARGEST_FILE / 1e6} MB: too much to be looked at here.`);
  return file.text();
}

// onread(text): a text was chosen. An option's value is n and a sample's number, or s and a store's name.
export function textPicker(onread) {
  let stores = [];

  async function take(text, option) {
    try {
      $('read-text').value = await text;
      $('samples').value = option;
      onread($('read-text').value);
    } catch (error) {
      problem(error);
    }
  }
  function pick(option) {
    const name = option.slice(1);
    if (option) take(option[0] === 'n' ? samples[name].text : passageOf(stores.find(store => store.name === name)), option);
  }

  $('read-form').addEventListener('submit', event => {
    event.preventDefault();
    onread($('read-text').value);
  });
  $('read-text').addEventListener('input', () => { $('samples').value = ''; });
  $('samples').addEventListener('change', () => pick($('samples').value));
  $('read-file').addEventListener('change', () => { if ($('read-file').files[0]) take(contentOf($('read-file').files[0]), ''); });
  return {
    update(list) {
      stores = list;
      const chosen = $('samples').value, option = (value, name) => el('option', {value}, name);
      const remembered = stores.filter(store => store.entries).map(store => option(`s${store.name}`, `A passage that ${store.name} remembers`));
      $('samples').replaceChildren(option('', 'your own'), ...samples.map(({name}, n) => option(`n${n}`, name)), ...remembered);
      $('samples').value = chosen;
    },
    begin: () => { if (!$('read-text').value) pick('n0'); },
  };
}
