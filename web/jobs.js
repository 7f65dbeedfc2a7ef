// Work that takes the server longer than a request: how far it is, and a way to end it.
import {el} from './dom.js';
import {whole} from './format.js';
import * as api from './api.js';

const LOOK = 400;
const DOING = {add: 'Reading documents', tune: 'Tuning', compact: 'Compacting', verify: 'Verifying'};

const farOf = ({status, progress}) => status === 'waiting' ? 'waiting' : progress?.total ? `${progress.phase}: ${whole(progress.done)} of ${whole(progress.total)} ${progress.unit}` : progress?.phase || status;

// Where the jobs of a store are shown, a line each. follow(what, job): its result, when it has ended.
export function jobLines() {
  const element = el('div.jobs', {'aria-live': 'polite'});

  function line(what, id) {
    const bar = el('progress', {'aria-label': what}), told = el('span.small'), cancel = el('button.small-button', {type: 'button', click: () => api.cancelJob(id).catch(() => {})}, 'Cancel');
    const node = el('div.row.job', {}, el('span', {}, what), bar, told, cancel);
    element.append(node);
    return {
      show(job) {
        told.textContent = farOf(job);
        bar.max = job.progress?.total || 1;
        if (job.progress?.total) bar.value = job.progress.done;
      },
      end: () => node.remove(),
    };
  }

  const followed = new Set();

  async function follow(what, job) {
    const shown = line(what, job.id);
    followed.add(job.id);
    try {
      for (let now = job;; now = await api.job(now.id)) {
        shown.show(now);
        if (now.status === 'done') return now.result;
        if (now.status === 'failed') throw new Error(now.error.message);
        if (now.status === 'cancelled') throw new Error(`${what}: cancelled.`);
        await new Promise(done => setTimeout(done, LOOK));
      }
    } finally {
      shown.end();
    }
  }
  // Of a job that somebody began before this page was loaded, or elsewhere: its line, until it ends. ondone() then.
  function join(job, ondone) {
    if (!['waiting', 'running'].includes(job.status) || followed.has(job.id)) return;
    follow(DOING[job.kind] ?? job.kind, job).then(ondone, () => {});
  }
  return {element, follow, join};
}
