// Who may write to a store: one at a time, through no link, into no directory of somebody else's.
#include "store_steps.h"

#include <sys/wait.h>

// ---------------------------------------------------------------- who writes

static void one_writes_at_a_time(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 5, 7);
    kn_store_writer *second;
    knnlm_compact_result c;
    int status;
    OK(kit_build("s", &set, mixed, MIXED, 10));
    kn_store_writer *w = writing("s");
    FAILS(KNNLM_EBUSY, "another process", kn_store_write("s", &second));
    FAILS(KNNLM_EBUSY, "another process", kn_store_compact("s", false, NULL, NULL, &c));
    pid_t child = fork();
    if (child == 0)
        _exit(kn_store_write("s", &second) == KNNLM_EBUSY && strstr(knnlm_message(), "another process") ? 0
                                                                                                        : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    HOLDS("s", mixed, MIXED); // reading needs no lock
    kn_store_writer_close(w);
    kn_store_writer_close(writing("s"));
    OK(kn_store_create("t", &set, &w));
    FAILS(KNNLM_EBUSY, "another process", kn_store_create("t", &set, &second));
    kn_store_writer_close(w);
}

static void debris_is_swept_up(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 5, 7);
    static const char *const debris[] = {
        "000999.text",    "000999.keys",    "1234567.removed", "MANIFEST.12.0.tmp", "tokenizer.gguf.9.1.tmp",
        "000001.removed", "tokenizer.gguf", "projection.gguf"};
    static const char *const foreign[] = {"README",       "000001.texts", "a.text",      "12.keys",
                                          "MANIFEST.old", "x.tmp",        "000001.text~"};
    OK(kit_build("s", &set, mixed, MIXED, 10));
    kit_image before = kit_read("s");
    for (size_t i = 0; i < COUNT(debris); i++) kit_write_file("s", debris[i], "x", 1);
    for (size_t i = 0; i < COUNT(foreign); i++) kit_write_file("s", foreign[i], "x", 1);
    HOLDS("s", mixed, MIXED); // a reader does not mind
    kn_store_writer_close(writing("s"));
    for (size_t i = 0; i < COUNT(foreign); i++) {
        char path[KIT_PATH];
        kit_join(path, "s", foreign[i]);
        if (unlink(path) != 0) fail_msg("%s is gone", foreign[i]);
    }
    kit_image after = kit_read("s");
    assert_null(kit_compare_images(&before, &after));
    kit_free(&before);
    kit_free(&after);
}

static void a_new_store_takes_no_ones_place(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_F16, 5, 7);
    static const char *const foreign[] = {"notes.txt", "tokenizer.gguf", "000001.text"};
    kn_store_writer *w;
    assert_int_equal(mkdir("s", 0777), 0);
    for (size_t i = 0; i < COUNT(foreign); i++) {
        char path[KIT_PATH];
        kit_join(path, "s", foreign[i]);
        kit_write_file("s", foreign[i], "mine", 4);
        FAILS(KNNLM_EIO, foreign[i], kn_store_create("s", &set, &w));
        if (unlink(path) != 0) fail_msg("%s is gone", foreign[i]);
    }
    kit_write_file("s", "LOCK", "", 0); // what a crash before the first commit leaves
    kit_write_file("s", "tokenizer.gguf", "x", 1);
    kit_write_file("s", "000001.keys", "x", 1);
    OK(kit_build("s", &set, mixed, MIXED, 10)); // an empty directory will do
    OK(kit_build("t", &set, mixed, MIXED, 10));
    SAME_DIRECTORIES("s", "t");
    FAILS(KNNLM_EIO, "is a store already", kn_store_create("s", &set, &w));
}

// ---------------------------------------------------------------- others in the directory

static void links_are_not_followed(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_F32, 5, 7);
    kn_store_writer *w;
    kit_names names;
    struct stat st;
    OK(kit_build("s", &set, mixed, 3, 10));
    kit_write_file(".", "victim", "mine", 4);
    assert_int_equal(unlink("s/LOCK"), 0);
    assert_int_equal(symlink("../victim", "s/LOCK"), 0);
    FAILS(KNNLM_EIO, "s/LOCK", kn_store_write("s", &w));
    assert_int_equal(unlink("s/LOCK"), 0);
    OK(kn_store_write("s", &w));
    for (int i = 1; i < 100; i++) { // whatever the next part will be called
        static const char *const kinds[] = {"text", "keys", "removed"};
        for (int kind = 0; kind < 3; kind++) {
            char name[64];
            snprintf(name, sizeof name, "s/%06d.%s", i, kinds[kind]);
            if (access(name, F_OK) != 0) assert_int_equal(symlink("../victim", name), 0);
        }
    }
    kn_store_document d = kit_document(&mixed[0], &names);
    OK(kn_store_writer_document(w, &d));
    OK(kit_append(w, &mixed[0], 0, mixed[0].tokens, 10));
    OK(kn_store_writer_remove(w, 1));
    OK(kn_store_writer_commit(w));
    kn_store_writer_close(w);
    assert_true(stat("victim", &st) == 0 && st.st_size == 4);
    kn_store_close(opened("s"));
    OK(kn_store_write("s", &w)); // what was left of the links is swept up
    kn_store_writer_close(w);
    assert_int_equal(lstat("s/000099.text", &st), -1);
}

static void a_writer_without_its_lock_does_not_commit(void **state) {
    (void)state;
    kn_store_settings set = kit_settings(KNNLM_KEYS_F32, 5, 7);
    kn_store_writer *first, *second;
    OK(kit_build("s", &set, mixed, 3, 10));
    OK(kn_store_write("s", &first));
    FAILS(KNNLM_EBUSY, "another process", kn_store_write("s", &second));
    assert_int_equal(unlink("s/LOCK"), 0);
    OK(kn_store_write("s", &second));
    OK(kn_store_writer_remove(first, 0));
    FAILS(KNNLM_EIO, "s/LOCK: was deleted or replaced", kn_store_writer_commit(first));
    kn_store_writer_close(first);
    OK(kn_store_writer_remove(second, 1));
    OK(kn_store_writer_commit(second));
    kn_store_writer_close(second);
    kn_store *s = opened("s");
    assert_true(!kn_store_document_removed(s, 0) && kn_store_document_removed(s, 1));
    kn_store_close(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(one_writes_at_a_time),
        TEST(links_are_not_followed),
        TEST(a_writer_without_its_lock_does_not_commit),
        TEST(debris_is_swept_up),
        TEST(a_new_store_takes_no_ones_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
