// The page of `knnlm serve` in a browser, asked by tests/test_page.sh (tests/page_kit.mjs). What the page shows is held
// against what the server says to a plain request.
import {url, locked, key, TEXT, NASTY, ok, is, isNear, near, becomes, api, open, close, part, shot, textOf, numberIn, shownNumber, answered, focused, sent, turn, start, read, COPYING, generate, stopAtOnce, shelf, finish} from './page_kit.mjs';

// ---------------------------------------------------------------- reading

await part('header and first text', async () => {
  const page = await open(), [model, stores] = [(await api('GET', '/v1/models')).data[0], (await api('GET', '/v1/stores')).data];
  const {headers} = await fetch(url);
  ok(/^default-src 'none'/.test(headers.get('Content-Security-Policy')) && !/unsafe/.test(headers.get('Content-Security-Policy')), 'a strict policy');
  is(headers.get('X-Content-Type-Options'), 'nosniff', 'types are not guessed');
  await start(page);
  is(await textOf(page, '#model'), model.id, 'the name of the model');
  const entries = stores.reduce((sum, store) => sum + store.entries, 0).toLocaleString('en').replace(/,/g, '\u202f');
  ok((await textOf(page, '#facts')).includes(`${entries} entries in 2 stores`), 'the number of entries');
  ok((await page.inputValue('#read-text')).length > 100, 'a text to begin with');
  is(await page.locator('#key-form').isHidden(), true, 'no key is asked for');
  await shot(page, 'wide-read');
  const other = answered(page, '/v1/score');
  await page.selectOption('#samples', 'stold');
  await other;
  ok(/nearest|data/.test(await page.inputValue('#read-text')), 'a passage that a store remembers');
  await close(page);
});

await part('tokens', async () => {
  const page = await open();
  await start(page);
  const score = await read(page, TEXT);
  near(await shownNumber(page, '#ppl-lm'), score.ppl_lm, 'perplexity of the model');
  near(await shownNumber(page, '#ppl'), score.ppl, 'perplexity with neighbours');
  is(await page.locator('#tokens').evaluate(e => e.textContent.replaceAll('↵', '')), TEXT, 'the text');
  const gains = score.tokens.map(t => t.logprob - Math.log(t.p_lm)), classes = await page.locator('#tokens .t').evaluateAll(all => all.map(t => t.className));
  const strong = gains.map((g, i) => [g, classes[i]]).filter(([g]) => Math.abs(g) > .1);
  ok(strong.length > 3 && strong.every(([g, c]) => (g > 0 ? / p l[1-6]/ : / n l[1-6]/).test(c)), `colours: ${JSON.stringify(strong)}`);
  const best = gains.indexOf(Math.max(...gains));
  const extreme = () => page.locator('#extremes-list button').first().getAttribute('data-token');
  await becomes(extreme, String(best), 'the token that was helped most');
  await page.check('[value=worst]', {force: true});
  await becomes(extreme, token => gains[token] < 0, 'a token that was hurt');

  await page.locator(`#tokens [data-i="${best}"]`).hover();
  ok(/^p \S+ → \S+ helped ×/.test(await textOf(page, '#tip')), `what pointing tells: ${await textOf(page, '#tip')}`);
  const explain = answered(page, '/v1/explain');
  await page.locator(`#tokens [data-i="${best}"]`).click();
  const answer = await (await explain).json(), request = sent(page, '/v1/explain').at(-1);
  await page.waitForSelector('#token .neighbors li');
  is(request.tokens.length, best, 'tokens before the one in question');
  is(request.target_token, score.tokens[best].token, 'the token in question');
  const hit = n => n.token === score.tokens[best].token, further = answer.neighbors.slice(8).filter(hit).slice(0, 4).length;
  const shown = answer.neighbors.slice(0, 8);
  ok(shown.length > 0, 'no neighbour was found');
  is(await page.locator('.neighbors li').count(), shown.length + further, 'neighbours');
  is(await page.locator('.neighbors li.hit').count(), shown.filter(hit).length + further, 'neighbours with the same token');
  is((await textOf(page, '.neighbors mark')).trim(), answer.neighbors[0].text.trim(), 'the word at the match point');
  ok((await textOf(page, '.neighbors .meta')).includes(answer.neighbors[0].document), 'the document of a neighbour');
  is(await page.locator('.words .target').count(), 1, 'the token among the likely words');
  await shot(page, 'wide-token');
  await page.locator('#token .close').click();
  is(await page.locator('#token').isHidden(), true, 'closed by its button');
  await close(page);
});

