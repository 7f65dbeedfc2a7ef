// Chunks of generated texts: copied from sequences, whose memory is theirs only until the next step.
#include "serve/chunk.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- tokens

static knnlm_status copy_token(const kn_generated *from, size_t chars, kn_chunk_token *out) {
    *out = (kn_chunk_token){*from, chars};
    out->generated.top = NULL;
    out->generated.top_p = NULL;
    if (!from->top_count) return KNNLM_OK;
    int32_t *top = kn_alloc(from->top_count, sizeof *top);
    double *top_p = kn_alloc(from->top_count, sizeof *top_p);
    out->generated.top = top;
    out->generated.top_p = top_p;
    if (!top || !top_p) return KNNLM_ENOMEM;
    memcpy(top, from->top, from->top_count * sizeof *top);
    memcpy(top_p, from->top_p, from->top_count * sizeof *top_p);
    return KNNLM_OK;
}

static void free_token(kn_chunk_token *t) {
    free((void *)t->generated.top);
    free((void *)t->generated.top_p);
}

// Characters before a byte of the text; bytes are asked for in ascending order.
static size_t chars_before(kn_chunk_cursor *c, const char *text, size_t byte) {
    for (; c->counted_bytes < byte; c->counted_bytes++)
        c->counted_chars += ((unsigned char)text[c->counted_bytes] & 0xc0) != 0x80;
    return c->counted_chars;
}

static knnlm_status copy_tokens(const kn_sequence *s, kn_chunk_cursor *c, kn_chunk *out) {
    size_t count, size;
    const kn_generated *tokens = kn_sequence_tokens(s, &count), *end = kn_sequence_end(s);
    const char *text = kn_sequence_text(s, &size);
    out->tokens = kn_alloc(count - c->tokens + 1, sizeof *out->tokens);
    if (!out->tokens) return KNNLM_ENOMEM;
    for (size_t i = c->tokens; i < count; i++) {
        size_t chars = chars_before(c, text, kn_min(tokens[i].offset, size));
        KN_TRY(copy_token(&tokens[i], chars, &out->tokens[out->token_count++]));
    }
    out->ended = end != NULL;
    return end ? copy_token(end, chars_before(c, text, size), &out->end) : KNNLM_OK;
}

// ---------------------------------------------------------------- sources

static knnlm_status copy_source(const kn_source *from, kn_source *out) {
    *out = *from;
    out->store_path = kn_strdup(from->store_path);
    out->document = kn_strndup(from->document, from->document_size);
    out->before = kn_strndup(from->before, from->before_size);
    out->text = kn_strndup(from->text, from->text_size);
    out->after = kn_strndup(from->after, from->after_size);
    return out->store_path && out->document && out->before && out->text && out->after ? KNNLM_OK
                                                                                      : KNNLM_ENOMEM;
}

static void free_source(kn_source *s) {
    free(s->store_path);
    free(s->document);
    free(s->before);
    free(s->text);
    free(s->after);
}

// A source is told when it begins, and again when it has ended.
static knnlm_status copy_sources(const kn_sequence *s, kn_chunk_cursor *c, kn_chunk *out) {
    size_t count, ended = kn_sequence_sources_ended(s);
    const kn_source *sources = kn_sequence_sources(s, &count);
    bool changed = count > c->sources || ended > c->ended;
    out->first_source = out->finish != KNNLM_FINISH_NOT ? 0 : changed ? c->ended : count;
    c->sources = count;
    c->ended = ended;
    out->sources = kn_alloc(count - out->first_source + 1, sizeof *out->sources);
    if (!out->sources) return KNNLM_ENOMEM;
    for (size_t i = out->first_source; i < count; i++)
        KN_TRY(copy_source(&sources[i], &out->sources[out->source_count++]));
    return KNNLM_OK;
}

// ---------------------------------------------------------------- chunks

static knnlm_status fill(const kn_sequence *s, bool tokens, bool sources, kn_chunk_cursor *c, kn_chunk *out) {
    size_t size;
    const char *text = kn_sequence_text(s, &size);
    out->finish = kn_sequence_finish(s);
    out->size = size - c->text;
    out->text = kn_strndup(text + c->text, out->size);
    if (!out->text) return KNNLM_ENOMEM;
    if (tokens) KN_TRY(copy_tokens(s, c, out));
    if (sources) KN_TRY(copy_sources(s, c, out));
    c->text = size;
    kn_sequence_tokens(s, &c->tokens);
    return KNNLM_OK;
}

knnlm_status kn_chunk_make(const kn_sequence *s, bool tokens, bool sources, kn_chunk_cursor *c,
                           kn_chunk **out) {
    size_t size, count;
    kn_sequence_text(s, &size);
    kn_sequence_tokens(s, &count);
    *out = NULL;
    bool more =
        size != c->text || count != c->tokens || (sources && kn_sequence_sources_ended(s) != c->ended);
    if (!more && kn_sequence_finish(s) == KNNLM_FINISH_NOT) return KNNLM_OK;
    kn_chunk *chunk = kn_alloc(1, sizeof *chunk);
    if (!chunk) return KNNLM_ENOMEM;
    knnlm_status status = fill(s, tokens, sources, c, chunk);
    if (status == KNNLM_OK)
        *out = chunk;
    else
        kn_chunk_free(chunk);
    return status;
}

kn_chunk *kn_chunk_of_token(const kn_generated *token, char *text, size_t size, knnlm_finish finish) {
    kn_chunk *chunk = kn_alloc(1, sizeof *chunk);
    if (!chunk) {
        free(text);
        return NULL;
    }
    *chunk = (kn_chunk){.text = text, .size = size, .finish = finish};
    chunk->tokens = kn_alloc(1, sizeof *chunk->tokens);
    chunk->token_count = chunk->tokens != NULL;
    if (chunk->tokens && copy_token(token, 0, chunk->tokens) == KNNLM_OK) return chunk;
    kn_chunk_free(chunk);
    return NULL;
}

void kn_chunk_free(kn_chunk *chunk) {
    if (!chunk) return;
    for (size_t i = 0; i < chunk->token_count; i++) free_token(&chunk->tokens[i]);
    for (size_t i = 0; i < chunk->source_count; i++) free_source(&chunk->sources[i]);
    free_token(&chunk->end);
    free(chunk->tokens);
    free(chunk->sources);
    free(chunk->text);
    free(chunk);
}

// ---------------------------------------------------------------- in order

void kn_chunk_queue_put(kn_chunk_queue *q, kn_chunk *chunk) {
    chunk->next = NULL;
    *(q->last ? &q->last->next : &q->first) = chunk;
    q->last = chunk;
}

kn_chunk *kn_chunk_queue_take(kn_chunk_queue *q) {
    kn_chunk *chunk = q->first;
    if (!chunk) return NULL;
    q->first = chunk->next;
    if (!q->first) q->last = NULL;
    return chunk;
}

void kn_chunk_queue_free(kn_chunk_queue *q) {
    for (kn_chunk *chunk; (chunk = kn_chunk_queue_take(q));) kn_chunk_free(chunk);
}
