// The small words over what is pointed at or has the focus.
import {$} from './dom.js';

const tip = $('tip');
let owner = null;

function place(item) {
  const box = item.getClientRects()[0] ?? item.getBoundingClientRect(), margin = 8;
  const left = Math.min(Math.max(margin, box.left), innerWidth - tip.offsetWidth - margin);
  const above = box.top - tip.offsetHeight - 6;
  tip.style.setProperty('left', `${Math.max(margin, left)}px`);
  tip.style.setProperty('top', `${above > margin ? above : box.bottom + 6}px`);
}

function show(item, content) {
  hide();
  owner = item;
  tip.replaceChildren(...content);
  tip.hidden = false;
  item.setAttribute('aria-describedby', 'tip');
  place(item);
}

export function hide() {
  owner?.removeAttribute('aria-describedby');
  owner = null;
  tip.hidden = true;
}

// describe(i): the nodes for the item data-i of the container.
export function tips(container, describe) {
  const itemOf = event => event.target.closest?.('[data-i]');
  const enter = event => {
    const item = itemOf(event);
    if (item && item !== owner) show(item, describe(Number(item.dataset.i)));
  };
  const leave = event => {
    if (itemOf(event) === owner && event.relatedTarget?.closest?.('[data-i]') !== owner) hide();
  };
  container.addEventListener('pointerover', enter);
  container.addEventListener('focusin', enter);
  container.addEventListener('pointerout', leave);
  container.addEventListener('focusout', leave);
}

document.addEventListener('keydown', event => { if (event.key === 'Escape') hide(); });
addEventListener('scroll', () => { if (owner) place(owner); }, {capture: true, passive: true});
