// Which files of a directory are read, and what is told of the others.
#include "folder.h"

#include "text/walk.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char told[1024]; // "path:reason;" of what was skipped, below the folder

static void on_skip(void *context, const char *path, const char *reason) {
    (void)context;
    size_t root = strlen(at("tree/"));
    strcat(strcat(strcat(strcat(told, path + root), ":"), reason), ";");
}

static void touch(const char *name) {
    put(name, "x", 1);
}

static int make_tree(void **state) {
    if (make_folder(state) != 0) return -1;
    static const char *const folders[] = {"tree", "tree/b", "tree/b/deep", "tree/.git"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        assert_int_equal(mkdir(at(folders[i]), 0755), 0);
    static const char *const files[] = {"tree/z.md",         "tree/a.txt",  "tree/b/b.txt",
                                        "tree/b/deep/c.txt", "tree/.h.txt", "tree/.git/d.txt"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) touch(files[i]);
    assert_int_equal(symlink("a.txt", at("tree/file")), 0);
    assert_int_equal(symlink("..", at("tree/b/up")), 0);
    assert_int_equal(symlink("gone", at("tree/broken")), 0);
    assert_int_equal(symlink("self", at("tree/self")), 0);
    assert_int_equal(mkfifo(at("tree/pipe"), 0600), 0);
    return 0;
}

static void check(kn_text_options o, const char *files, const char *skips) {
    kn_walk_files found = {0};
    char names[1024] = "";
    o.skipped = on_skip;
    *told = 0;
    assert_int_equal(kn_walk(at("tree"), &o, &found), KNNLM_OK);
    for (size_t i = 0; i < found.count; i++)
        strcat(strcat(names, found.files[i].path + found.files[i].root), ";");
    assert_string_equal(names, files);
    assert_string_equal(told, skips);
    assert_int_equal(found.bytes, found.count);
    kn_walk_free(&found);
}

#define SKIPS "b/up:link;broken:broken link;file:link;pipe:not a file;self:link loop;"

static void test_by_default(void **state) {
    (void)state;
    check((kn_text_options){0}, "a.txt;b/b.txt;b/deep/c.txt;z.md;", SKIPS);
}

static void test_hidden_and_links(void **state) {
    (void)state;
    check((kn_text_options){.hidden = true}, ".git/d.txt;.h.txt;a.txt;b/b.txt;b/deep/c.txt;z.md;", SKIPS);
    check((kn_text_options){.follow = true}, "a.txt;b/b.txt;b/deep/c.txt;file;z.md;",
          "b/up:link loop;broken:broken link;pipe:not a file;self:link loop;");
}

static void test_patterns(void **state) {
    const char *text[] = {"*.txt"}, *deep[] = {"deep", "z.*"}, *path[] = {"b/*.txt"},
               *mark[] = {"[a-b].txt", "z.?d"};
    (void)state;
    const char *no_links[] = {"up"};
    kn_text_options o = {.include = text, .include_count = 1, .exclude = no_links, .exclude_count = 1};
    check(o, "a.txt;b/b.txt;b/deep/c.txt;", "");
    o.include = path;
    check(o, "b/b.txt;b/deep/c.txt;", "");
    o.include = mark;
    o.include_count = 2;
    check(o, "a.txt;b/b.txt;z.md;", "");
    check((kn_text_options){.exclude = deep, .exclude_count = 2}, "a.txt;b/b.txt;", SKIPS);
}

static void test_members_of_excluded_folders(void **state) {
    const char *patterns[] = {"skip"};
    kn_text_options o = {.exclude = patterns, .exclude_count = 1};
    (void)state;
    assert_false(kn_walk_enters(&o, "skip"));
    assert_false(kn_walk_enters(&o, "a/skip/b.txt"));
    assert_false(kn_walk_enters(&o, "skip/b.txt"));
    assert_true(kn_walk_enters(&o, "skipped/b.txt"));
    assert_true(kn_walk_hides(&o, "a/.b/c") && kn_walk_hides(&o, ".b") && !kn_walk_hides(&o, "a.b/c."));
}

static void test_strict_and_named(void **state) {
    kn_walk_files found = {0};
    kn_text_options strict = {.strict = true, .skipped = on_skip};
    (void)state;
    *told = 0;
    assert_int_equal(kn_walk(at("tree"), &strict, &found), KNNLM_EINVAL);
    assert_non_null(strstr(knnlm_message(), "tree/b/up: a symbolic link"));
    assert_string_equal(told, "");
    kn_walk_free(&found);
    assert_int_equal(kn_walk(at("tree/broken"), &(kn_text_options){0}, &found), KNNLM_EIO);
    assert_int_equal(kn_walk(at("tree/file"), &(kn_text_options){0}, &found), KNNLM_OK);
    assert_int_equal(found.count, 1);
    assert_true(found.files[0].named);
    kn_walk_free(&found);
}

// What we wrote ourselves is left out without a word.
static void test_stores_among_texts(void **state) {
    (void)state;
    assert_int_equal(mkdir(at("tree/b/x.store"), 0755), 0);
    put("tree/b/x.store/MANIFEST", "knnlm-store 2 0\n{}", 18);
    check((kn_text_options){0}, "a.txt;b/b.txt;b/deep/c.txt;z.md;", SKIPS);
    put("tree/b/x.store/MANIFEST", "x", 1); // somebody else's
    check((kn_text_options){0}, "a.txt;b/b.txt;b/deep/c.txt;b/x.store/MANIFEST;z.md;", SKIPS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_default),       cmocka_unit_test(test_hidden_and_links),
        cmocka_unit_test(test_patterns),         cmocka_unit_test(test_members_of_excluded_folders),
        cmocka_unit_test(test_strict_and_named), cmocka_unit_test(test_stores_among_texts),
    };
    return cmocka_run_group_tests(tests, make_tree, remove_folder);
}