await part('sliders', async () => {
  const page = await open();
  await start(page);
  const score = await read(page, TEXT), before = page.requests.length;
  const temperatures = sent(page, '/v1/score').at(-1).knn.temperatures;
  is(temperatures.length, 33, 'temperatures that were asked for');
  await turn(page, '#lambda', 0);
  is(await textOf(page, '#ppl'), await textOf(page, '#ppl-lm'), 'λ = 0 is the model alone');
  is(await page.locator('#tokens .p, #tokens .n').count(), 0, 'colours at λ = 0');
  is(await page.isChecked('#lambda-tuned'), false, 'λ is no longer as tuned');
  await turn(page, '#lambda', .5);
  await turn(page, '#temperature', 24);
  is(await page.isChecked('#temperature-tuned'), false, 'T is no longer as tuned');
  const turned = await shownNumber(page, '#ppl');
  is(page.requests.length, before, 'requests while the sliders moved');
  const direct = await api('POST', '/v1/score', {text: TEXT, knn: {lambda: .5, temperature: temperatures[24]}});
  near(turned, direct.ppl, 'the perplexity at λ = 0.5 and another T');
  ok(Math.abs(turned - score.ppl) > 1e-3 * score.ppl, `the sliders change the perplexity: ${turned}`);
  await page.check('#lambda-tuned');
  await page.check('#temperature-tuned');
  await becomes(() => shownNumber(page, '#ppl'), isNear(score.ppl), 'as tuned again');

  await turn(page, '#lambda', .75);
  const explain = answered(page, '/v1/explain');
  await page.locator('#tokens .t').nth(3).click();
  await explain;
  is(sent(page, '/v1/explain').at(-1).knn.lambda, .75, 'neighbours are explained with the λ of the slider');
  await close(page);
});

await part('stores on and off', async () => {
  const page = await open();
  await start(page);
  const both = await read(page, TEXT);
  const off = async name => {
    const answer = answered(page, '/v1/score');
    await page.locator(`#read-stores [value=${name}]`).click();
    return (await answer).json();
  };
  is(await page.locator('#read-stores input:checked').count(), 2, 'stores that are on');
  const one = await off('told');
  is(sent(page, '/v1/score').at(-1).knn.stores.join(), 'letters', 'the store that is left');
  await page.waitForFunction(ppl => document.getElementById('ppl').textContent !== ppl, String(both.ppl));
  near(await shownNumber(page, '#ppl'), one.ppl, 'perplexity with one store');
  await off('letters');
  await page.waitForFunction(() => document.getElementById('lambda').disabled);
  is(sent(page, '/v1/score').at(-1).knn.stores.length, 0, 'no store is left');
  is(await textOf(page, '#ppl'), await textOf(page, '#ppl-lm'), 'the model alone');
  await page.locator('#tokens .t').nth(2).click();
  await page.waitForSelector('#token .words');
  is(await page.locator('.neighbors').count(), 0, 'neighbours without stores');
  await off('letters');
  await off('told');
  await page.waitForFunction(() => !document.getElementById('lambda').disabled);
  near(await shownNumber(page, '#ppl'), both.ppl, 'perplexity with both again');
  await close(page);
});

