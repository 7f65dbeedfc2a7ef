// The page of `knnlm serve` as a workbench: tuning, long readings, comparing, links, reports, documents. As tests/page.mjs.
import {mkdtemp, readFile, rm, writeFile} from 'node:fs/promises';
import {tmpdir} from 'node:os';
import {url, TEXT, ok, is, near, api, open, close, part, shot, textOf, shownNumber, answered, sent, turn, start, read, generate, shelf, audit, finish} from './page_kit.mjs';

const sum = all => all.reduce((a, b) => a + b, 0);
const frames = page => page.evaluate(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))));

// ---------------------------------------------------------------- λ and T

const perplexityAt = (tokens, lambda, step) => Math.exp(-sum(tokens.map(t => Math.log(lambda * t.p_knn_at[step] + (1 - lambda) * t.p_lm))) / tokens.length);

// By trying all of them.
function bestOf({tokens}) {
  const found = {ppl: Infinity};
  for (let step = 0; step < tokens[0].p_knn_at.length; step++) {
    for (let lambda = 0; lambda <= 100; lambda++) {
      const ppl = perplexityAt(tokens, lambda / 100, step);
      if (ppl < found.ppl) Object.assign(found, {ppl, lambda: lambda / 100, step});
    }
  }
  return found;
}

await part('tuning in place', async () => {
  const page = await open();
  await start(page);
  const score = await read(page, TEXT), best = bestOf(score), requests = page.requests.length;
  const label = await page.locator('#lambda-curve').getAttribute('aria-label');
  near(Number(/: ([\d.]+) at 0/.exec(label.replace(/\u202f/g, ''))[1]), score.ppl_lm, 'the curve begins at the model’s perplexity');
  const points = (await page.locator('#lambda-curve polyline').getAttribute('points')).split(' ').map(pair => pair.split(',').map(Number));
  is(points.length, 51, 'points of the curve');
  is(points.at(-1)[0], 100, 'the curve ends at λ = 1');
  await page.click('#tune');
  await frames(page);
  near(await shownNumber(page, '#ppl'), best.ppl, 'the best that can be had');
  is(await shownNumber(page, '#lambda-out'), best.lambda, 'the best λ');
  const step = Number(await page.inputValue('#temperature')); // several may be as good
  near(perplexityAt(score.tokens, best.lambda, step), best.ppl, `a best T: ${step}, as ${best.step}`, 1e-6);
  is(await page.isChecked('#lambda-tuned') || await page.isChecked('#temperature-tuned'), false, 'no longer as the store was tuned');
  is(page.requests.length, requests, 'requests for tuning');
  const direct = await api('POST', '/v1/score', {text: TEXT, knn: {lambda: best.lambda, temperature: sent(page, '/v1/score').at(-1).knn.temperatures[best.step]}});
  near(direct.ppl, best.ppl, 'what the server makes of it');
  // The lowest point of the curve at this T is where the mark is.
  const tuned = (await page.locator('#lambda-curve polyline').getAttribute('points')).split(' ').map(pair => pair.split(',').map(Number));
  const mark = Number(await page.locator('#lambda-curve .best').getAttribute('x1')), beside = tuned.filter(([x]) => Math.abs(x - mark) <= 2);
  ok(Math.max(...beside.map(([, y]) => y)) >= Math.max(...tuned.map(([, y]) => y)) - .1, `the mark is at the lowest point: ${mark}`);
  await turn(page, '#lambda', .1);
  is(Number(await page.locator('#lambda-curve .now').getAttribute('x1')), 10, 'the line of the λ of now');
  await close(page);
});

await part('settings in effect', async () => {
  const page = await open();
  await start(page);
  const both = await read(page, TEXT), effect = numberOfT => both.tokens.every(t => Math.abs(t.p_knn_at[numberOfT] - t.p_knn) <= 1e-4 * t.p_knn + 1e-9);
  const step = both.tokens[0].p_knn_at.findIndex((_, j) => effect(j)), temperatures = sent(page, '/v1/score').at(-1).knn.temperatures;
  if (step < 0) is(await textOf(page, '#temperature-out'), 'varies', 'temperatures of two stores');
  else near(await shownNumber(page, '#temperature-out'), temperatures[step], 'the T in effect', 6e-3);
  // A server whose T is none that its stores were tuned to, nor of the grid.
  await page.route('**/v1/score', async route => {
    const answer = await (await route.fetch()).json();
    for (const token of answer.tokens) token.p_knn *= .77;
    await route.fulfill({json: answer});
  });
  await read(page, `${TEXT} `);
  is(await textOf(page, '#temperature-out'), 'varies', 'a T that the page does not know is not made up');
  await close(page);
});

