// What Generate and Chat ask of a form, and how they tell what came of it.
import {$} from './dom.js';
import {copy} from './clipboard.js';
import {percent, plural} from './format.js';
import {problem} from './notice.js';

export const numberOf = id => $(id).value === '' ? undefined : Number($(id).value);

// What is left out is as tuned. Fields are called PREFIXknn-lambda and so on.
export function knnOf(choice, prefix = '') {
  const knn = {...choice.knn(), explain: true};
  for (const name of ['lambda', 'temperature', 'k']) if ($(`${prefix}knn-${name}`).value !== '') knn[name] = numberOf(`${prefix}knn-${name}`);
  return knn;
}

// Of what was written, the part that stands in passages of the stores.
export function carriedPart(writer) {
  const {count, carried} = writer.counts();
  if (count && !carried) return ', none of them in a passage of the stores';
  return count ? `, ${percent(carried / count)} of them in ${plural(writer.numbered().length, 'passage')} of the stores` : '';
}

export async function copyText(text) {
  const done = await copy(text);
  if (!done) problem(new Error('The browser lets this page copy nothing: it does so by https, or on this machine alone.'));
  return done;
}

// Of two buttons one can be pressed, by whether work is under way. Focus goes along.
export function takeTurns(begin, end, busy) {
  const [from, to] = busy ? [begin, end] : [end, begin], had = document.activeElement === from;
  to.disabled = false;
  if (had) to.focus();
  from.disabled = true;
}