await part('files, bytes and long texts', async () => {
  const page = await open();
  await start(page);
  const own = answered(page, '/v1/score');
  await page.setInputFiles('#read-file', {name: 'mine.txt', mimeType: 'text/plain', buffer: Buffer.from('A word of mine.')});
  await own;
  is(sent(page, '/v1/score').at(-1).text, 'A word of mine.', 'the text of a file');

  const row = (text, i) => ({token: i, text, offset: i, logprob: Math.log(.2), p: .2, p_lm: .1 + .2 * (i % 2), p_knn: .3, lambda: .5, nearest: 1, entropy: 2, p_knn_at: Array(33).fill(.3)});
  const answerWith = texts => page.route('**/v1/score', route => route.fulfill({json: {object: 'score', model: 'x', count: texts.length, ppl: 5, ppl_lm: 5, tokens: texts.map(row)}}));
  await answerWith(['It', ' is', ' bytes:\\x41', 'bytes:\\xf0\\x9f', 'bytes:\\x98\\x80', '\n', '\u202e', 'bytes:\\xff']);
  await read(page, 'x');
  const texts = await page.locator('#tokens .t').evaluateAll(all => all.map(t => t.textContent));
  is(texts.join('|'), 'It|is|bytes:\\x41||😀|↵\n|U+202E|\ufffd', 'tokens that are bytes, line ends, or turn the text around');
  is(await page.locator('#tokens .part').count(), 1, 'a part of a character');

  await page.unroute('**/v1/score');
  await answerWith(Array.from({length: 5000}, (_, i) => i % 40 ? ' word' : '\n'));
  await read(page, 'x');
  is(await page.locator('#tokens .t').count(), 5000, 'tokens of a long text');
  await turn(page, '#lambda', .5);
  is(await page.locator('#tokens .t').count(), 5000, 'all of them, at another λ');
  await close(page);
});

// ---------------------------------------------------------------- by keyboard alone

async function tabTo(page, wanted, back = false) {
  for (let i = 0; i < 60; i++) {
    await page.keyboard.press(back ? 'Shift+Tab' : 'Tab');
    if (await page.evaluate(selector => document.activeElement.matches(selector), wanted)) {
      const ring = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
      ok(ring !== 'none' || wanted.includes('file'), `the focus is seen on ${wanted}`);
      return;
    }
  }
  throw new Error(`Tab never comes to ${wanted}`);
}

await part('keyboard: reading', async () => {
  const page = await open();
  await start(page);
  await page.keyboard.press('Tab');
  is(await page.evaluate(() => document.activeElement.className), 'skip', 'the first stop');
  await tabTo(page, '#read-text');
  await page.keyboard.press('Control+a');
  const typed = answered(page, '/v1/score');
  await page.keyboard.insertText(TEXT);
  await tabTo(page, '#read-go');
  await page.keyboard.press('Enter');
  const count = (await (await typed).json()).tokens.length;
  await page.waitForFunction(n => document.querySelectorAll('#tokens .t').length === n, count);
  await tabTo(page, '#lambda');
  const ppl = await textOf(page, '#ppl');
  for (let i = 0; i < 20; i++) await page.keyboard.press('ArrowRight');
  await becomes(() => textOf(page, '#ppl'), text => text !== ppl, 'the arrows turn λ');
  await tabTo(page, '#tokens [data-i]');
  is(await focused(page), '0', 'the first token');
  ok(await page.locator('#tip').isVisible(), 'the focus tells the numbers');
  is(await page.locator('#tokens [data-i="0"]').getAttribute('aria-describedby'), 'tip', 'and says them');
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('ArrowLeft');
  is(await focused(page), '1', 'two right, one left');
  await page.keyboard.press('End');
  is(await focused(page), String(count - 1), 'End');
  await page.keyboard.press('ArrowUp');
  ok(Number(await focused(page)) < count - 3, 'a line up');
  await page.keyboard.press('Home');
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.neighbors li');
  await page.keyboard.press('ArrowRight');
  await page.waitForFunction(() => document.querySelector('#token .small').textContent === 'token 3');
  is(await focused(page), '2', 'the panel follows the arrows');
  await page.waitForSelector('.neighbors li');
  await page.keyboard.press('Enter');
  is(await focused(page), 'token', 'Enter goes on into the panel');
  await page.keyboard.press('Escape');
  is(await page.locator('#token').isHidden(), true, 'Escape closes it');
  is(await focused(page), '2', 'and goes back');
  is(await page.locator('#tokens [tabindex="0"]').count(), 1, 'stops of the Tab key in the text');
  await close(page);
});

