// Stores when the system fails: every write, sync, rename, mapping, thread and allocation of a build, an
// addition, a removal and a compaction fails once, or from then on; and the power fails before each of them.
// The store opens afterwards, no older than its last commit, nothing is left open, and who runs the same
// again ends up with the same bytes. The system's functions are wrapped by the linker (WRAP_ in
// CMakeLists.txt).
#include "store_kit.h"

#include "base/file.h"

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/statvfs.h>

// ---------------------------------------------------------------- failing on demand

typedef enum kind {
    OPEN,
    WRITE,
    FSYNC,
    RENAME,
    FTRUNCATE,
    MKDIR,
    MMAP,
    THREAD,
    CALLOC,
    REALLOC,
    JSON,
    KINDS
} kind;
static const char *const kind_names[] = {"open", "write",  "fsync",  "rename",  "ftruncate",    "mkdir",
                                         "mmap", "thread", "calloc", "realloc", "JSON's malloc"};

static struct {
    atomic_bool armed, counting;
    atomic_long calls[KINDS];
    kind target;
    long at;
    bool lasting, shortened; // shortened: a write writes half, and only the next one fails
    bool speechless;         // there is no memory to keep messages in
    bool full;               // the disk says that it is
    int error;
    atomic_long met; // calls that were made to fail
} plan;

// Whether this call is to fail.
static bool struck(kind k) {
    if (!plan.counting) return false;
    long n = atomic_fetch_add(&plan.calls[k], 1);
    if (!plan.armed || k != plan.target || (plan.lasting ? n < plan.at : n != plan.at)) return false;
    plan.met++;
    errno = plan.error;
    return true;
}

// ---------------------------------------------------------------- a disk that forgets

// What the scenario's files are, on a disk that keeps only what was synced. They are only ever appended to.
enum { FILES = 256, NAMES = 64, DESCRIPTORS = 256, NOTHING = -1, STORE = -2, PARENT = -3 };

typedef struct disk_file {
    uint8_t *data;
    size_t size, synced;
} disk_file;

typedef struct disk_name {
    char name[64];
    int live, durable; // files; NOTHING: no such name
} disk_name;

typedef struct moment { // the disk before a call
    disk_name names[NAMES];
    size_t sizes[FILES], synced[FILES];
    size_t name_count;
    bool directory_durable;
    int returned; // the state of the last commit that returned
} moment;

static struct {
    bool recording;
    pthread_mutex_t mutex;
    disk_file files[FILES];
    int file_count, descriptors[DESCRIPTORS];
    disk_name names[NAMES];
    size_t name_count;
    bool directory_live, directory_durable;
    moment *moments;
    size_t moment_count, moment_capacity;
} disk = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static int returned; // 0: nothing, else a rank (below)

#define STORE_PATH "s"

static void remember(void) {
    if (disk.moment_count == disk.moment_capacity) {
        size_t capacity = disk.moment_capacity ? 2 * disk.moment_capacity : 64;
        moment *grown = kit_alloc(capacity, sizeof *grown);
        if (disk.moment_count) memcpy(grown, disk.moments, disk.moment_count * sizeof *grown);
        free(disk.moments);
        disk.moments = grown;
        disk.moment_capacity = capacity;
    }
    moment *m = &disk.moments[disk.moment_count++];
    memcpy(m->names, disk.names, sizeof m->names);
    m->name_count = disk.name_count;
    for (int i = 0; i < disk.file_count; i++) {
        m->sizes[i] = disk.files[i].size;
        m->synced[i] = disk.files[i].synced;
    }
    m->directory_durable = disk.directory_durable;
    m->returned = returned;
}

// Called before each call that changes the disk; disk_end after it.
static bool disk_begin(void) {
    if (!disk.recording) return false;
    pthread_mutex_lock(&disk.mutex);
    remember();
    return true;
}

static void disk_end(bool begun) {
    if (begun) pthread_mutex_unlock(&disk.mutex);
}

