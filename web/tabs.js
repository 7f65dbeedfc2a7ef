// A list of tabs: arrows, Home and End move, the address remembers.
// The address names no id, or the browser would go there.

export function tabs(list, onshow) {
  const all = [...list.querySelectorAll('[role=tab]')];
  const panelOf = tab => document.getElementById(tab.getAttribute('aria-controls'));
  const pathOf = hash => hash.replace(/\?.*/, ''); // a panel may have more to say in the address
  const addressOf = tab => `#/${tab.getAttribute('aria-controls')}`;

  function show(tab) {
    for (const other of all) {
      const chosen = other === tab;
      other.setAttribute('aria-selected', chosen);
      other.tabIndex = chosen ? 0 : -1;
      panelOf(other).hidden = !chosen;
    }
    if (pathOf(location.hash) !== addressOf(tab)) history.replaceState(null, '', addressOf(tab));
    onshow(panelOf(tab).id);
  }

  const moves = {ArrowRight: i => (i + 1) % all.length, ArrowLeft: i => (i + all.length - 1) % all.length, Home: () => 0, End: () => all.length - 1};
  list.addEventListener('keydown', event => {
    const move = moves[event.key], i = all.indexOf(event.target);
    if (!move || i < 0) return;
    event.preventDefault();
    const tab = all[move(i)];
    show(tab);
    tab.focus();
  });
  list.addEventListener('click', event => {
    const tab = event.target.closest('[role=tab]');
    if (tab) show(tab);
  });
  show(all.find(tab => addressOf(tab) === pathOf(location.hash)) ?? all[0]);
}
