// Which files, and how they lie: raw arrays do not say, so that sizes, names and options have to.
#include "store/import.h"
#include "store/state.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEYS_END "keys.npy"

// ---------------------------------------------------------------- names

static bool ends_with(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

// The values that belong to a file of keys; NULL: its name is not that of a pair, or no such file is there.
static char *find_values(const char *keys) {
    static const char *const ends[] = {"vals.npy", "values.npy"};
    if (!ends_with(keys, KEYS_END)) return NULL;
    size_t stem = strlen(keys) - strlen(KEYS_END);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t size = stem + strlen(ends[i]) + 1;
        char *path = kn_alloc(size, 1);
        if (!path) return NULL;
        snprintf(path, size, "%.*s%s", (int)stem, keys, ends[i]);
        if (access(path, F_OK) == 0) return path;
        free(path);
    }
    return NULL;
}

static int is_keys(const struct dirent *e) {
    return ends_with(e->d_name, KEYS_END);
}

static knnlm_status no_pair(const char *path) {
    return kn_fail(KNNLM_EINVAL,
                   "%s: no pair of NAMEkeys.npy and NAMEvals.npy or NAMEvalues.npy: name both files", path);
}

// Takes `name` of `directory` for the pair when it is one.
static knnlm_status take_pair(const char *directory, const char *name, char **keys, char **values) {
    char *path = kn_store_file(directory, name), *partner = path ? find_values(path) : NULL;
    if (!path) return KNNLM_ENOMEM;
    if (!partner) {
        free(path);
        return KNNLM_OK;
    }
    knnlm_status status = KNNLM_OK;
    if (*keys) {
        status = kn_fail(KNNLM_EINVAL, "%s: several pairs of keys and values (%s, %s): name the two files",
                         directory, strrchr(*keys, '/') + 1, name);
        free(path);
        free(partner);
    } else {
        *keys = path;
        *values = partner;
    }
    return status;
}

static knnlm_status find_in_directory(const char *path, char **keys, char **values) {
    struct dirent **list;
    int count = scandir(path, &list, is_keys, alphasort);
    if (count < 0) return kn_fail_errno(KNNLM_EIO, errno, "%s", path);
    knnlm_status status = KNNLM_OK;
    for (int i = 0; i < count; i++) {
        if (status == KNNLM_OK) status = take_pair(path, list[i]->d_name, keys, values);
        free(list[i]);
    }
    free(list);
    return status == KNNLM_OK && !*keys ? no_pair(path) : status;
}

knnlm_status kn_import_find(const char *path, char **keys, char **values) {
    struct stat st;
    knnlm_status status = KNNLM_OK;
    *keys = *values = NULL;
    if (stat(path, &st) != 0) return kn_fail_errno(KNNLM_EIO, errno, "%s", path);
    if (S_ISDIR(st.st_mode)) {
        status = find_in_directory(path, keys, values);
    } else {
        *values = find_values(path);
        if (!*values) return no_pair(path);
        *keys = kn_strdup(path);
        status = *keys ? KNNLM_OK : KNNLM_ENOMEM;
    }
    if (status == KNNLM_OK) return KNNLM_OK;
    free(*keys);
    free(*values);
    *keys = *values = NULL;
    return status;
}

// The number after the last '_' of the first *size bytes of `text`, which then end before that '_'.
static bool last_number(const char *text, size_t *size, uint64_t *out) {
    size_t end = *size, from = end;
    while (from > 0 && text[from - 1] >= '0' && text[from - 1] <= '9') from--;
    if (from == end || end - from > 18 || from < 2 || text[from - 1] != '_') return false;
    *out = strtoull(text + from, NULL, 10);
    *size = from - 1;
    return true;
}

// dstore_TYPE_N_D_keys.npy of knn-transformers.
static bool parse_name(const char *path, uint64_t *entries, uint64_t *dimension) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (strncmp(name, "dstore_", 7) != 0 || !ends_with(name + 7, "_" KEYS_END)) return false;
    name += 7;
    size_t size = strlen(name) - strlen("_" KEYS_END);
    return last_number(name, &size, dimension) && last_number(name, &size, entries) && size > 0;
}

// ---------------------------------------------------------------- headers

typedef struct opening {
    const kn_import_options *o;
    kn_import_files *f;
    bool keys_header, values_header;
    uint64_t entries, dimension; // as asked for, or by the name; 0: any
} opening;