static disk_name *disk_entry(const char *path) {
    const char *name = path + sizeof STORE_PATH; // after "s/"
    if (strncmp(path, STORE_PATH "/", sizeof STORE_PATH) != 0) abort();
    for (size_t i = 0; i < disk.name_count; i++)
        if (strcmp(disk.names[i].name, name) == 0) return &disk.names[i];
    if (disk.name_count == NAMES) abort();
    disk_name *entry = &disk.names[disk.name_count++];
    *entry = (disk_name){.live = NOTHING, .durable = NOTHING};
    if (snprintf(entry->name, sizeof entry->name, "%s", name) >= (int)sizeof entry->name) abort();
    return entry;
}

static void disk_open(const char *path, int flags, int fd) {
    if (fd < 0 || fd >= DESCRIPTORS) return;
    disk.descriptors[fd] = strcmp(path, STORE_PATH) == 0 ? STORE : strcmp(path, ".") == 0 ? PARENT : NOTHING;
    if (strncmp(path, STORE_PATH "/", sizeof STORE_PATH) != 0) return;
    disk_name *entry = disk_entry(path);
    if ((flags & O_CREAT) && (entry->live == NOTHING || (flags & O_TRUNC))) {
        if (disk.file_count == FILES) abort();
        entry->live = disk.file_count++;
    }
    disk.descriptors[fd] = entry->live;
}

static void disk_write(int fd, const void *data, size_t size) {
    int file = fd < DESCRIPTORS ? disk.descriptors[fd] : NOTHING;
    if (file < 0) return;
    disk_file *f = &disk.files[file];
    uint8_t *grown = kit_alloc(f->size + size, 1);
    if (f->size) memcpy(grown, f->data, f->size);
    memcpy(grown + f->size, data, size);
    free(f->data);
    f->data = grown;
    f->size += size;
}

static void disk_sync(int fd) {
    int file = fd < DESCRIPTORS ? disk.descriptors[fd] : NOTHING;
    if (file >= 0) disk.files[file].synced = disk.files[file].size;
    if (file == PARENT) disk.directory_durable = disk.directory_live;
    for (size_t i = 0; file == STORE && i < disk.name_count; i++) disk.names[i].durable = disk.names[i].live;
}

static void disk_reset(void) {
    for (int i = 0; i < disk.file_count; i++) free(disk.files[i].data);
    free(disk.moments);
    memset(disk.files, 0, sizeof disk.files);
    disk.moments = NULL;
    disk.moment_count = disk.moment_capacity = disk.name_count = 0;
    disk.file_count = 0;
    disk.directory_live = disk.directory_durable = false;
    for (int i = 0; i < DESCRIPTORS; i++) disk.descriptors[i] = NOTHING;
}

// ---------------------------------------------------------------- in place of the system's

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    int mode = flags & O_CREAT ? va_arg(args, int) : 0;
    va_end(args);
    if (struck(OPEN)) return -1;
    bool begun = disk_begin();
    int fd = __real_open(path, flags, mode);
    if (begun) disk_open(path, flags, fd);
    disk_end(begun);
    return fd;
}

ssize_t __real_write(int fd, const void *data, size_t size);
ssize_t __wrap_write(int fd, const void *data, size_t size);
ssize_t __wrap_write(int fd, const void *data, size_t size) {
    if (plan.shortened && size > 1 && struck(WRITE)) {
        plan.shortened = false; // the rest of it fails, or comes next
        if (plan.error) plan.lasting = true;
        return __real_write(fd, data, size / 2);
    }
    if (!plan.shortened && struck(WRITE) && plan.error) return -1;
    bool begun = disk_begin();
    ssize_t n = __real_write(fd, data, size);
    if (begun && n > 0) disk_write(fd, data, (size_t)n);
    disk_end(begun);
    return n;
}

int __wrap_fsync(int fd);
int __wrap_fsync(int fd) {
    if (struck(FSYNC)) return -1;
    bool begun = disk_begin();
    if (begun) disk_sync(fd);
    disk_end(begun);
    return 0; // without the disk's: it would only take time
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to) {
    if (struck(RENAME)) return -1;
    bool begun = disk_begin();
    int result = __real_rename(from, to);
    if (begun && result == 0) {
        disk_name *source = disk_entry(from), *target = disk_entry(to);
        target->live = source->live;
        source->live = NOTHING;
    }
    disk_end(begun);
    return result;
}

