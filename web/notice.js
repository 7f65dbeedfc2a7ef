// What went wrong, and what is under way, where everyone sees and hears it.
import {$, el} from './dom.js';

export function problem(error) {
  if (error.name === 'AbortError') return;
  const close = el('button.close', {type: 'button', 'aria-label': 'Dismiss', click: calm}, '✕');
  $('problem').replaceChildren(el('div.problem', {}, el('p', {}, error.message), close));
  note('');
}

export const calm = () => $('problem').replaceChildren();

export function note(text) {
  $('note').textContent = text;
}
