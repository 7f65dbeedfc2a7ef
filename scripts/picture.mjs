// The picture of the README, web/page.png: the page of a server that has the store of ./quickstart, a question about Perl, one word open.
//   build/knnlm serve -s build/quickstart/manual-....store --port 8080 & node scripts/picture.mjs http://127.0.0.1:8080 web/page.png
// Playwright and Chromium are those of the tests (scripts/install-deps page npm).
import {launch, openPage} from './browser.mjs';

const [url, out, word = 'context'] = process.argv.slice(2);
const browser = await launch(), page = await openPage(browser, url, {width: 1280, height: 860});
await page.locator('#tokens .t', {hasText: word}).first().click();
await page.waitForFunction(() => /Nearest neighbours/.test(document.body.innerText));
await page.waitForTimeout(500); // colours fade in
await page.screenshot({path: out});
await browser.close();