// ---------------------------------------------------------------- long texts

const LONG = Array.from({length: 60}, (_, i) => `Letter ${i}. Dear reader, the weather is fine, and the store has the context of every word.`).join('\n');

await part('long readings', async () => {
  const page = await open();
  await start(page);
  const whole = await api('POST', '/v1/score', {text: LONG}), asked = [];
  await page.route('**/v1/score', async route => {
    asked.push(route.request().postDataJSON().tokens.length);
    if (asked.length === 2) { // the first colours are there before the second answer
      await page.waitForFunction(() => document.querySelectorAll('#tokens .p, #tokens .n').length > 50);
      is(await page.locator('#tokens .t').count(), asked[0], 'tokens of the first part');
      is(await page.locator('#read-progress').isVisible() && await page.locator('#read-cancel').isVisible(), true, 'progress, and a way out');
      ok(/^256 of [\d\u202f]+ tokens$/.test(await textOf(page, '#read-count')), `how far it is: ${await textOf(page, '#read-count')}`);
    }
    await route.continue();
  });
  await page.fill('#read-text', LONG);
  await page.click('#read-go');
  await page.waitForFunction(n => document.querySelectorAll('#tokens .t').length === n, whole.count);
  await page.waitForFunction(() => document.getElementById('read-progress').hidden);
  ok(asked.length > 2 && asked[0] === 256 && asked.at(-1) === whole.count, `parts: ${asked}`);
  near(await shownNumber(page, '#ppl'), whole.ppl, 'the perplexity of the whole');
  is(await page.locator('#tokens').evaluate(e => e.textContent.replaceAll('↵', '')), LONG, 'the text, each word once');
  const bars = await page.locator('#strip rect').count();
  ok(bars > 0 && bars <= 240, `bars of the strip: ${bars}`);
  await page.locator('#strip').click({position: {x: 2, y: 5}});
  is(await page.locator('#tokens .open').getAttribute('data-i'), '0', 'a click on the strip goes to its token');
  await page.keyboard.press('Escape');
  await shot(page, 'wide-long');
  await close(page);
});

await part('cancel', async () => {
  const page = await open();
  await start(page);
  let count = 0;
  await page.route('**/v1/score', route => ++count < 2 ? route.continue() : undefined); // the second is never answered
  await page.fill('#read-text', LONG);
  await page.click('#read-go');
  await page.waitForFunction(() => document.querySelectorAll('#tokens .t').length === 256);
  await page.click('#read-cancel');
  await page.waitForFunction(() => document.getElementById('read-count').textContent === 'stopped after 256 tokens');
  is(await page.locator('#read-progress').isHidden() && await page.locator('#read-cancel').isHidden(), true, 'nothing is under way');
  is(await textOf(page, '#problem'), '', 'to cancel is no error');
  is(await textOf(page, '#read-go'), 'Read it', 'one can begin anew');
  await page.unroute('**/v1/score');
  await read(page, TEXT);
  is(await textOf(page, '#problem'), '', 'another text');
  await close(page);
});

// ---------------------------------------------------------------- what helped

