// What the panels share: the header, the model, the tabs, and the list of stores.
import {$, el} from './dom.js';
import {digits, plural, whole} from './format.js';
import {problem} from './notice.js';
import {startChat} from './chat.js';
import {startGenerate} from './generate.js';
import {startRead} from './read.js';
import {startStores} from './stores.js';
import {tabs} from './tabs.js';
import * as api from './api.js';

const panels = {
  read: startRead({chooseModel, onread: () => panels.stores.showGains()}), generate: startGenerate(), chat: startChat(),
  stores: startStores({refresh, present: store => isOwn(store) ? panels.read.present() : null, gains: () => panels.read.gains()}),
};
let models = [], model = null;

const millions = parameters => parameters >= 1e9 ? `${digits(parameters / 1e9, 3)} billion parameters` : `${digits(parameters / 1e6, 3)} million parameters`;

// A server may have several models: stores are of the one that made them.
const isOwn = store => !store.model || store.model === model.id;

function drawHeader(stores) {
  const entries = stores.reduce((sum, store) => sum + store.entries, 0);
  const remembered = stores.length ? `${whole(entries)} entries in ${plural(stores.length, 'store')}` : 'no stores';
  const about = [model.meta?.parameters ? millions(model.meta.parameters) : null, remembered];
  $('model').textContent = $('model').dataset.id = model.id;
  $('facts').textContent = about.filter(Boolean).join(' · ');
  document.title = `${model.id} · knnlm`;
}

function drawModels() {
  $('models').hidden = models.length < 2;
  $('model-choice').replaceChildren(...models.map(({id}) => el('option', {value: id}, id)));
}

async function refresh() {
  const {data} = await api.stores(), own = data.filter(isOwn);
  drawHeader(own);
  for (const [name, panel] of Object.entries(panels)) panel.update(name === 'stores' ? data : own);
}

// The name of the model that is then spoken with; of one that is not there: as before.
async function chooseModel(id) {
  const found = models.find(other => other.id === id) ?? model;
  if (found === model) return model.id;
  model = found;
  $('model-choice').value = model.id;
  api.useModel(model.id);
  await refresh();
  return model.id;
}

async function begin() {
  try {
    models = (await api.models()).data;
    [model] = models;
    drawModels();
    if (models.length > 1) api.useModel(model.id);
    await refresh();
    panels.read.begin();
  } catch (error) {
    problem(error);
  }
}

$('model-choice').addEventListener('change', async () => {
  try {
    await chooseModel($('model-choice').value);
    panels.read.again();
  } catch (error) {
    problem(error);
  }
});
tabs(document.querySelector('[role=tablist]'), name => panels[name].show?.());
begin();
