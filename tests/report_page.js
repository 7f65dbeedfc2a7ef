// Questions to the page that test_report writes, asked in the page itself by test_report_page.sh.
'use strict';
(() => {
  let asked = 0;
  const $ = id => document.getElementById(id);
  const is = (got, expected, what) => {
    asked++;
    if (got !== expected) wrong.push(`${what}: ${JSON.stringify(got)}, not ${JSON.stringify(expected)}`);
  };
  const press = key => document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true, cancelable: true}));
  const questions = () => {
    is(typeof injected, 'undefined', 'a script of the text ran');
    is(document.querySelectorAll('img, iframe, object, main script').length, 0, 'elements of the text');
    is(document.title.startsWith('<' + '/script><script>injected=1'), true, 'title');
    is($('rows').rows.length, 3, 'rows');
    is($('rows').rows[1].cells[1].textContent, '1000', 'value');
    is($('curves').children.length, 2, 'curves');
    is($('curves').querySelectorAll('.dot').length, 2, 'points that are numbers');
    is($('curves').querySelectorAll('.used').length, 1, 'marked values');
    is($('curves').querySelectorAll('figure > i, figure > text').length, 0, 'labels outside of their curve');
    is($('note').textContent.replace(/\s/g, ' ').startsWith('The first 7 of 1 000 tokens'), true, 'note');

    const spans = [...document.querySelectorAll('.body > span')];
    is(spans.length, 7, 'tokens');
    is(document.querySelectorAll('.doc h3').length, 2, 'headings');
    is($('documents').options.length, 2, 'documents');
    is(spans[2].className, 't p l6', 'what helped');
    is(spans[1].className, 't', 'what made no difference');
    is(/^t n l[1-6]$/.test(spans[3].className), true, 'what hurt');
    is(spans[4].className, 't none', 'what is not known');
    is(spans[6].textContent, '\u{1f600}', 'a character of two tokens');
    is($('best').querySelectorAll('button').length, 1, 'best');
    is($('worst').querySelectorAll('button').length, 4, 'worst');

    is($('panel').hidden, true, 'closed');
    spans[0].click();
    is($('panel').hidden, false, 'opened by a click');
    is($('panel').querySelectorAll('.neighbors li').length, 3, 'neighbours');
    is($('panel').querySelectorAll('.neighbors li.hit').length, 1, 'hits');
    is($('panel').querySelectorAll('.snippet mark')[1].textContent, '€', 'value of a neighbour');
    is(document.activeElement, spans[0], 'focus');
    press('ArrowRight');
    press('ArrowRight');
    is(document.activeElement, spans[2], 'focus after two arrows');
    is($('panel-title').textContent, 'helped', 'the panel follows');
    press('ArrowDown');
    is(document.activeElement, spans[4], 'focus after a line');
    press('ArrowUp');
    press('ArrowLeft');
    is(document.activeElement, spans[1], 'focus after going back');
    press('Enter');
    is(document.activeElement, $('panel'), 'focus in the panel');
    press('Escape');
    is($('panel').hidden, true, 'closed by Escape');
    is(document.activeElement, spans[1], 'focus after Escape');
    is(document.querySelectorAll('.body [tabindex]').length, 1, 'stops of the Tab key');
    press('End');
    press('Enter');
    is($('panel').hidden, false, 'opened by Enter');
    $('panel').querySelector('.close').click();
    is($('panel').hidden, true, 'closed by its button');
    $('best').querySelector('button').click();
    is(document.activeElement, spans[2], 'jumped to the best');

    $('measure').value = '3';
    $('measure').dispatchEvent(new Event('change', {bubbles: true}));
    is(spans[0].className, 't s l3', 'coloured by λ');
    document.querySelector('[value=worst]').click();
    is($('best').hidden && !$('worst').hidden, true, 'the other list');
    is(performance.getEntriesByType('resource').filter(r => !r.name.startsWith('data:')).length, 0, 'requests');
  };
  try { questions(); } catch (error) { wrong.push(String(error)); }
  const verdict = document.createElement('pre');
  verdict.id = 'verdict';
  verdict.textContent = wrong.length ? 'FAILED ' + wrong.join('; ').replace(/\n/g, ' ') : `passed: ${asked} questions`;
  document.body.append(verdict);
})();