await part('strip, shares and search', async () => {
  const page = await open();
  await start(page);
  const score = await read(page, TEXT), gains = score.tokens.map(t => t.logprob - Math.log(t.p_lm));
  await page.waitForTimeout(150);
  is(await page.locator('#strip rect').count(), gains.length, 'a bar a token');
  const bars = await page.locator('#strip rect').evaluateAll(all => all.map(bar => bar.getAttribute('class')));
  ok(bars.every((name, i) => Math.abs(gains[i]) < 1e-6 || name === (gains[i] > 0 ? 'p' : 'n')), 'bars go up and down as the gains do');
  const shares = (await textOf(page, '#shares')).replace(/\u202f/g, ''), [helped, hurt] = [...shares.matchAll(/([\d.]+)%/g)].map(match => Number(match[1]));
  near(helped, 100 * gains.filter(g => g > 0).length / gains.length, 'the share that was helped', 6e-3);
  near(hurt, 100 * gains.filter(g => g < 0).length / gains.length, 'the share that was hurt', 6e-3);
  await page.fill('#extremes-search', 'NEIGHBOURS of');
  const found = await page.locator('#extremes-list .words-before').allTextContents();
  ok(found.length > 0 && found.every(text => text.toLowerCase().includes('neighbours of')), `what the search found: ${found.join(' | ')}`);
  await page.fill('#extremes-search', 'zebra');
  is(await textOf(page, '#extremes-list'), 'No such token was helped.', 'nothing is found');
  await close(page);
});

await part('gain by document', async () => {
  const page = await open();
  await start(page);
  await read(page, TEXT);
  await page.click('#origins-go');
  await page.waitForSelector('.by-document li');
  const stores = await page.locator('.by-store li').allTextContents(), documents = await page.locator('.by-document li').allTextContents();
  const numberOf = text => Number(/[+−][\d.]+$/.exec(text)[0].replace('−', '-'));
  ok(stores.length === 2 && stores.some(text => text.startsWith('told')), `by store: ${stores}`);
  ok(documents.some(text => text.startsWith('told.txt') || text.includes('/told.txt')), `by document: ${documents}`);
  const score = await api('POST', '/v1/score', {text: TEXT, documents: 100}), all = sum(score.tokens.map(t => t.logprob - Math.log(t.p_lm)));
  ok(Math.abs(sum(stores.map(numberOf)) - all) < .02, `the stores make the whole: ${stores} of ${all}`);
  is(documents.length, Math.min(12, score.gain.documents.length), 'documents that are listed');
  const {document, gain} = score.gain.documents[0], rest = sum(score.gain.documents.slice(12).map(one => one.gain));
  ok(documents[0].startsWith(document) && Math.abs(numberOf(documents[0]) - gain) < .006, `the document that did most: ${documents[0]}`);
  ok(Math.abs(sum(documents.map(numberOf)) + rest - all) < .1, `the documents make the whole: ${documents} ${rest} of ${all}`);
  is(await page.locator('#origins-go').isHidden(), true, 'it is asked once');
  await page.locator('.by-document button').first().click();
  await page.waitForSelector('#document[open] mark');
  await page.keyboard.press('Escape');
  // In the table of the stores, too.
  const gainOf = name => page.locator(`${shelf('told')} tbody tr`).filter({hasText: name}).locator('.gain').textContent();
  const asked = sent(page, '/v1/score').length;
  await page.click('#stores-tab');
  await page.waitForFunction(() => /[+−]/.test(document.querySelector('[data-store=told] .gain')?.textContent));
  const told = score.gain.documents.find(one => one.document === 'told.txt');
  near(Number((await gainOf('told.txt')).replace('−', '-')), told.gain, 'the gain of a document in the table', 1e-3);
  is(sent(page, '/v1/score').length, asked, 'what is known is not asked again');
  const before = await gainOf('told.txt');
  await page.click('#read-tab');
  await turn(page, '#lambda', .1);
  is(await page.locator('#origins-go').isVisible(), true, 'other settings, other gains');
  await page.click('#stores-tab');
  await page.waitForFunction(old => ![...document.querySelectorAll('[data-store=told] .gain')].some(cell => cell.textContent === old), before);
  is(sent(page, '/v1/score').at(-1).knn.lambda, .1, 'the gains of these settings');
  await close(page);
});

// ---------------------------------------------------------------- two settings, links, reports