static knnlm_status open_array(const char *path, kn_npy *out, bool *header) {
    kn_map map;
    KN_TRY(kn_map_open(path, &map));
    knnlm_status status = KNNLM_OK;
    *header = kn_npy_is(&map);
    if (*header)
        status = kn_npy_parse(path, map.data, map.size, out);
    else if (map.size)
        *out = (kn_npy){.data = map.data, .size = map.size};
    else
        status = kn_fail(KNNLM_EDATA, "%s: is empty", path);
    if (status == KNNLM_OK)
        out->map = map;
    else
        kn_map_close(&map);
    return status;
}

static const kn_npy_type asked_types[] = {
    [KNNLM_ARRAY_F16] = KN_NPY_F16,   [KNNLM_ARRAY_F32] = KN_NPY_F32,   [KNNLM_ARRAY_INT64] = KN_NPY_I64,
    [KNNLM_ARRAY_INT32] = KN_NPY_I32, [KNNLM_ARRAY_INT16] = KN_NPY_I16, [KNNLM_ARRAY_UINT16] = KN_NPY_U16};

// What was asked for must be what the header says, but that the bits of int16 may be read as uint16.
static knnlm_status check_asked(const char *path, kn_npy *npy, knnlm_array_type asked) {
    if (asked == KNNLM_ARRAY_ANY || npy->type == asked_types[asked]) return KNNLM_OK;
    if (npy->type == KN_NPY_I16 && asked == KNNLM_ARRAY_UINT16) {
        npy->type = KN_NPY_U16;
        return KNNLM_OK;
    }
    return kn_fail(KNNLM_EINVAL, "%s: its header says %s, not %s", path, kn_npy_type_name(npy->type),
                   kn_npy_type_name(asked_types[asked]));
}

static knnlm_status check_keys_header(const opening *p) {
    kn_npy *k = &p->f->keys;
    const char *path = p->f->keys_path;
    if (!p->keys_header) return KNNLM_OK;
    if (k->type != KN_NPY_F16 && k->type != KN_NPY_F32)
        return kn_fail(KNNLM_ENOTSUP, "%s: holds %s: keys are float16 or float32", path,
                       kn_npy_type_name(k->type));
    if (k->n_dims != 2 || !k->dims[1] || k->dims[1] > KN_STORE_DIMENSION_MAX)
        return kn_fail(KNNLM_EDATA, "%s: its shape is not that of keys: (entries, 1 to %d)", path,
                       KN_STORE_DIMENSION_MAX);
    return check_asked(path, k, p->o->key_type);
}

static knnlm_status check_values_header(const opening *p) {
    kn_npy *v = &p->f->values;
    const char *path = p->f->values_path;
    if (!p->values_header) return KNNLM_OK;
    if (v->type == KN_NPY_F16 || v->type == KN_NPY_F32)
        return kn_fail(KNNLM_ENOTSUP, "%s: holds %s: values are integers", path, kn_npy_type_name(v->type));
    if (v->n_dims != 1 && !(v->n_dims == 2 && v->dims[1] == 1))
        return kn_fail(KNNLM_EDATA, "%s: its shape is not that of values: (entries) or (entries, 1)", path);
    return check_asked(path, v, p->o->value_type);
}

// ---------------------------------------------------------------- sizes

typedef struct reading {
    kn_npy_type key, value;
    size_t entries, dimension;
} reading;

enum { KEY_TYPES = 2, VALUE_TYPES = 3, READINGS = KEY_TYPES * VALUE_TYPES };

// The types that a file may be of.
static size_t list_types(const kn_npy *npy, bool header, knnlm_array_type asked, const kn_npy_type *all,
                         size_t count, kn_npy_type *out) {
    if (header || asked != KNNLM_ARRAY_ANY) {
        out[0] = header ? npy->type : asked_types[asked];
        return 1;
    }
    memcpy(out, all, count * sizeof *all);
    return count;
}

// Whether both files make sense with the types of *r, and with what was asked for.
static bool fits(const opening *p, reading *r) {
    const kn_npy *k = &p->f->keys, *v = &p->f->values;
    size_t key = kn_npy_type_size(r->key), value = kn_npy_type_size(r->value), row;
    r->entries = v->size / value;
    if (v->size % value || (p->entries && p->entries != r->entries)) return false;
    if (p->keys_header) {
        r->dimension = k->dims[1];
        if (k->dims[0] != r->entries) return false;
    } else {
        if (!r->entries || !kn_mul(r->entries, key, &row) || k->size % row) return false;
        r->dimension = k->size / row;
    }
    return r->dimension >= 1 && r->dimension <= KN_STORE_DIMENSION_MAX &&
           (!p->dimension || p->dimension == r->dimension);
}

