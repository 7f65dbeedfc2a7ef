// What the panels share: the header, the tabs, and the list of stores.
import {$} from './dom.js';
import {digits, plural, whole} from './format.js';
import {problem} from './notice.js';
import {startGenerate} from './generate.js';
import {startRead} from './read.js';
import {startStores} from './stores.js';
import {tabs} from './tabs.js';
import * as api from './api.js';

const panels = {read: startRead(), generate: startGenerate(), stores: startStores({refresh, present: store => isOwn(store) ? panels.read.present() : null})};
let model = null;

const millions = parameters => parameters >= 1e9 ? `${digits(parameters / 1e9, 3)} billion parameters` : `${digits(parameters / 1e6, 3)} million parameters`;

// A server may have several models: the page speaks with the first, and mixes in the stores that are its own.
const isOwn = store => !store.model || store.model === model.id;

function drawHeader(stores) {
  const entries = stores.reduce((sum, store) => sum + store.entries, 0);
  const remembered = stores.length ? `${whole(entries)} entries in ${plural(stores.length, 'store')}` : 'no stores';
  const about = [model?.meta?.parameters ? millions(model.meta.parameters) : null, remembered];
  $('model').textContent = model?.id ?? 'knnlm';
  $('facts').textContent = about.filter(Boolean).join(' · ');
  document.title = model ? `${model.id} · knnlm` : 'knnlm';
}

async function refresh() {
  const {data} = await api.stores(), own = data.filter(isOwn);
  drawHeader(own);
  for (const [name, panel] of Object.entries(panels)) panel.update(name === 'stores' ? data : own);
}

async function begin() {
  try {
    model = (await api.models()).data[0];
    await refresh();
    panels.read.begin();
  } catch (error) {
    problem(error);
  }
}

tabs(document.querySelector('[role=tablist]'), name => panels[name].show?.());
begin();