await part('side by side', async () => {
  const page = await open();
  await start(page);
  await read(page, TEXT);
  const before = await shownNumber(page, '#ppl'), colours = await page.locator('#tokens .t').evaluateAll(all => all.map(t => t.className));
  await page.click('#keep');
  await turn(page, '#lambda', .9);
  is(await page.locator('#kept').isVisible(), true, 'the kept one');
  near(await shownNumber(page, '#kept-ppl').then(() => textOf(page, '#kept-ppl')).then(text => Number(text.replace(/[^\d.]/g, ''))), before, 'its perplexity stands still');
  is((await page.locator('#kept-tokens .t').evaluateAll(all => all.map(t => t.className.trim()))).join('|'), colours.map(c => c.trim()).join('|'), 'so do its colours');
  ok((await page.locator('#tokens .t').evaluateAll(all => all.map(t => t.className.trim()))).join('|') !== colours.join('|'), 'the other one changes');
  ok((await textOf(page, '#now-name')).startsWith('λ 0.90'), 'the settings of now');
  const after = await shownNumber(page, '#ppl');
  ok((await textOf(page, '#now-ppl')).includes(after > before ? '+' : '−'), 'by how much they differ');
  const one = answered(page, '/v1/score');
  await page.locator('#read-stores [value=letters]').click();
  await one;
  await page.waitForFunction(() => document.getElementById('now-name').textContent.endsWith(', told'));
  ok((await textOf(page, '#kept-name')).endsWith('told + letters'), 'stores are compared, too');
  await shot(page, 'wide-compare');
  await page.locator('#kept-tokens .t').nth(3).click();
  is(await page.locator('#tokens .open').getAttribute('data-i'), '3', 'a token of the kept one opens the same of the other');
  await page.keyboard.press('Escape');
  await read(page, `${TEXT} More.`);
  is(await page.locator('#kept').isHidden(), true, 'another text is not compared');
  await close(page);
});

await part('links', async () => {
  const page = await open({permissions: ['clipboard-read', 'clipboard-write']});
  await start(page);
  const text = `${TEXT}\n<b>ü</b> & 日本 100 %?#`;
  await read(page, text);
  const one = answered(page, '/v1/score');
  await page.locator('#read-stores [value=letters]').click();
  await one;
  await turn(page, '#lambda', .6);
  await turn(page, '#temperature', 20);
  await page.click('#link');
  await page.waitForFunction(() => document.getElementById('said').textContent.startsWith('The link is copied'));
  const [ppl, link] = [await textOf(page, '#ppl'), await page.evaluate(() => navigator.clipboard.readText())];
  is(link, page.url(), 'the address is the link');
  const other = await open();
  const first = answered(other, '/v1/score');
  await other.goto(link);
  await first;
  await other.waitForFunction(expected => document.getElementById('ppl').textContent === expected, ppl);
  is(await other.inputValue('#read-text'), text, 'the text of the link');
  is(await other.inputValue('#lambda'), '0.6', 'its λ');
  is(await other.inputValue('#temperature'), '20', 'its T');
  is(await other.isChecked('#read-stores [value=letters]'), false, 'its stores');
  is(sent(other, '/v1/score').length, 1, 'only that text was read');
  await other.goto(`${url}#/read?z=AAAA&lambda=0.5`);
  await other.waitForFunction(() => document.getElementById('problem').textContent.includes('damaged'));
  await other.goto(`${url}#/read?z=AAAA&lambda=7`);
  await other.waitForFunction(() => document.getElementById('problem').textContent.includes('its lambda is no number'));
  await close(other);
  await close(page);
});

await part('report', async () => {
  const page = await open();
  await start(page);
  const score = await read(page, `${TEXT} </script><img src=x onerror="window.pwned=1">`);
  const saved = page.waitForEvent('download');
  await page.click('#save');
  const html = await readFile(await (await saved).path(), 'utf8');
  await page.waitForFunction(() => document.getElementById('said').textContent.startsWith('Saved'));
  const view = await page.context().newPage();
  await view.setContent(html);
  is(await view.locator('#text .body > span').count(), score.tokens.length, 'tokens of the report');
  ok((await view.locator('#rows').textContent()).includes('with neighbours'), 'its figures');
  is(await view.locator('#curves svg').count(), 1, 'its curve');
  await view.locator('#text .body > span.p, #text .body > span.n').first().click();
  ok(await view.locator('#panel .neighbors li').count() > 0, 'neighbours of a token that changed');
  is(await view.evaluate(() => typeof window.pwned), 'undefined', 'a text is no script');
  await view.close();
  await close(page);
});

// ---------------------------------------------------------------- documents