static size_t list_readings(const opening *p, reading out[READINGS]) {
    static const kn_npy_type key_types[KEY_TYPES] = {KN_NPY_F32, KN_NPY_F16};
    static const kn_npy_type value_types[VALUE_TYPES] = {KN_NPY_I64, KN_NPY_I32, KN_NPY_I16};
    kn_npy_type keys[KEY_TYPES], values[VALUE_TYPES];
    size_t nk = list_types(&p->f->keys, p->keys_header, p->o->key_type, key_types, KEY_TYPES, keys), n = 0;
    size_t nv =
        list_types(&p->f->values, p->values_header, p->o->value_type, value_types, VALUE_TYPES, values);
    for (size_t i = 0; i < nk; i++)
        for (size_t j = 0; j < nv; j++) {
            reading r = {.key = keys[i], .value = values[j]};
            if (fits(p, &r)) out[n++] = r;
        }
    return n;
}

// ---------------------------------------------------------------- what cannot be read

enum { TEXT_MAX = 128, LIST_MAX = 1024 };

// As the option says it.
static const char *key_name(kn_npy_type type) {
    return type == KN_NPY_F16 ? "f16" : "f32";
}

static void describe(const kn_npy *npy, bool header, char out[TEXT_MAX]) {
    if (!header)
        snprintf(out, TEXT_MAX, "%zu bytes", npy->size);
    else if (npy->n_dims == 1)
        snprintf(out, TEXT_MAX, "%zu of %s", npy->dims[0], kn_npy_type_name(npy->type));
    else
        snprintf(out, TEXT_MAX, "%zu x %zu of %s", npy->dims[0], npy->dims[1], kn_npy_type_name(npy->type));
}

static knnlm_status no_such_values(const opening *p) {
    char values[TEXT_MAX];
    describe(&p->f->values, p->values_header, values);
    return kn_fail(KNNLM_EDATA, "%s has %s: not the values of %" PRIu64 " entries", p->f->values_path, values,
                   p->entries);
}

static knnlm_status nothing_fits(const opening *p) {
    char keys[TEXT_MAX], values[TEXT_MAX], wanted[TEXT_MAX] = "";
    describe(&p->f->keys, p->keys_header, keys);
    describe(&p->f->values, p->values_header, values);
    if (p->entries) snprintf(wanted, sizeof wanted, " as %" PRIu64 " entries", p->entries);
    if (p->dimension)
        snprintf(wanted + strlen(wanted), sizeof wanted - strlen(wanted), "%s of dimension %" PRIu64,
                 p->entries ? "" : " as entries", p->dimension);
    const kn_import_options *o = p->o;
    const char *key_types =
        o->key_type == KNNLM_ARRAY_ANY ? "f32 or f16" : key_name(asked_types[o->key_type]);
    const char *value_types = o->value_type == KNNLM_ARRAY_ANY ? "int64, int32 or int16"
                                                               : kn_npy_type_name(asked_types[o->value_type]);
    if (p->keys_header) key_types = key_name(p->f->keys.type);
    if (p->values_header) value_types = kn_npy_type_name(p->f->values.type);
    return kn_fail(KNNLM_EDATA, "%s has %s, %s has %s: %s keys and %s values do not fit these%s",
                   p->f->keys_path, keys, p->f->values_path, values, key_types, value_types, wanted);
}

static void add_text(char out[LIST_MAX], const char *separator, const char *text) {
    size_t n = strlen(out);
    snprintf(out + n, LIST_MAX - n, "%s%s", n ? separator : "", text);
}

// The options in which the readings differ.
static void list_options(const reading *r, size_t count, char out[LIST_MAX]) {
    bool entries = false, dimension = false, key = false, value = false;
    for (size_t i = 1; i < count; i++) {
        entries |= r[i].entries != r[0].entries;
        dimension |= r[i].dimension != r[0].dimension;
        key |= r[i].key != r[0].key;
        value |= r[i].value != r[0].value;
    }
    out[0] = 0;
    if (dimension) add_text(out, ", ", "`dimension`");
    if (entries) add_text(out, ", ", "`entries`");
    if (key) add_text(out, ", ", "`key_type`");
    if (value) add_text(out, ", ", "`value_type`");
}

