// The gains along a text, as a strip of bars: up where neighbours helped, down where they hurt. A click goes there.
import {$, svg} from './dom.js';
import {digits} from './format.js';

const BARS = 240, HALF = 14, HIGHEST = Math.log(16), STILL = 60;

// The mean gain of some tokens a bar.
function binned(gain) {
  const count = Math.min(BARS, gain.length), bars = [];
  for (let b = 0; b < count; b++) {
    const from = Math.floor(b * gain.length / count), some = gain.slice(from, Math.floor((b + 1) * gain.length / count)).filter(Number.isFinite);
    bars.push({from, mean: some.length ? some.reduce((sum, g) => sum + g, 0) / some.length : 0});
  }
  return bars;
}

// By the root, as the colours are.
function barOf({mean}, i, count) {
  const high = HALF * Math.sqrt(Math.min(1, Math.abs(mean) / HIGHEST)), wide = 100 / count;
  return svg('rect', {class: mean > 0 ? 'p' : 'n', x: (i * wide).toFixed(3), width: (wide * .85).toFixed(3), y: (mean > 0 ? HALF - high : HALF).toFixed(2), height: high.toFixed(2)});
}

function describe(bars) {
  const quarter = Math.ceil(bars.length / 4), means = [0, 1, 2, 3].map(q => bars.slice(q * quarter, (q + 1) * quarter))
    .filter(some => some.length).map(some => digits(some.reduce((sum, {mean}) => sum + mean, 0) / some.length, 2));
  return `Gain along the text, its parts one after another: ${means.join(', ')} nats a token`;
}

// onpick(i): the place of token i was clicked.
export function strip(onpick) {
  let bars = [], timer = 0;
  const drawing = $('strip');
  function draw(gain) {
    bars = binned(gain);
    drawing.replaceChildren(...bars.map((bar, i) => barOf(bar, i, bars.length)), svg('line', {x1: 0, x2: 100, y1: HALF, y2: HALF}));
    drawing.setAttribute('aria-label', describe(bars));
  }
  drawing.addEventListener('click', event => {
    const box = drawing.getBoundingClientRect(), b = Math.floor((event.clientX - box.left) / box.width * bars.length);
    if (bars[b]) onpick(bars[b].from);
  });
  return {
    update(gain) {
      clearTimeout(timer);
      timer = setTimeout(draw, STILL, Array.from(gain));
    },
  };
}