await part('a passage in its document', async () => {
  const page = await open();
  await api('POST', '/v1/stores/told/documents', {name: 'long.txt', text: LONG});
  await start(page);
  await read(page, 'Dear reader, the weather is fine');
  await page.locator('#tokens .t').nth(4).click();
  await page.waitForSelector('.neighbors .link');
  const answer = await api('POST', '/v1/explain', {...sent(page, '/v1/explain').at(-1)}), nearest = answer.neighbors[0];
  await page.locator('.neighbors .link').first().click();
  await page.waitForSelector('#document[open] mark');
  is(await textOf(page, '#document-title'), nearest.document, 'the document of the neighbour');
  is((await textOf(page, '#document-body mark')).trim(), nearest.text.trim(), 'its word');
  ok((await textOf(page, '#document-about')).includes(`token ${nearest.position.toLocaleString('en').replace(/,/g, '\u202f')},`), 'its place');
  await page.keyboard.press('Escape');
  is(await page.locator('#document').isHidden(), true, 'Escape closes it');
  is(await page.locator('#token').isVisible(), true, 'and nothing else');

  await page.click('#stores-tab');
  await page.locator(`${shelf('told')} tbody button.link`, {hasText: 'long.txt'}).click();
  await page.waitForSelector('#document[open] mark');
  is(await page.isDisabled('#document-earlier'), true, 'a document opens at its beginning');
  ok((await textOf(page, '#document-body')).startsWith('Letter 0.'), 'its first words');
  for (let i = 0; i < 20 && !await page.isDisabled('#document-later'); i++) {
    const place = await textOf(page, '#document-about');
    await page.click('#document-later');
    await page.waitForFunction(old => document.getElementById('document-about').textContent !== old, place);
  }
  ok((await textOf(page, '#document-body')).endsWith('the context of every word.'), 'one can read to its end');
  await page.click('#document-earlier');
  await page.waitForFunction(() => !document.getElementById('document-later').disabled);
  await page.click('#document-close');
  await api('DELETE', '/v1/stores/told/documents/long.txt');
  await close(page);
});

// ---------------------------------------------------------------- writing

const written = (page, id) => page.locator(id).evaluate(output => {
  const copy = output.cloneNode(true);
  for (const number of copy.querySelectorAll('sup, .prompt')) number.remove();
  return copy.textContent;
});

await part('with and without neighbours', async () => {
  const page = await open({permissions: ['clipboard-read', 'clipboard-write']});
  await start(page);
  await page.click('#generate-tab');
  await page.check('#beside');
  await generate(page, {prompt: 'The nearest', length: 40, heat: .5, seed: 7, 'knn-lambda': .8, 'knn-temperature': 2, 'knn-k': 12});
  await page.waitForFunction(() => !document.getElementById('generate-go').disabled);
  const [mixed, alone] = sent(page, '/v1/completions');
  is(`${mixed.knn.lambda} ${mixed.knn.temperature} ${mixed.knn.k}`, '0.8 2 12', 'λ, T and k');
  is(alone.knn.stores.length, 0, 'the model alone');
  is(`${alone.prompt} ${alone.seed} ${alone.temperature}`, `${mixed.prompt} ${mixed.seed} ${mixed.temperature}`, 'the same of all else');
  for (const [id, body] of [['#output', mixed], ['#alone', alone]]) {
    const direct = await api('POST', '/v1/completions', {...body, stream: false});
    is((await written(page, id)).trim(), direct.choices[0].text.trim(), `the words of ${id}`);
  }
  ok(await written(page, '#output') !== await written(page, '#alone'), 'neighbours make a difference');
  await shot(page, 'wide-beside');
  await page.click('#copy');
  await page.waitForFunction(() => document.getElementById('generate-count').textContent.startsWith('copied'));
  const copied = await page.evaluate(() => navigator.clipboard.readText()), direct = await api('POST', '/v1/completions', {...mixed, stream: false});
  const {text, knn} = direct.choices[0], notes = knn.sources.filter(source => source.footnote);
  is(copied.split('\n\nSources\n')[0].replace(/\[\d+\]/g, ''), `The nearest${text}`, 'the text that was copied');
  ok(notes.length > 0 && notes.every(n => copied.includes(`[${n.footnote}] ${n.document} (${n.store}, token ${n.position})`)), `its sources: ${copied}`);
  is(copied.split('\n\nSources\n')[0].match(/\[\d+\]/g).join(), notes.map(n => `[${n.footnote}]`).join(), 'a mark for each');
  await page.locator('.run').first().click();
  await page.waitForSelector('#passage mark');
  await page.locator('#passage-title button').click();
  await page.waitForSelector('#document[open] mark');
  await page.keyboard.press('Escape');
  is(await page.locator('#passage').isVisible(), true, 'Escape closes the document alone');
  await page.uncheck('#beside');
  await page.fill('#seed', '');
  await page.fill('#knn-lambda', '');
  await page.click('#generate-go');
  await page.waitForFunction(() => !document.getElementById('generate-go').disabled);
  is(sent(page, '/v1/completions').length, 3, 'once, without the model alone');
  is('lambda' in sent(page, '/v1/completions').at(-1).knn, false, 'λ as tuned');
  is(await page.locator('#alone').isHidden(), true, 'one text');
  await close(page);
});