await part('keyboard: tabs, writing, stores', async () => {
  const page = await open();
  await start(page);
  await tabTo(page, '#read-tab');
  await page.keyboard.press('ArrowLeft');
  is(await focused(page), 'stores-tab', 'the tabs go round');
  is(await page.locator('#stores').isVisible() && await page.locator('#read').isHidden(), true, 'the panel of the tab');
  await page.keyboard.press('Home');
  await page.keyboard.press('ArrowRight');
  is(await focused(page), 'generate-tab', 'Home and an arrow');
  is(await page.locator('[role=tab][tabindex="0"]').count(), 1, 'stops of the Tab key among the tabs');
  await page.evaluate(values => { // without moving the focus
    document.querySelector('#generate-stores [value=letters]').click();
    for (const [id, value] of Object.entries(values)) document.getElementById(id).value = value;
  }, COPYING);
  await tabTo(page, '#prompt');
  await page.keyboard.press('Control+a');
  await page.keyboard.insertText('The nearest');
  await tabTo(page, '#length');
  await page.keyboard.press('Control+a');
  await page.keyboard.type('40');
  await tabTo(page, '#heat');
  await page.keyboard.press('Control+a');
  await page.keyboard.type('0');
  await tabTo(page, '#generate-go');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => /^(wrote|the text ended)/.test(document.getElementById('generate-count').textContent));
  is(await focused(page), 'generate-go', 'the focus after all is written');
  await tabTo(page, '.run');
  await page.keyboard.press('Enter');
  await page.waitForSelector('#passage mark');
  await page.keyboard.press('Escape');
  is(await page.locator('#passage').isHidden(), true, 'Escape closes the passage');
  is(await focused(page), '0', 'and goes back to the words');

  await tabTo(page, '#generate-tab', true);
  await page.keyboard.press('End');
  await page.waitForSelector('[data-store=letters] .documents tbody tr');
  await tabTo(page, '[data-store=letters] .act button');
  await page.keyboard.press('Enter');
  is(await page.evaluate(() => document.activeElement.textContent), 'Keep', 'the safe answer has the focus');
  await page.keyboard.press('Escape');
  is(await page.evaluate(() => document.activeElement.textContent), 'Remove…', 'Escape keeps the document');
  await page.reload();
  is(await page.locator('#stores').isVisible(), true, 'the address remembers the tab');
  await close(page);
});

// ---------------------------------------------------------------- writing

await part('generating', async () => {
  const page = await open();
  await start(page);
  await page.click('#generate-tab');
  await page.uncheck('#generate-stores [value=letters]');
  await generate(page, {prompt: 'The nearest', length: 40, 'top-p': .9, seed: 7, ...COPYING});
  await page.waitForFunction(() => /^(wrote|the text ended)/.test(document.getElementById('generate-count').textContent));
  const request = sent(page, '/v1/completions').at(-1);
  is(request.stream && request.knn.explain, true, 'a stream with sources');
  is([request.prompt, request.max_tokens, request.temperature, request.top_p, request.seed].join(), 'The nearest,40,0,0.9,7', 'what was asked for');
  is(request.dry_multiplier, undefined, 'no DRY at temperature 0');
  const direct = await api('POST', '/v1/completions', {...request, stream: false});
  const {text, knn} = direct.choices[0];
  const written = await page.locator('#output').evaluate(output => {
    const copy = output.cloneNode(true);
    for (const number of copy.querySelectorAll('sup, .prompt')) number.remove();
    return copy.textContent;
  });
  is(written.trim(), text.trim(), 'the words of the stream');
  const numbered = knn.sources.filter(source => source.footnote);
  await becomes(() => page.locator('#sources li').count(), numbered.length, 'sources');
  ok(numbered.length > 0, 'there are sources');
  is((await page.locator('.run sup').allTextContents()).filter(Boolean).join(), numbered.map(source => source.footnote).join(), 'footnotes, one a passage');
  is(await page.locator('.run.lone').count(), knn.sources.length - numbered.length, 'single words are marked quietly');
  const carried = new Set(knn.tokens.filter(token => token.source && token.text.trim()).map(token => token.source));
  is((await page.locator('.run').evaluateAll(all => [...new Set(all.map(run => run.dataset.source))])).length, carried.size, 'sources that are underlined');
  ok(/underline/.test(await page.locator('.run > span').first().evaluate(e => getComputedStyle(e).textDecorationLine)), 'words of a source are underlined');

  const first = knn.sources.find(source => source.number === Math.min(...carried));
  await page.locator(`.run[data-source="${first.number}"]`).first().click();
  await page.waitForSelector('#passage mark');
  is((await textOf(page, '#passage mark')).trim(), first.text.trim(), 'what was taken from the passage');
  is(await textOf(page, '#passage-title'), first.document, 'the document of the passage');
  const passage = await api('GET', `/v1/stores/${first.store}/entries/${first.entry}?around=100&tokens=${first.length}`);
  is((await textOf(page, '.passage')).replaceAll('…', ''), passage.before + passage.text + passage.after, 'the passage');
  await shot(page, 'wide-generate');
  await page.locator('#passage .close').click();
  await page.locator('#sources button').last().click();
  is(await textOf(page, '#passage-title'), numbered.at(-1).document, 'a passage from the list of sources');

  await page.uncheck('#generate-stores [value=told]');
  await page.click('#generate-go');
  await page.waitForFunction(() => /^(wrote|the text ended)/.test(document.getElementById('generate-count').textContent));
  is(sent(page, '/v1/completions').at(-1).knn.stores.length, 0, 'without stores');
  is(await page.locator('.run').count(), 0, 'sources without stores');

  await generate(page, {length: 5, heat: .8});
  await page.waitForFunction(() => /^(wrote|the text ended)/.test(document.getElementById('generate-count').textContent));
  is(sent(page, '/v1/completions').at(-1).dry_multiplier, 0.8, 'DRY where words are drawn');
  await close(page);
});

