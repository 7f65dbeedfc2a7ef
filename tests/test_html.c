// HTML as text: words, lines, entities; what is left out; the encodings that pages declare.
#include "expect.h"

#include "text/html.h"

#include <stdlib.h>
#include <string.h>

static void check_titled(const char *html, bool title, const char *text) {
    kn_buffer out = {0};
    assert_int_equal(kn_html_text(html, strlen(html), title, &out), KNNLM_OK);
    assert_int_equal(kn_buffer_put(&out, "", 1), KNNLM_OK);
    assert_string_equal(out.data, text);
    free(out.data);
}

static void check(const char *html, const char *text) {
    check_titled(html, true, text);
}

static void test_words_and_lines(void **state) {
    (void)state;
    check("", "");
    check(" \n ", "");
    check("just words", "just words\n");
    check("<p>one\n  two\tthree</p>", "one two three\n");
    check("<p>one</p><p>two</p>", "one\n\ntwo\n");
    check("<div>one<div>two</div></div>three", "one\ntwo\nthree\n");
    check("a<br>b<br><br>c", "a\nb\n\nc\n");
    check("w<b>or</b>d <i>and</i>more", "word andmore\n");
    check("<h1>Head</h1>text<hr>more", "Head\n\ntext\n\nmore\n");
    check("<dl><dt>t</dt><dd>d</dd></dl>", "t\nd\n");
    check("<p>never closed<p>twice", "never closed\n\ntwice\n");
    check("</p></li></ul></pre>stray ends", "stray ends\n");
}

static void test_lists_tables_and_pre(void **state) {
    (void)state;
    check("a<ul><li>x</li><li>y <b>z</b></li></ul>b", "a\n\n- x\n- y z\n\nb\n");
    check("<ol><li>x<ul><li>in</li></ul></li><li>y</li></ol>", "- x\n  - in\n- y\n");
    check("<ul><li><p>par</p></li><li></li><li>y</li></ul>", "- par\n\n- y\n");
    check("<table><tr><td>1</td><td>2</td></tr><tr><td>3</td></tr></table>", "1\t2\n3\n");
    check("<pre>\n a\n  b \n</pre>c", " a\n  b \n\nc\n");
    check("x<pre>a &lt; b</pre>", "x\n\na < b\n");
}

static void test_entities(void **state) {
    (void)state;
    check("&amp;&lt;&gt;&quot;", "&<>\"\n");
    check("caf&eacute; &euro; &#233; &#x1F600;", "café € é 😀\n");
    check("a&nbsp;b&nbsp; c", "a b c\n");
    check("soft&shy;ly", "softly\n");
    check("AT&T & co", "AT&T & co\n");
    check("日本 Grüße", "日本 Grüße\n");
}

static void test_what_is_left_out(void **state) {
    (void)state;
    check("a<script>if (1 < 2) alert('<p>')</script>b", "ab\n");
    check("a<style>p{}</style><!-- no --><noscript>no</noscript>b", "ab\n");
    check("<nav><ul><li>Home</ul></nav><p>text", "text\n");
    check("<svg><text>no</text></svg><template>no</template>yes", "yes\n");
    check("<html><head><meta name=x content=no><title>T</title></head><body>b", "T\n\nb\n");
    check_titled("<html><head><title>T</title></head><body>b", false, "b\n");
    check("<title>only a title</title>", "only a title\n");
    check("<?xml version='1.0'?><!DOCTYPE html SYSTEM "
          "'http://nowhere.invalid/x.dtd'><html><body>x</body></html>",
          "x\n");
    check("<!DOCTYPE html [<!ENTITY e SYSTEM 'file:///etc/passwd'>]><p>&e;</p>", "]>\n\n&e;\n");
}

// Deep and long, without a word about it: in memory and time that grow with the page alone.
static void test_traps(void **state) {
    enum { DEEP = 900, LONG = 300000 };
    (void)state;
    kn_buffer page = {0}, out = {0};
    for (int i = 0; i < DEEP; i++) assert_int_equal(kn_buffer_put_text(&page, "<ul><li>x"), KNNLM_OK);
    assert_int_equal(kn_html_text(page.data, page.size, true, &out), KNNLM_OK);
    assert_true(out.size > 3 * DEEP && out.size < 40 * DEEP);
    out.size = page.size = 0;
    for (int i = 0; i < LONG; i++) assert_int_equal(kn_buffer_put_text(&page, "<font>"), KNNLM_OK);
    for (int i = 0; i < LONG; i++) assert_int_equal(kn_buffer_put_text(&page, "</p>"), KNNLM_OK);
    FAILS(KNNLM_EDATA, "deep in each other", kn_html_text(page.data, page.size, true, &out));
    out.size = page.size = 0;
    for (int i = 0; i < LONG; i++) assert_int_equal(kn_buffer_put_text(&page, "</p><p>x<br>"), KNNLM_OK);
    assert_int_equal(kn_html_text(page.data, page.size, true, &out), KNNLM_OK);
    free(page.data);
    free(out.data);
}

static void test_declared_encodings(void **state) {
    static const struct {
        const char *html, *encoding;
    } pages[] = {
        {"<meta charset=utf-8>", "utf-8"},
        {"<META CHARSET = 'Shift_JIS' >", "Shift_JIS"},
        {"<meta http-equiv=\"Content-Type\" content=\"text/html; charset=iso-8859-2\">", "iso-8859-2"},
        {"<meta charset=\"latin1\">", "WINDOWS-1252"},
        {"<meta name=a><meta charset=koi8-r>", "koi8-r"},
        {"<?xml version=\"1.0\" encoding=\"GB18030\"?><html>", "GB18030"},
        {"<meta charset=utf-16>", "UTF-8"},
        {"<meta charset=klingon>", NULL},
        {"<meta name=charset", NULL},
        {"<p>charset=latin1", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        char found[64];
        bool any = kn_html_declares(pages[i].html, strlen(pages[i].html), found);
        assert_int_equal(any, pages[i].encoding != NULL);
        if (any) assert_string_equal(found, pages[i].encoding);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_and_lines), cmocka_unit_test(test_lists_tables_and_pre),
        cmocka_unit_test(test_entities),        cmocka_unit_test(test_what_is_left_out),
        cmocka_unit_test(test_traps),           cmocka_unit_test(test_declared_encodings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