await part('both stop', async () => {
  const page = await open();
  await start(page);
  await page.click('#generate-tab');
  await page.check('#beside');
  await page.route('**/v1/completions', route => route.request().postDataJSON().knn.stores ? route.fulfill({status: 500, json: {error: {message: 'memory ran out'}}}) : route.continue());
  await generate(page, {prompt: 'The nearest', length: 4096, heat: 1, seed: 1});
  await page.waitForSelector('#problem .problem');
  await page.waitForFunction(() => !document.getElementById('generate-go').disabled);
  const then = await written(page, '#output');
  await page.waitForTimeout(300);
  is(await written(page, '#output'), then, 'one that fails ends the other');
  await close(page);
});

// ---------------------------------------------------------------- jobs

await part('jobs and upkeep', async () => {
  const page = await open(), before = (await api('GET', '/v1/stores/told')).entries, said = `${shelf('told')} .upkeep .small`;
  await start(page);
  await page.click('#stores-tab');
  await page.waitForSelector(`${shelf('told')} tbody tr`);
  const ran = verb => page.waitForFunction(word => document.querySelector('[data-store=told] .upkeep .small').textContent.startsWith(word), verb);
  await page.locator(`${shelf('told')} [data-verb=verify]`).click();
  await ran('Verified');
  ok((await textOf(page, said)).includes(`${before} entries`), `what was verified: ${await textOf(page, said)}`);

  await page.locator(`${shelf('told')} .add summary`).click();
  const folder = await mkdtemp(`${tmpdir()}/knnlm-page-`);
  for (const [name, text] of [['one.txt', 'One letter of a folder.'], ['two.txt', 'Another letter of it.'], ['picture.bin', 'a\0b']]) await writeFile(`${folder}/${name}`, text);
  await page.locator(`${shelf('told')} input[webkitdirectory]`).setInputFiles(folder);
  await page.waitForFunction(() => /remembers 2 documents more/.test(document.getElementById('note').textContent));
  ok((await textOf(page, '#note')).includes('1 file without text left out'), 'what is no text');
  const names = (await api('GET', '/v1/stores/told/documents')).data.map(d => d.name).filter(name => /(one|two)\.txt$/.test(name));
  is(names.length, 2, 'documents of the folder');
  await page.waitForFunction(n => [...document.querySelectorAll('[data-store=told] tbody th')].some(th => th.textContent === n), names[0]);
  await rm(folder, {recursive: true});
  for (const name of names) await api('DELETE', `/v1/stores/told/documents/${encodeURIComponent(name)}`);
  await page.locator(`${shelf('told')} [data-verb=compact]`).click();
  await ran('Compacted');
  is((await api('GET', '/v1/stores/told')).removed_entries, 0, 'what was removed is dropped');
  await page.locator(`${shelf('told')} [data-verb=tune]`).click();
  await ran('Tuned');
  ok((await api('GET', '/v1/stores/told')).tuned !== null, 'the settings are kept in the store');

  // A large text becomes a job, which can be ended.
  const job = {object: 'job', id: 'j1', kind: 'add', store: 'told', status: 'running', progress: {phase: 'reading', done: 5, total: 10, unit: 'tokens'}, result: null, error: null};
  await page.route('**/v1/stores/told/documents', route => route.request().method() === 'POST' ? route.fulfill({status: 202, json: job}) : route.continue());
  await page.route('**/v1/jobs/j1', route => {
    if (route.request().method() === 'DELETE') job.status = 'cancelled';
    return route.fulfill({json: job});
  });
  await page.fill(`${shelf('told')} .add input[type=text]`, 'large.txt');
  await page.fill(`${shelf('told')} .add textarea`, 'a large text');
  await page.locator(`${shelf('told')} .add [type=submit]`).click();
  await page.waitForSelector('.job');
  is(await textOf(page, '.job .small'), 'reading: 5 of 10 tokens', 'how far a job is');
  await page.locator('.job button').click();
  await page.waitForFunction(() => document.getElementById('problem').textContent.includes('cancelled'));
  is(await page.locator('.job').count(), 0, 'it is gone');
  await close(page);
});

