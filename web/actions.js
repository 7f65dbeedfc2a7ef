// What can be done with a reading: kept to be compared, sent as a link, saved as a report.
import {$} from './dom.js';
import {copy} from './clipboard.js';
import {problem} from './notice.js';
import {curve, perplexity} from './mixture.js';
import {explainAll, strongest} from './explain.js';
import {fragmentOf} from './link.js';
import {reportOf, save} from './report.js';

const LAMBDAS = Array.from({length: 21}, (_, i) => i / 20);
const TITLE = 60;

const temperatureOf = ({settings, temperatures}) => settings.step === null ? null : temperatures[settings.step];

async function link(reading) {
  const fragment = await fragmentOf({text: reading.text, lambda: reading.settings.lambda, temperature: temperatureOf(reading), stores: reading.knn.stores, model: reading.model});
  history.replaceState(null, '', fragment);
  return await copy(location.href) ? 'The link is copied: it holds the text and the settings.' : 'The address of this page now holds the text and the settings.';
}

const titleOf = text => {
  const line = text.trim().replace(/\s+/g, ' ');
  return line.length > TITLE ? `${line.slice(0, TITLE)}…` : line;
};

// The tokens that changed most come with their neighbours.
async function report(reading) {
  const {gain, p, columns, settings, names, tokenOf} = reading, some = names.length ? strongest(gain).map(tokenOf) : [];
  const explained = await explainAll(some, n => { $('said').textContent = `Asking for the neighbours of ${n} of ${some.length} tokens…`; });
  const part = sign => gain.filter(g => g * sign > 0).length / gain.length;
  const html = await reportOf({
    ...reading, explained, title: titleOf(reading.text), model: $('model').textContent, stores: names, alone: perplexity(columns.lm), mixed: perplexity(p), helped: part(1), hurt: part(-1),
    lambda: $('lambda-out').textContent, temperature: $('temperature-out').textContent, marked: Number($('lambda').value),
    curve: names.length ? {x: LAMBDAS, y: curve(columns, settings.step, LAMBDAS)} : null,
  });
  save('knnlm-report.html', html);
  return 'Saved: one file that needs no server.';
}

// reading(): what is read now, and how; keep(): it is to be compared with what comes.
export function actions({reading, keep}) {
  const does = (button, action) => button.addEventListener('click', async () => {
    button.disabled = true;
    try {
      $('said').textContent = await action(reading());
    } catch (error) {
      problem(error);
      $('said').textContent = '';
    }
    button.disabled = false;
    button.focus();
  });
  does($('link'), link);
  does($('save'), report);
  $('keep').addEventListener('click', () => {
    $('said').textContent = '';
    keep();
  });
}