int __real_ftruncate(int fd, off_t size);
int __wrap_ftruncate(int fd, off_t size);
int __wrap_ftruncate(int fd, off_t size) {
    return struck(FTRUNCATE) ? -1 : __real_ftruncate(fd, size);
}

int __real_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode) {
    if (struck(MKDIR)) return -1;
    bool begun = disk_begin();
    int result = __real_mkdir(path, mode);
    if (begun && result == 0) disk.directory_live = true;
    disk_end(begun);
    return result;
}

int __real_unlink(const char *path);
int __wrap_unlink(const char *path);
int __wrap_unlink(const char *path) {
    bool begun = disk_begin();
    if (begun) disk_entry(path)->live = NOTHING;
    int result = __real_unlink(path);
    disk_end(begun);
    return result;
}

int __real_unlinkat(int fd, const char *name, int flags);
int __wrap_unlinkat(int fd, const char *name, int flags);
int __wrap_unlinkat(int fd, const char *name, int flags) {
    char path[KIT_PATH];
    bool begun = disk_begin();
    kit_join(path, STORE_PATH, name);
    if (begun) disk_entry(path)->live = NOTHING;
    int result = __real_unlinkat(fd, name, flags);
    disk_end(begun);
    return result;
}

void *__real_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    return struck(MMAP) ? MAP_FAILED : __real_mmap(at, size, protection, flags, fd, offset);
}

int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *context);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *context);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *context) {
    return struck(THREAD) ? EAGAIN : __real_pthread_create(t, a, run, context);
}

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size) {
    return struck(CALLOC) ? NULL : __real_calloc(count, size);
}

void *__real_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size) {
    return struck(REALLOC) ? NULL : __real_realloc(old, size);
}

char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);
char *__wrap_strdup(const char *text) {
    return plan.counting && plan.speechless ? NULL : __real_strdup(text);
}

int __real_statvfs(const char *path, struct statvfs *out);
int __wrap_statvfs(const char *path, struct statvfs *out);
int __wrap_statvfs(const char *path, struct statvfs *out) {
    int result = __real_statvfs(path, out);
    if (plan.full) out->f_bavail = 0;
    return result;
}

// Only where manifests are printed, by the writer's thread: jansson 2.14 reads on without the letters that it
// has no memory for, and nobody can tell.
static pthread_t reader;
static void *json_allocate(size_t size) {
    return !pthread_equal(pthread_self(), reader) && struck(JSON) ? NULL : malloc(size);
}

// ---------------------------------------------------------------- the scenario

// A is built, then the first and the fourth document removed and B added, then all compacted.
enum { A = 5, B = 3, SEGMENT = 16 };
static const kit_item documents[A + B] = {{1, 20, 20, true},   {2, 0, 0, false}, {3, 9, 9, false},
                                          {4, 15, 15, true},   {5, 3, 3, false}, {11, 10, 10, false},
                                          {12, 25, 25, false}, {13, 5, 5, false}};
enum { NONE, BUILDING, BUILT, ADDING, ADDED, COMPACTED }; // what a store may be found as: its rank

static kn_store_settings settings(void) {
    return kit_settings(KNNLM_KEYS_INT8, 3, SEGMENT);
}

// Goes on with the documents up to `end`, as a build does.
static knnlm_status go_on(kn_store_writer *w, size_t end) {
    const kn_store *base = kn_store_writer_base(w);
    uint64_t present = 0, first = base ? kn_store_describe(base)->documents : 0;
    if (first && kn_store_writer_continue(w, &present) == KNNLM_OK) first--;
    for (size_t i = (size_t)first; i < end; i++) {
        if (i > first || !present)
            KN_TRY(kit_add(w, &documents[i], 1, 6));
        else
            KN_TRY(kit_append(w, &documents[i], present, documents[i].tokens, 6));
    }
    return kn_store_writer_commit(w);
}