// ---------------------------------------------------------------- a map

// Where a point is drawn: as the page scales, over all that is shown.
function scaled(places, {width, height}, margin = 16) {
  const [xs, ys] = [places.map(p => p.x), places.map(p => p.y)], [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  return p => [margin + (p.x - left) / (right - left) * (width - 2 * margin), height - margin - (p.y - low) / (high - low) * (height - 2 * margin)];
}

await part('map', async () => {
  const page = await open();
  await start(page);
  await read(page, TEXT);
  await page.locator('#tokens .t').nth(4).click();
  await page.waitForSelector('.neighbors li');
  await page.click('#stores-tab');
  const box = `${shelf('letters')} .map`, asked = answered(page, '/v1/stores/letters/map');
  await page.locator(`${box} summary`).click();
  await asked;
  await page.waitForFunction(() => document.querySelector('[data-store=letters] .map .small').textContent.includes('The ring is the model’s state before'));
  const map = await api('GET', '/v1/stores/letters/map'), score = await api('POST', '/v1/score', {text: TEXT});
  const request = page.requests.filter(r => r.url().endsWith('/letters/map') && r.method() === 'POST').map(r => r.postDataJSON()).at(-1);
  is(request.tokens.join(), score.tokens.slice(0, 4).map(t => t.token).join(), 'what is before the token that is open');
  ok((await textOf(page, `${box} .small`)).includes(`${map.points.length} keys`), 'how many keys are drawn');
  is(await page.locator(`${box} .map-legend li`).count(), 7, 'six documents with colours, and the others');
  const ring = await api('POST', '/v1/stores/letters/map', request), size = await page.locator(`${box} canvas`).boundingBox();
  const where = scaled([...map.points, ring], size), [x, y] = where(ring).map(Math.round);
  const colour = await page.locator(`${box} canvas`).evaluate((canvas, [px, py]) => [...canvas.getContext('2d').getImageData(px, py, 1, 1).data].slice(0, 3).join(), [x, y]);
  is(colour, '168,50,26', 'the query is drawn at its place');
  const point = map.points[30], [px, py] = where(point);
  await page.locator(`${box} canvas`).hover({position: {x: px, y: py}});
  await page.waitForFunction(() => document.querySelector('[data-store=letters] .map-told').textContent.includes('…'));
  const told = await textOf(page, `${box} .map-told`), close4 = map.points.filter(p => Math.hypot(where(p)[0] - px, where(p)[1] - py) < 14);
  ok(close4.some(p => told.startsWith(`${map.documents[p.document]}: `)), `what hovering tells: ${told}`);
  await shot(page, 'wide-map');
  await page.locator(`${box} canvas`).focus();
  const first = await textOf(page, `${box} .map-told`);
  await page.keyboard.press('ArrowRight');
  ok(await textOf(page, `${box} .map-told`) !== first, 'the keys move from point to point');
  await page.keyboard.press('Enter');
  await page.waitForSelector('#document[open] mark');
  await page.keyboard.press('Escape');
  await api('POST', '/v1/stores/letters/documents', {name: 'more.txt', text: 'One more letter of the same kind.'});
  await page.click('#read-tab');
  await page.click('#stores-tab');
  await page.waitForFunction(n => document.querySelector('[data-store=letters] .map .small').textContent.includes(`${n} keys`), map.points.length + (await api('GET', '/v1/stores/letters')).entries - map.points.length);
  await api('DELETE', '/v1/stores/letters/documents/more.txt');
  await close(page);
});

// ---------------------------------------------------------------- nothing shifts, numbers alike, and all can use it

await part('a row that asks', async () => {
  for (const width of [1280, 400]) {
    const page = await open({viewport: {width, height: 900}});
    await start(page);
    await page.click('#stores-tab');
    await page.waitForSelector(`${shelf('letters')} tbody tr`);
    const boxes = () => page.locator(`${shelf('letters')} th, ${shelf('letters')} td`).evaluateAll(all => all.map(e => e.getBoundingClientRect()).filter(b => b.width).map(b => [b.x + scrollX, b.y + scrollY, b.width, b.height].map(Math.round).join()).join(' '));
    const before = await boxes();
    await page.locator(`${shelf('letters')} .act button.quiet`).nth(2).click();
    ok(await page.locator(`${shelf('letters')} .confirm`).nth(2).isVisible(), 'the row asks');
    is(await boxes(), before, `nothing moves at ${width} px when a row asks`);
    await page.keyboard.press('Escape');
    is(await page.locator(`${shelf('letters')} .confirm`).nth(2).isVisible(), false, 'it asks no more');
    await close(page);
  }
});

await part('numbers', async () => {
  const page = await open();
  await start(page);
  const told = await page.evaluate(async () => {
    const {digits, fixed, percent, plural, signedPercent, size, times, whole} = await import('./format.js');
    return [digits(12345.6), digits(1234567), digits(1e9), digits(-12345), digits(415.23), digits(.0012346), fixed(12345.678, 2), whole(1234567), whole(999), plural(1000, 'token'),
      percent(.1234), percent(.01234), percent(1), signedPercent(12.5), signedPercent(-.5), signedPercent(-.99964), signedPercent(-1), size(1234567), times(Math.log(12345.6)), times(-Math.log(2)), times(.001)].join('|').replaceAll('\u202f', '_');
  });
  is(told, '12_346|1_234_567|1.00·10⁹|−12_345|415.2|0.001235|12_345.68|1_234_567|999|1_000 tokens|12.3_%|1.2_%|100_%|+1_250_%|−50_%|−99.96_%|−100_%|1.2_MB|×12_346|÷2|×1.00', 'numbers');
  await close(page);
});

await part('accessible', async () => {
  for (const [colorScheme, width] of [['light', 1280], ['dark', 1280], ['light', 400]]) {
    const page = await open({colorScheme, viewport: {width, height: 900}, reducedMotion: 'reduce'}), where = `${colorScheme}, ${width} px`;
    const look = async name => {
      await audit(page, `${name}, ${where}`);
      await shot(page, `${colorScheme}-${width}-${name}`);
    };
    await start(page);
    await read(page, TEXT);
    await turn(page, '#lambda', .9);
    await page.waitForTimeout(150);
    await look('reading');
    await page.click('#keep');
    await page.click('#origins-go');
    await page.waitForSelector('.by-document li');
    await look('comparing');
    await page.locator('#tokens .t').nth(4).click();
    await page.waitForSelector('.neighbors .link');
    await look('token');
    await page.locator('.neighbors .link').first().click();
    await page.waitForSelector('#document[open] mark');
    await look('document');
    await page.keyboard.press('Escape');
    await page.keyboard.press('Escape');
    await page.click('#generate-tab');
    await page.check('#beside');
    await generate(page, {prompt: 'The nearest', length: 30, heat: 0});
    await page.waitForFunction(() => !document.getElementById('generate-go').disabled);
    await page.waitForTimeout(250);
    await look('generate');
    await page.locator('.run').first().click();
    await page.waitForSelector('#passage mark');
    await look('passage');
    await page.keyboard.press('Escape');
    await page.click('#stores-tab');
    await page.waitForSelector(`${shelf('letters')} tbody tr`);
    await page.locator(`${shelf('told')} .act button.quiet`).first().click();
    await page.locator('.add summary').first().click();
    await page.locator('.map summary').first().click();
    await page.waitForSelector('.map-legend li');
    await look('stores');
    await page.locator('.map canvas').first().scrollIntoViewIfNeeded();
    await shot(page, `${colorScheme}-${width}-map`);
    await close(page);
  }
});

await finish();
