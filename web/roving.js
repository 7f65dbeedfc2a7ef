// Many small things in a text of which one at a time is a stop of the Tab key: the arrows move to the others.

const boxOf = item => item.getClientRects()[0] ?? item.getBoundingClientRect();

// The item above (step -1) or below (1) that stands nearest.
function lineFrom(items, i, step) {
  const from = boxOf(items[i]), middle = (from.left + from.right) / 2;
  let best = i, least = Infinity, line = null;
  for (let j = i + step; j >= 0 && j < items.length; j += step) {
    const box = boxOf(items[j]);
    if (step * (box.top - from.top) < from.height / 2) continue;
    line ??= box.top;
    if (Math.abs(box.top - line) > from.height / 2) break;
    const away = Math.abs((box.left + box.right) / 2 - middle);
    if (away < least) [best, least] = [j, away];
  }
  return best;
}

const moves = {
  ArrowRight: (items, i) => Math.min(i + 1, items.length - 1), ArrowLeft: (items, i) => Math.max(i - 1, 0),
  ArrowDown: (items, i) => lineFrom(items, i, 1), ArrowUp: (items, i) => lineFrom(items, i, -1),
  Home: () => 0, End: items => items.length - 1,
};

// items(): those of now, in their order. onmove(i) after the keys or goTo moved there, onopen(i) for a click or Enter.
export function roving(container, {items, onmove = () => {}, onopen}) {
  const indexOf = target => {
    const item = target.closest('[data-i]');
    return item ? Number(item.dataset.i) : -1;
  };
  function makeCurrent(i) {
    const all = items();
    container.querySelector('[data-i][tabindex="0"]')?.setAttribute('tabindex', '-1');
    if (all[i]) all[i].tabIndex = 0;
  }
  function goTo(i, block = 'nearest') {
    makeCurrent(i);
    const item = items()[i];
    item.focus({preventScroll: true});
    item.scrollIntoView({block});
    onmove(i);
  }
  container.addEventListener('keydown', event => {
    const i = indexOf(event.target);
    if (i < 0 || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    if (moves[event.key]) goTo(moves[event.key](items(), i));
    else if (event.key === 'Enter' || event.key === ' ') onopen(i, true);
    else return;
    event.preventDefault();
  });
  container.addEventListener('click', event => {
    const i = indexOf(event.target);
    if (i < 0 || !getSelection().isCollapsed) return;
    makeCurrent(i);
    items()[i].focus({preventScroll: true});
    onopen(i, false);
  });
  return {makeCurrent, goTo};
}
