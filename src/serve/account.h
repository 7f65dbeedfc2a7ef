// Memory that requests take: all of them together have a budget, and each an account of it. Not a door: only
// this room includes it.
//
// What a request will cost is estimated and taken before its work begins; a client is told which member made
// it too much. JSON, which takes up to eighty times the bytes of a body, is also counted as it is made: past
// the limit there is no memory for it, whatever the body looks like. An account belongs to the thread of its
// connection, and gives everything back when the exchange is over.
#ifndef KN_SERVE_ACCOUNT_H
#define KN_SERVE_ACCOUNT_H

#include "serve/http_error.h"

#include <stdatomic.h>
#include <stddef.h>
#include <sys/types.h>

typedef struct kn_budget {
    size_t max, max_request; // bytes of all, and of one
    atomic_size_t used;
} kn_budget;

// The first one also makes jansson's memory counted, before any thread has an account.
void kn_budget_init(kn_budget *budget, size_t max);

typedef enum kn_shortage {
    KN_SHORTAGE_NONE,
    KN_SHORTAGE_REQUEST, // it wants more than one request may have
    KN_SHORTAGE_BUDGET,  // others have the rest
    KN_SHORTAGE_MEMORY,  // the machine has no more
} kn_shortage;

typedef struct kn_account {
    kn_budget *budget;
    size_t reserved; // of the budget
    size_t taken;    // by kn_account_take
    ssize_t json;    // bytes of JSON that this thread has made and not freed
    ssize_t expected;
    kn_shortage shortage; // the first
} kn_account;

// From now on the JSON of this thread is counted here.
void kn_account_open(kn_account *a, kn_budget *budget);
void kn_account_close(kn_account *a);
// Complaints are made although the account is exhausted.
void kn_account_pause(kn_account *a);

// `bytes` more than before; false: too much (see shortage).
bool kn_account_take(kn_account *a, size_t bytes);
// As much JSON and the like will be made yet.
bool kn_account_expect(kn_account *a, size_t bytes);

// Why there was none: always false. `param` names the member that made it too much, or is NULL.
bool kn_account_error(const kn_account *a, const char *param, kn_http_error *err);

// Around the parsing of a body of `size` bytes. jansson's lexer does not notice that its buffer could not
// grow, and reads beyond its end: so memory for that buffer is set aside first, and used when there is no
// other, while every value is refused. False: there is none to set aside; what was parsed took too much, and
// must not be used (see shortage).
bool kn_account_parse_begin(kn_account *a, size_t size);
bool kn_account_parse_end(kn_account *a);

// Whether jansson got no memory in this thread since this was asked last.
bool kn_json_failed(void);

// ---------------------------------------------------------------- estimates

// Upper bounds of what JSON takes, with the text that is printed from it (which is there up to three times
// while it grows and is copied): an object is 224 bytes, a member 112 beside its value's, a number 32, a
// string 80, a place in a list 16.
enum {
    KN_COST_LOGPROB = 1000,       // an entry of "logprobs",
    KN_COST_TOP = 250,            // and each of its alternatives
    KN_COST_CHUNK = 1200,         // a generated token on its way to the answer,
    KN_COST_CHUNK_NUMBERS = 2400, // with its numbers,
    KN_COST_CHUNK_TOP = 220,      // and alternatives
    KN_COST_SOURCE = 6000,        // knn.explain: a source, of which each token may have its own
    KN_COST_SCORE = 3200,         // a token of /v1/score,
    KN_COST_TEMPERATURE = 160,    // and p_kNN at one temperature,
    KN_COST_GAIN = 4000,          // and the gain of a document, its name included
    KN_COST_CHAT_ENTRY = 2000,    // an entry of chat's logprobs, and each of its alternatives
    KN_COST_NUMBER = 110,         // of a vector
    KN_COST_ID = 80,              // of /tokenize
    KN_COST_TEXT = 16,            // a byte of text, escaped
    KN_COST_TOKEN = 12,           // an id and its offset; a byte of text may be a token
};

#endif