// A file that nobody has synced yet.
static knnlm_status attach(kn_store_writer *w) {
    int fd = open(STORE_PATH "/tokenizer.gguf", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return kn_fail_errno(KNNLM_EIO, errno, "tokenizer.gguf");
    int error = kn_write_all(fd, (const uint8_t *)"a tokenizer", 11);
    close(fd);
    if (error) return kn_fail_errno(KNNLM_EIO, error, "tokenizer.gguf");
    return kn_store_writer_attach(w, "tokenizer.gguf");
}

static knnlm_status build(void) {
    kn_store_settings set = settings();
    kn_store_writer *w;
    bool there = kn_store_exists(STORE_PATH);
    KN_TRY(there ? kn_store_write(STORE_PATH, &w) : kn_store_create(STORE_PATH, &set, &w));
    knnlm_status status = there ? KNNLM_OK : attach(w);
    if (status == KNNLM_OK) status = go_on(w, A);
    kn_store_writer_close(w);
    if (status == KNNLM_OK) returned = BUILT;
    return status;
}

static knnlm_status add(void) {
    kn_store_writer *w;
    KN_TRY(kn_store_write(STORE_PATH, &w));
    kn_store_writer_tune(w, &(kn_store_tuned){.known = true, .lambda = 0.25, .temperature = 1, .k = 8});
    knnlm_status status = kn_store_writer_remove(w, 3);
    if (status == KNNLM_OK) status = kn_store_writer_remove(w, 0);
    if (status == KNNLM_OK) status = go_on(w, A + B);
    kn_store_writer_close(w);
    if (status == KNNLM_OK) returned = ADDED;
    return status;
}

static knnlm_status compact(void) {
    knnlm_compact_result c;
    KN_TRY(kn_store_compact(STORE_PATH, true, NULL, NULL, &c));
    returned = COMPACTED;
    return KNNLM_OK;
}

// Which state a store is in, by the model; -1 when in none of them, with the reason.
static int rank_of(const kn_store *s, const char **reason) {
    const kn_store_info *info = kn_store_describe(s);
    kit_item items[A + B];
    size_t n = 0, count = (size_t)info->documents;
    for (size_t i = 0; i < A + B; i++)
        if (!documents[i].removed) items[n++] = documents[i];
    if (count == n && info->complete && !kit_compare(s, items, n)) return COMPACTED;
    if (count > A + B) return -1;
    uint64_t left = info->entries, built = 0;
    bool removed = info->removed_documents > 0;
    for (size_t i = 0; i < count; i++) {
        items[i] = documents[i];
        items[i].count = left < items[i].tokens ? left : items[i].tokens;
        items[i].removed = removed && documents[i].removed;
        left -= items[i].count;
        if (i < A) built += items[i].count;
    }
    *reason = kit_compare(s, items, count);
    if (*reason) return -1;
    *reason = "a state that never was";
    if (info->complete) return count == A && !removed ? BUILT : count == A + B && removed ? ADDED : -1;
    uint64_t fresh = removed ? info->entries - built : info->entries; // whole segments are committed
    if (fresh == 0 || fresh % SEGMENT || removed != (count > A)) return -1;
    return removed ? ADDING : BUILDING;
}

// The rank of the store on disk; whatever is there must be whole.
static int check_disk(const char *path, const char **reason) {
    kn_store *s;
    knnlm_verify_result v;
    static char problem[256];
    if (!kn_store_exists(path)) return NONE;
    *reason = knnlm_message();
    if (kn_store_open(path, &s) != KNNLM_OK) return -1;
    int rank = rank_of(s, reason);
    if (kn_store_verify(s, NULL, kit_print_problem, problem, &v) != KNNLM_OK)
        rank = -1;
    else if (v.problems) {
        *reason = problem;
        rank = -1;
    }
    free(v.document_damaged);
    kn_store_close(s);
    return rank;
}

// From whatever state on to the end.
static knnlm_status scenario(void) {
    const char *reason = NULL;
    bool counting = plan.counting;
    plan.counting = false; // looking where it stands is not part of it
    int rank = check_disk(STORE_PATH, &reason);
    plan.counting = counting;
    if (rank < 0) fail_msg("%s", reason);
    if (rank <= BUILDING) KN_TRY(build());
    if (rank <= ADDING) KN_TRY(add());
    return compact();
}

// ---------------------------------------------------------------- nothing is left behind

static size_t count_entries(const char *path) {
    size_t n = 0;
    DIR *directory = opendir(path);
    while (readdir(directory)) n++;
    closedir(directory);
    return n;
}

static size_t count_mappings(void) { // of files of a store
    size_t n = 0;
    char line[1024];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps))
        n += strstr(line, "/" STORE_PATH "/") != NULL || strstr(line, "(deleted)") != NULL;
    fclose(maps);
    return n;
}

