// Boxes to switch stores on and off.
import {el} from './dom.js';

// knn(): the member `stores` of a request's knn, nothing when all are on. A store that comes is on.
export function storeChoice(fieldset, onchange) {
  const off = new Set();
  let names = [];
  fieldset.addEventListener('change', event => {
    if (event.target.checked) off.delete(event.target.value);
    else off.add(event.target.value);
    onchange();
  });
  return {
    update(stores) {
      const now = stores.map(store => store.name);
      fieldset.hidden = !now.length;
      if (now.join('\0') === names.join('\0')) return;
      names = now;
      const boxes = names.map(name => el('label.check', {}, el('input', {type: 'checkbox', value: name, checked: !off.has(name)}), ' ', el('span.name', {}, name)));
      fieldset.replaceChildren(fieldset.firstElementChild, ...boxes);
    },
    // Only these are on; null: all.
    set(wanted) {
      for (const name of names) off[!wanted || wanted.includes(name) ? 'delete' : 'add'](name);
      for (const box of fieldset.querySelectorAll('input')) box.checked = !off.has(box.value);
    },
    isOn: name => !off.has(name),
    knn: () => names.some(name => off.has(name)) ? {stores: names.filter(name => !off.has(name))} : {},
  };
}
