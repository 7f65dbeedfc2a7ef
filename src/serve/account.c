// Memory accounts of requests, with a counter in jansson's allocator.
#include "serve/account.h"

#include "base/memory.h"

#include <jansson.h>

#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>

// Accounts grow by pieces, so that threads seldom meet at the budget.
enum { PIECE = 64 << 10 };

static _Thread_local kn_account *current; // NULL: nothing is counted
static _Thread_local bool failed;

// ---------------------------------------------------------------- the budget

static bool reserve(kn_account *a, size_t bytes) {
    kn_budget *b = a->budget;
    size_t used = atomic_load(&b->used);
    do {
        if (bytes > b->max || used > b->max - bytes) return false;
    } while (!atomic_compare_exchange_weak(&b->used, &used, used + bytes));
    a->reserved += bytes;
    return true;
}

static bool fall_short(kn_account *a, kn_shortage why) {
    if (a->shortage == KN_SHORTAGE_NONE) a->shortage = why;
    return false;
}

// What is taken, with the JSON that is there or is expected, is reserved after this.
static bool settle(kn_account *a) {
    ssize_t json = a->json > a->expected ? a->json : a->expected;
    size_t needed;
    if (!kn_add(a->taken, json > 0 ? (size_t)json : 0, &needed) || needed > a->budget->max_request)
        return fall_short(a, KN_SHORTAGE_REQUEST);
    if (needed <= a->reserved) return true;
    size_t more = needed - a->reserved;
    if (reserve(a, kn_max(more, PIECE)) || reserve(a, more)) return true;
    return fall_short(a, KN_SHORTAGE_BUDGET);
}

bool kn_account_take(kn_account *a, size_t bytes) {
    size_t sum;
    if (!kn_add(a->taken, bytes, &sum)) return fall_short(a, KN_SHORTAGE_REQUEST);
    a->taken = sum;
    return settle(a);
}

bool kn_account_expect(kn_account *a, size_t bytes) {
    if (bytes > a->budget->max_request) return fall_short(a, KN_SHORTAGE_REQUEST);
    a->expected = (a->json > a->expected ? a->json : a->expected) + (ssize_t)bytes;
    return settle(a);
}

bool kn_account_error(const kn_account *a, const char *param, kn_http_error *err) {
    const kn_budget *b = a->budget;
    if (a->shortage != KN_SHORTAGE_REQUEST) return kn_http_error_memory(err);
    if (!param)
        return kn_http_error_set(err, 413, "request_too_large", NULL,
                                 "the request would take more than %zu MB of memory (half of --max-memory)",
                                 b->max_request >> 20);
    return kn_http_error_set(
        err, 400, "request_too_large", param,
        "'%s': the answer would take more than %zu MB of memory (half of --max-memory): ask for "
        "fewer tokens, prompts, choices or logprobs at a time",
        param, b->max_request >> 20);
}

// ---------------------------------------------------------------- JSON

// While a body is parsed.
static _Thread_local struct {
    bool under_way;
    bool short_of; // memory: only the lexer's buffer may still grow
    size_t left;   // bytes that it may grow by beyond the budget
    void *aside;   // released when the system has no more
} parsing;

// The lexer's buffer has a power of two bytes from 32 on; of values only small strings and tables have such a
// size.
static bool may_be_buffer(size_t size) {
    return size >= 32 && !(size & (size - 1));
}

static void *allocate_raw(size_t size) {
    void *memory = malloc(size);
    if (memory || !parsing.aside) return memory;
    free(parsing.aside);
    parsing.aside = NULL;
    parsing.short_of = true;
    return may_be_buffer(size) ? malloc(size) : NULL;
}

// Beyond the budget: the buffer alone, by as much as was set aside.
static bool is_granted(size_t size, size_t usable) {
    if (!parsing.under_way) return false;
    parsing.short_of = true;
    if (!may_be_buffer(size) || usable > parsing.left) return false;
    parsing.left -= usable;
    return true;
}

static void *json_allocate(size_t size) {
    kn_account *a = current;
    bool refused = parsing.under_way && parsing.short_of && !may_be_buffer(size);
    void *memory = refused ? NULL : allocate_raw(size);
    size_t usable = memory ? malloc_usable_size(memory) : 0;
    if (memory && a) {
        a->json += (ssize_t)usable;
        if (settle(a) || is_granted(size, usable)) return memory;
        a->json -= (ssize_t)usable;
        free(memory);
        memory = NULL;
    } else if (!memory && a) {
        fall_short(a, KN_SHORTAGE_MEMORY);
    }
    if (!memory) failed = true;
    return memory;
}

bool kn_account_parse_begin(kn_account *a, size_t size) {
    size_t needed;
    if (!kn_mul(size, 4, &needed) || !kn_add(needed, 4096, &needed) || !(parsing.aside = malloc(needed)))
        return fall_short(a, KN_SHORTAGE_MEMORY);
    parsing.under_way = true;
    parsing.short_of = false;
    parsing.left = needed;
    return true;
}

bool kn_account_parse_end(kn_account *a) {
    free(parsing.aside);
    parsing.aside = NULL;
    parsing.under_way = false;
    return !parsing.short_of || fall_short(a, KN_SHORTAGE_MEMORY);
}

static void json_free(void *memory) {
    if (memory && current) current->json -= (ssize_t)malloc_usable_size(memory);
    free(memory);
}

bool kn_json_failed(void) {
    bool was = failed;
    failed = false;
    return was;
}

static void count_json(void) {
    json_set_alloc_funcs(json_allocate, json_free);
}

void kn_budget_init(kn_budget *b, size_t max) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, count_json);
    *b = (kn_budget){.max = max, .max_request = max / 2};
}

void kn_account_open(kn_account *a, kn_budget *budget) {
    *a = (kn_account){.budget = budget};
    current = a;
    failed = false;
}

void kn_account_pause(kn_account *a) {
    if (current == a) current = NULL;
}

void kn_account_close(kn_account *a) {
    kn_account_pause(a);
    atomic_fetch_sub(&a->budget->used, a->reserved);
    a->reserved = 0;
}