typedef struct belongings {
    size_t descriptors, mappings, threads;
} belongings;

static belongings count_belongings(void) {
    return (belongings){count_entries("/proc/self/fd"), count_mappings(), count_entries("/proc/self/task")};
}

static void assert_nothing_leaked(const belongings *before, const char *when) {
    belongings now = count_belongings();
    for (int i = 0; i < 1000 && now.threads > before->threads; i++) { // a joined thread goes a moment later
        usleep(1000);
        now = count_belongings();
    }
    if (now.descriptors != before->descriptors || now.mappings != before->mappings ||
        now.threads != before->threads)
        fail_msg("%s: %zu descriptors, %zu mappings, %zu threads; before: %zu, %zu, %zu", when,
                 now.descriptors, now.mappings, now.threads, before->descriptors, before->mappings,
                 before->threads);
}

// ---------------------------------------------------------------- failures, one by one

static kit_image clean; // the directory after a run in which nothing failed
static long clean_calls[KINDS];

static void start(void) {
    kit_delete(STORE_PATH);
    returned = NONE;
    for (int i = 0; i < KINDS; i++) plan.calls[i] = 0;
}

static void run_again(const char *when) {
    OK(scenario());
    kit_image image = kit_read(STORE_PATH);
    const char *reason = kit_compare_images(&clean, &image);
    if (reason) fail_msg("%s, then run again: %s", when, reason);
    kit_free(&image);
}

// One run with the failure that was planned.
static void run_failing(const char *when) {
    belongings before = count_belongings();
    const char *reason = "";
    start();
    plan.met = 0;
    plan.counting = plan.armed = true;
    knnlm_status status = scenario();
    plan.counting = plan.armed = false;
    if (status != KNNLM_OK && (!*knnlm_message() || strchr(knnlm_message(), '\n')))
        fail_msg("%s: the message is \"%s\"", when, knnlm_message());
    if (status == KNNLM_OK && returned != COMPACTED) fail_msg("%s: done?", when);
    assert_nothing_leaked(&before, when);
    int rank = check_disk(STORE_PATH, &reason);
    if (rank < 0) fail_msg("%s: %s", when, reason);
    if (rank < returned) fail_msg("%s: a commit was lost: %d after %d", when, rank, returned);
    assert_nothing_leaked(&before, when);
    run_again(when);
}

static int setup(void **state) {
    (void)state;
    const char *reason = "";
    setenv("SOURCE_DATE_EPOCH", KIT_EPOCH, 1);
    reader = pthread_self();
    json_set_alloc_funcs(json_allocate, free);
    start();
    plan.counting = true;
    OK(scenario());
    plan.counting = false;
    for (int i = 0; i < KINDS; i++) clean_calls[i] = plan.calls[i];
    assert_int_equal(check_disk(STORE_PATH, &reason), COMPACTED);
    clean = kit_read(STORE_PATH);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    kit_free(&clean);
    kit_delete(STORE_PATH);
    return 0;
}