static knnlm_status several_fit(const opening *p, const reading *r, size_t count) {
    char list[LIST_MAX] = "", options[LIST_MAX], one[TEXT_MAX];
    for (size_t i = 0; i < count; i++) {
        snprintf(one, sizeof one, "%zu of dimension %zu (%s, %s)", r[i].entries, r[i].dimension,
                 key_name(r[i].key), kn_npy_type_name(r[i].value));
        add_text(list, i + 1 < count ? ", " : " or ", one);
    }
    list_options(r, count, options);
    return kn_fail(KNNLM_EINVAL, "%s, %s: tell more by some of %s: their sizes fit %s", p->f->keys_path,
                   p->f->values_path, options, list);
}

// ---------------------------------------------------------------- opening

static knnlm_status understand(opening *p) {
    reading r[READINGS];
    size_t count = list_readings(p, r);
    kn_npy *k = &p->f->keys, *v = &p->f->values;
    if (count == 0) return p->o->keys ? nothing_fits(p) : no_such_values(p);
    if (count > 1) return several_fit(p, r, count);
    if (r->entries > KN_STORE_ENTRIES_MAX)
        return kn_fail(KNNLM_ENOTSUP, "%s: %zu entries: a store has at most %" PRIu32, p->f->values_path,
                       r->entries, KN_STORE_ENTRIES_MAX);
    *k = (kn_npy){.map = k->map, .type = r->key, .n_dims = 2, .data = k->data, .size = k->size};
    k->dims[0] = r->entries;
    k->dims[1] = r->dimension;
    k->count = r->entries * r->dimension;
    *v = (kn_npy){.map = v->map, .type = r->value, .n_dims = 1, .data = v->data, .size = v->size};
    v->dims[0] = v->count = r->entries;
    return KNNLM_OK;
}

static knnlm_status name_files(const kn_import_options *o, kn_import_files *f) {
    if (!o->values) return kn_import_find(o->keys, &f->keys_path, &f->values_path);
    f->keys_path = kn_strdup(o->keys);
    f->values_path = kn_strdup(o->values);
    return f->keys_path && f->values_path ? KNNLM_OK : KNNLM_ENOMEM;
}

// The number of entries is known; their keys are as if they had been read.
static knnlm_status open_values(opening *p) {
    const kn_import_options *o = p->o;
    kn_import_files *f = p->f;
    size_t d = (size_t)o->settings.dimension, entries = (size_t)o->entries;
    f->keys = (kn_npy){.type = KN_NPY_F32, .n_dims = 2, .dims = {entries, d}};
    f->values = (kn_npy){.type = KN_NPY_I32, .n_dims = 1, .dims = {entries}};
    if (!o->values) return KNNLM_OK;
    f->values_path = kn_strdup(o->values);
    if (!f->values_path) return KNNLM_ENOMEM;
    KN_TRY(open_array(f->values_path, &f->values, &p->values_header));
    KN_TRY(check_values_header(p));
    p->keys_header = true;
    p->entries = entries;
    f->headers = p->values_header;
    return understand(p);
}

knnlm_status kn_import_open(const kn_import_options *o, kn_import_files *f) {
    opening p = {.o = o, .f = f};
    uint64_t entries = 0, dimension = 0;
    *f = (kn_import_files){0};
    if (!o->keys) return open_values(&p);
    KN_TRY(name_files(o, f));
    KN_TRY(open_array(f->keys_path, &f->keys, &p.keys_header));
    KN_TRY(open_array(f->values_path, &f->values, &p.values_header));
    KN_TRY(check_keys_header(&p));
    KN_TRY(check_values_header(&p));
    if (p.keys_header || !parse_name(f->keys_path, &entries, &dimension)) entries = dimension = 0;
    p.entries = o->entries ? o->entries : entries;
    p.dimension = o->settings.dimension ? (uint64_t)o->settings.dimension : dimension;
    f->headers = p.keys_header && p.values_header;
    return understand(&p);
}

void kn_import_close(kn_import_files *f) {
    kn_npy_close(&f->keys);
    kn_npy_close(&f->values);
    free(f->keys_path);
    free(f->values_path);
    *f = (kn_import_files){0};
}