await part('stop', async () => {
  const page = await open();
  await start(page);
  for (let seed = 1, stopped = false; !stopped && seed < 5; seed++) {
    await stopAtOnce(page, 'stop', 'generate-count');
    await generate(page, {prompt: 'The nearest', length: 4096, heat: 1, seed});
    await page.waitForFunction(() => !document.getElementById('generate-go').disabled);
    stopped = /^stopped after/.test(await textOf(page, '#generate-count'));
    ok(stopped || seed < 4, `stopped: ${await textOf(page, '#generate-count')}`);
  }
  const then = await textOf(page, '#output');
  await page.waitForTimeout(200);
  is(await textOf(page, '#output'), then, 'no word comes after the stop');
  ok(numberIn(/after ([\d\u202f]+)/.exec(await textOf(page, '#generate-count'))[1]) < 4096, 'fewer than were asked for');
  is(await page.isDisabled('#stop'), true, 'nothing to stop');
  is(await page.locator('#problem').textContent(), '', 'a stop is no error');
  await close(page);
});

// ---------------------------------------------------------------- stores

const names = page => page.locator(`${shelf('told')} tbody th`).allTextContents();

await part('documents', async () => {
  const page = await open();
  await start(page);
  await page.click('#stores-tab');
  await page.waitForSelector(`${shelf('letters')} tbody tr`);
  const letters = await api('GET', '/v1/stores/letters/documents?offset=0&limit=20');
  is((await page.locator(`${shelf('letters')} tbody th`).allTextContents()).join(), letters.data.map(d => d.name).join(), 'the first page of documents');
  await page.locator(`${shelf('letters')} .pager button`).last().click();
  await page.waitForFunction(() => document.querySelector('[data-store=letters] .shelf .small').textContent.startsWith('21–'));
  is(await page.locator(`${shelf('letters')} tbody tr`).count(), letters.total - 20, 'the second page');
  await page.fill(`${shelf('letters')} input[type=search]`, '07');
  await page.waitForFunction(() => document.querySelectorAll('[data-store=letters] tbody tr').length === 1);
  ok((await textOf(page, `${shelf('letters')} tbody th`)).includes('07'), 'the filter');
  await page.fill(`${shelf('letters')} input[type=search]`, 'no such name');
  await page.waitForFunction(() => document.querySelector('[data-store=letters] .shelf .small').textContent === 'none');

  const store = (await api('GET', '/v1/stores')).data.find(one => one.name === 'told');
  ok((await textOf(page, `${shelf('told')} .store-facts`)).includes(`entries${store.entries}`), 'entries of a store');
  await shot(page, 'wide-stores');
  await page.locator(`${shelf('told')} .add summary`).click();
  const form = `${shelf('told')} .add form`, name = `new ${NASTY}, & "%2F" ?#.txt`;
  await page.fill(`${form} input[type=text]`, name);
  await page.fill(`${form} textarea`, `A ${NASTY} of its own: <script>window.pwned=1</script> zebras eat documents every day.`);
  const added = answered(page, '/v1/stores/told/documents');
  await page.locator(`${form} [type=submit]`).click();
  const {tokens} = await (await added).json();
  await page.waitForFunction(n => [...document.querySelectorAll('[data-store=told] tbody th')].some(th => th.textContent === n), name);
  ok((await textOf(page, '#note')).includes(`${tokens} tokens`), 'what was added');
  await page.waitForFunction(n => document.querySelector('[data-store=told] .store-facts').textContent.includes(`entries${n}`), store.entries + tokens);
  ok((await textOf(page, '#facts')).includes('entries'), 'the header after adding');

  await page.click('#read-tab');
  await read(page, 'zebras eat documents every day.');
  await page.locator('#tokens .t').last().click();
  await page.waitForSelector('.neighbors li');
  ok((await page.locator('#token .neighbors').first().textContent()).includes(name), 'the new document is a neighbour at once');

  await page.click('#stores-tab');
  const remove = page.getByRole('button', {name: `Remove ${name}`, exact: true});
  await remove.click();
  await page.locator(`${shelf('told')} .confirm:not(.away) button`, {hasText: 'Keep'}).click();
  ok((await names(page)).includes(name), 'kept');
  await remove.click();
  await page.locator(`${shelf('told')} .confirm:not(.away) .danger`).click();
  await page.waitForFunction(n => ![...document.querySelectorAll('[data-store=told] tbody th')].some(th => th.textContent === n), name);
  ok(!(await api('GET', '/v1/stores/told/documents')).data.some(d => d.name === name), 'removed from the store');
  await page.waitForFunction(n => document.querySelector('[data-store=told] .store-facts').textContent.includes(`entries${n}`), store.entries);
  await close(page);
});