// Every call of a kind in turn, or every `stride`th.
static void fail_each(kind k, int error, bool lasting, bool shortened, long stride) {
    long total = clean_calls[k], failed = 0;
    for (long at = stride > 1 ? (k + error + lasting) % stride : 0; at < total; at += stride) {
        char when[96];
        snprintf(when, sizeof when, "%s %ld of %ld %s%s (%s)", kind_names[k], at, total,
                 shortened ? "half done, then " : "", lasting ? "failing from then on" : "failing once",
                 error ? strerror(error) : "short");
        plan.target = k;
        plan.at = at;
        plan.error = error;
        plan.lasting = lasting;
        plan.shortened = shortened;
        run_failing(when);
        failed += plan.met > 0;
    }
    print_message("    %s: %ld calls, %ld runs with a failure (%s%s)\n", kind_names[k], total, failed,
                  error ? strerror(error) : "short", lasting ? ", lasting" : "");
    assert_true(failed || total == 0);
}

static void fail_once_and_for_good(kind k, int error, long stride) {
    fail_each(k, error, false, false, stride);
    fail_each(k, error, true, false, stride);
}

static void writes_fail(void **state) {
    (void)state;
    assert_true(clean_calls[WRITE] > 40);
    fail_once_and_for_good(WRITE, EIO, 1);
    fail_once_and_for_good(WRITE, ENOSPC, 1);
    fail_each(WRITE, 0, false, true, 1);
    fail_each(WRITE, ENOSPC, false, true, 1);
}

static void syncs_fail(void **state) {
    (void)state;
    assert_true(clean_calls[FSYNC] > 40);
    fail_once_and_for_good(FSYNC, EIO, 1);
    fail_each(FSYNC, ENOSPC, true, false, 1);
}

static void names_fail(void **state) {
    (void)state;
    assert_true(clean_calls[RENAME] > 5 && clean_calls[MKDIR] == 1 && clean_calls[OPEN] > 40);
    fail_once_and_for_good(RENAME, EIO, 1);
    fail_once_and_for_good(RENAME, ENOSPC, 1);
    fail_once_and_for_good(MKDIR, ENOSPC, 1);
    fail_each(OPEN, EMFILE, false, false, 1);
    fail_each(OPEN, ENOSPC, true, false, 1);
    fail_once_and_for_good(FTRUNCATE, EIO, 1);
}

static void mappings_and_threads_fail(void **state) {
    (void)state;
    assert_true(clean_calls[MMAP] > 20 && clean_calls[THREAD] == 3);
    fail_once_and_for_good(MMAP, ENOMEM, 1);
    fail_once_and_for_good(THREAD, EAGAIN, 1);
}

static void memory_fails(void **state) {
    (void)state;
    for (kind k = CALLOC; k <= JSON; k++)
        fail_once_and_for_good(k, ENOMEM,
                               getenv("STORE_ALL") || clean_calls[k] < 100 ? 1 : clean_calls[k] / 50);
}

static void failures_are_told_without_memory(void **state) {
    (void)state;
    plan.speechless = true;
    fail_once_and_for_good(WRITE, EIO, 3);
    fail_once_and_for_good(FSYNC, EIO, 3);
    plan.speechless = false;
}

static void a_full_disk_is_asked_first(void **state) {
    (void)state;
    knnlm_compact_result c;
    start();
    OK(build());
    OK(add());
    kit_image before = kit_read(STORE_PATH);
    plan.full = true;
    FAILS(KNNLM_EIO, "0 are free", kn_store_compact(STORE_PATH, false, NULL, NULL, &c));
    kit_image after = kit_read(STORE_PATH);
    assert_null(kit_compare_images(&before, &after));
    OK(kn_store_compact(STORE_PATH, true, NULL, NULL, &c)); // there was room after all
    plan.full = false;
    assert_int_equal(c.entries_dropped, 35);
    run_again("compacted");
    kit_free(&before);
    kit_free(&after);
}

// ---------------------------------------------------------------- the power fails

typedef enum fate { LOST, ZEROED, KEPT } fate; // of bytes that were not synced

// The file that a name leads to after the power failed.
static int surviving(const disk_name *n, bool names_kept, kn_random *random) {
    if (random) return kn_random_next(random) & 1 ? n->live : n->durable;
    return names_kept ? n->live : n->durable;
}

static void materialise(const moment *m, bool names_kept, fate data, kn_random *random) {
    kit_delete(STORE_PATH);
    if (!m->directory_durable && !names_kept) return;
    mkdir(STORE_PATH, 0777);
    for (size_t i = 0; i < m->name_count; i++) {
        int file = surviving(&m->names[i], names_kept, random);
        fate chosen = random ? (fate)kn_random_below(random, 3) : data;
        if (file == NOTHING) continue;
        size_t size = chosen == LOST ? m->synced[file] : m->sizes[file];
        uint8_t *bytes = kit_alloc(size, 1);
        size_t kept = chosen == KEPT ? size : m->synced[file];
        if (kept) memcpy(bytes, disk.files[file].data, kept);
        kit_write_file(STORE_PATH, m->names[i].name, bytes, size);
        free(bytes);
    }
}

static void check_moment(size_t i, bool names_kept, fate data, kn_random *random) {
    const moment *m = &disk.moments[i];
    const char *reason = "";
    char when[96];
    snprintf(when, sizeof when, "power lost before call %zu of %zu (names %s, bytes %d)", i,
             disk.moment_count,
             random       ? "at random"
             : names_kept ? "kept"
                          : "lost",
             (int)data);
    materialise(m, names_kept, data, random);
    int rank = check_disk(STORE_PATH, &reason);
    if (rank < 0) fail_msg("%s: %s", when, reason);
    if (rank < m->returned) fail_msg("%s: a commit was lost: %d after %d", when, rank, m->returned);
    if (i % 4 == 0) run_again(when);
}

static void check_moments(void) {
    kn_random random = {1};
    for (size_t i = 0; i < disk.moment_count; i++) {
        for (int data = LOST; data <= KEPT; data++)
            for (int kept = 0; kept < 2; kept++) check_moment(i, kept, (fate)data, NULL);
        check_moment(i, true, LOST, &random);
    }
    print_message("    power lost before %zu calls, in 7 ways each\n", disk.moment_count);
}

static void the_power_fails(void **state) {
    (void)state;
    disk_reset();
    start();
    disk.recording = true;
    OK(scenario());
    disk_end(disk_begin()); // and after the last
    disk.recording = false;
    assert_true(disk.moment_count > 150);
    assert_true(disk.moments[disk.moment_count - 1].returned == COMPACTED);
    check_moments();
    disk_reset();
}

// The same when a sync had failed before: what is not known to be durable must not have cost anything.
static void the_power_fails_after_a_failed_sync(void **state) {
    (void)state;
    size_t checked = 0;
    kn_random random = {2};
    for (long at = 0; at < clean_calls[FSYNC]; at++) {
        disk_reset();
        start();
        plan.target = FSYNC;
        plan.at = at;
        plan.error = EIO;
        plan.lasting = true;
        disk.recording = true;
        plan.counting = plan.armed = true;
        if (scenario() == KNNLM_OK) assert_int_equal(at, clean_calls[FSYNC] - 1); // only for sweeping up
        plan.counting = plan.armed = false;
        disk_end(disk_begin());
        disk.recording = false;
        for (int i = 0; i < 8; i++, checked++)
            check_moment(disk.moment_count - 1, i & 1, LOST, i < 2 ? NULL : &random);
    }
    print_message("    power lost after %zu failed syncs, in 8 ways each\n", checked / 8);
    disk_reset();
}

int main(void) {
    char directory[KIT_PATH], origin[KIT_PATH];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_fail),
        cmocka_unit_test(syncs_fail),
        cmocka_unit_test(names_fail),
        cmocka_unit_test(mappings_and_threads_fail),
        cmocka_unit_test(memory_fails),
        cmocka_unit_test(failures_are_told_without_memory),
        cmocka_unit_test(a_full_disk_is_asked_first),
        cmocka_unit_test(the_power_fails),
        cmocka_unit_test(the_power_fails_after_a_failed_sync),
    };
    test_folder(directory, sizeof directory);
    if (!getcwd(origin, sizeof origin) || chdir(directory) != 0) return 1;
    int failed = cmocka_run_group_tests(tests, setup, teardown);
    if (chdir(origin) != 0) return 1;
    kit_delete(directory);
    return failed;
}