await part('a document that is gone', async () => {
  const page = await open();
  await api('POST', '/v1/stores/told/documents', {name: 'brief.txt', text: 'Not here for long.'});
  await start(page);
  await page.click('#stores-tab');
  await page.waitForFunction(() => document.querySelector('[data-store=told] tbody')?.textContent.includes('brief.txt'));
  await api('DELETE', '/v1/stores/told/documents/brief.txt');
  await page.getByRole('button', {name: 'Remove brief.txt'}).click();
  await page.locator(`${shelf('told')} .confirm:not(.away) .danger`).click();
  await page.waitForSelector('#problem .problem');
  ok(/\(404\)$/.test((await textOf(page, '#problem p')).trim()), `the server’s own error: ${await textOf(page, '#problem p')}`);
  await close(page);
});

// ---------------------------------------------------------------- what goes wrong

await part('errors', async () => {
  const page = await open();
  await start(page);
  const fail = (status, message, headers = {}) => route => route.fulfill({status, headers, json: {error: {message, type: 'server_error', param: null, code: null}}});
  is(await page.locator('#problem').getAttribute('role'), 'alert', 'errors are said aloud');
  await page.route('**/v1/score', fail(500, `the store is damaged ${NASTY}`), {times: 1});
  await page.click('#read-go');
  await page.waitForSelector('#problem .problem');
  ok((await textOf(page, '#problem p')).startsWith(`The store is damaged ${NASTY}`), 'the message of the server, as text');
  ok(await page.locator('#problem').isVisible(), 'it is seen');
  await shot(page, 'wide-error');
  await page.locator('#problem .close').click();
  is(await textOf(page, '#problem'), '', 'dismissed');

  await page.route('**/v1/score', fail(429, 'too many requests wait', {'Retry-After': '1'}), {times: 1});
  const again = answered(page, '/v1/score');
  await page.click('#read-go');
  await page.waitForFunction(() => /trying again in 1 s/.test(document.getElementById('note').textContent));
  await again;
  await page.waitForFunction(() => document.getElementById('note').textContent === '');
  is(await textOf(page, '#problem'), '', 'patience is rewarded');

  await page.route('**/v1/completions', route => route.abort(), {times: 1});
  await generate(page, {length: 10});
  await page.waitForSelector('#problem .problem');
  ok((await textOf(page, '#problem p')).includes('cannot be reached'), 'no server');
  const event = body => `data: ${JSON.stringify(body)}\n\n`;
  await page.route('**/v1/completions', route => route.fulfill({contentType: 'text/event-stream', body: event({choices: [{text: ' word', index: 0, finish_reason: null}]}) + event({error: {message: 'memory ran out'}})}), {times: 1});
  await page.click('#generate-go');
  await page.waitForFunction(() => document.getElementById('problem').textContent.includes('Memory ran out'));
  ok((await textOf(page, '#output')).endsWith(' word'), 'what came before the error stays');
  is(await page.isDisabled('#generate-go'), false, 'one can try again');
  await page.click('#read-tab');
  await page.fill('#read-text', '');
  await page.click('#read-go');
  await page.waitForFunction(() => document.getElementById('problem').textContent.includes('no text'));
  await close(page);
});

await part('key and read-only', async () => {
  const page = await open({}, locked);
  await page.goto(locked);
  await page.waitForSelector('#key-form:not([hidden])');
  is(await focused(page), 'key', 'the focus is where the key goes');
  await page.fill('#key', 'wrong');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.getElementById('key-said').textContent.includes('(401)'));
  const first = answered(page, '/v1/score');
  await page.fill('#key', key);
  await page.keyboard.press('Enter');
  await first;
  await page.waitForSelector('#tokens .t');
  is(await page.locator('#key-form').isHidden(), true, 'the key is taken');
  await start(page, locked);
  is(await page.locator('#key-form').isHidden(), true, 'the key is kept');
  await page.click('#stores-tab');
  await page.waitForSelector(`${shelf('told')} tbody tr`);
  ok(await page.locator(`${shelf('told')}`).getByText('cannot be changed here').isVisible(), 'a store that is read-only says so');
  is(await page.locator('.act button').count(), 0, 'documents that cannot be removed');
  is(await page.locator('.add').first().isHidden(), true, 'no form to add');
  await close(page);
});

// ---------------------------------------------------------------- sizes and colours

// Which fonts are installed must not matter: letters are set further apart, as in the widest of fonts (Verdana, DejaVu),
// and closer together, as in condensed ones. A sheet by script is what the page's Content Security Policy lets in.
const SPACES = {usual: '0', wide: '.1em', condensed: '-.08em'};

async function setSpaces(page, letters) {
  await page.addInitScript(space => addEventListener('DOMContentLoaded', () => {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(`* { letter-spacing: ${space} !important; }`);
    document.adoptedStyleSheets = [sheet];
  }), SPACES[letters]);
}

// What is wider than the window; nothing that a box of its own scrolls.
const overflow = page => page.evaluate(() => {
  if (document.documentElement.scrollWidth <= innerWidth) return '';
  const wide = [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + .5);
  return wide.slice(-3).map(e => `${e.tagName} ${e.id} ${e.className} ${Math.round(e.getBoundingClientRect().right)} px`).join(', ');
});

await part('narrow and wide', async () => {
  for (const [width, letters] of [[360, 'usual'], [360, 'wide'], [360, 'condensed'], [1600, 'usual'], [1280, 'wide']]) {
    const page = await open({viewport: {width, height: 740}}), size = `${width < 600 ? 'narrow' : 'wider'}${letters === 'usual' ? '' : `-${letters}`}`;
    const fits = async what => is(await overflow(page), '', `${what} fits into ${width} px, ${letters} letters`);
    if (letters !== 'usual') await setSpaces(page, letters);
    await start(page);
    await read(page, TEXT);
    await fits('reading');
    await page.locator('#tokens .t').nth(4).click();
    await page.waitForSelector('.neighbors li');
    await fits('a token');
    const [panel, token] = [await page.locator('#token').boundingBox(), await page.locator('#tokens .t').nth(4).boundingBox()];
    ok(token.y + token.height <= panel.y || token.x + token.width <= panel.x, `the panel leaves the token to be seen at ${width} px, ${letters} letters`);
    await shot(page, `${size}-token`);
    await page.keyboard.press('Escape');
    await page.click('#generate-tab');
    await page.uncheck('#generate-stores [value=letters]');
    await generate(page, {prompt: 'The nearest', length: 30, ...COPYING});
    await page.waitForSelector('.run');
    await page.locator('.run').first().click();
    await page.waitForSelector('#passage mark');
    await fits('generating');
    await shot(page, `${size}-generate`);
    await page.keyboard.press('Escape');
    await page.click('#chat-tab');
    await page.locator('#chat .more summary').click();
    await page.fill('#message', 'The nearest');
    await page.fill('#chat-length', '20');
    await page.click('#chat-go');
    await page.waitForFunction(() => !document.getElementById('chat-go').disabled);
    await fits('chat');
    await shot(page, `${size}-chat`);
    await page.click('#stores-tab');
    await page.waitForSelector(`${shelf('told')} tbody tr`);
    await page.locator('.act button').first().click();
    await page.locator('.add summary').first().click();
    await fits('the stores');
    await shot(page, `${size}-stores`);
    await close(page);
  }
});

// Contrast as WCAG 2 has it, of the text of an element with what is behind it.
const contrast = (page, selector) => page.locator(selector).first().evaluate(element => {
  const parse = text => {
    const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number);
    return [r, g, b, a];
  };
  const over = ([r, g, b, a], below) => [r, g, b].map((v, i) => v * a + below[i] * (1 - a));
  const layers = [];
  for (let e = element; e; e = e.parentElement) layers.push(parse(getComputedStyle(e).backgroundColor));
  const back = layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255]);
  const light = colour => colour.map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const [a, b] = [light(over(parse(getComputedStyle(element).color), back)), light(back)].sort((x, y) => y - x);
  return (a + .05) / (b + .05);
});

await part('light and dark', async () => {
  for (const colorScheme of ['light', 'dark']) {
    const page = await open({colorScheme, reducedMotion: 'reduce'});
    await start(page);
    await read(page, TEXT);
    await turn(page, '#lambda', .9);
    const paper = await page.evaluate(() => Number(/\d+/.exec(getComputedStyle(document.body).backgroundColor)[0]));
    ok(colorScheme === 'dark' ? paper < 60 : paper > 200, `the paper is ${colorScheme}: ${paper}`);
    for (const selector of ['.lead', '.lead .helped', '.lead .hurt', '.small', '#read-go', '#tokens .l6', '#tokens .n', '.figures dt', '#ppl-change']) {
      const ratio = await contrast(page, selector);
      ok(ratio >= 4.5, `${selector} can be read in the ${colorScheme}: ${ratio.toFixed(2)}`);
    }
    const line = selector => page.locator(selector).first().evaluate(e => getComputedStyle(e).textDecorationStyle);
    is(`${await line('#tokens .p.l6, #tokens .p.l5, #tokens .p.l4')} ${await line('#tokens .n.l6, #tokens .n.l5, #tokens .n.l4, #tokens .n.l3')}`, 'solid dotted', 'helped and hurt differ by more than colour');
    is(await page.locator('#tokens .t').first().evaluate(e => getComputedStyle(e).transitionDuration), '0s', 'nothing moves for those who do not like it');
    await page.locator('#tokens .p').first().click();
    await page.waitForSelector('.neighbors li');
    ok(await contrast(page, '.snippet') >= 4.5, `snippets can be read in the ${colorScheme}`);
    if (colorScheme === 'dark') await shot(page, 'dark-token');
    await close(page);
  }
});

await part('labels', async () => {
  const page = await open();
  await start(page);
  for (const tab of ['read', 'generate', 'chat', 'stores']) {
    await page.click(`#${tab}-tab`);
    if (tab === 'stores') await page.waitForSelector(`${shelf('told')} tbody tr`);
    const nameless = await page.locator(`#${tab}`).evaluate(panel => [...panel.querySelectorAll('input, select, textarea, button')]
      .filter(e => !e.labels?.length && !e.getAttribute('aria-label') && !(e.tagName === 'BUTTON' && e.textContent.trim())).map(e => e.outerHTML));
    is(nameless.join(), '', `controls without a label in ${tab}`);
  }
  const ids = await page.evaluate(() => [...document.querySelectorAll('[id]')].map(e => e.id));
  is(new Set(ids).size, ids.length, 'ids that are there once');
  await close(page);
});

await finish();
