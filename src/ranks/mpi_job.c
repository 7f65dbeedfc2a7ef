// Joins a job that mpirun started, and ends it.
#include "ranks/mpi.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

kn_ranks_job kn_the_job = {.count = 1};

// What every rank tells the others first.
typedef struct card {
    char version[32], host[KN_HOST_NAME];
} card;

knnlm_status kn_mpi_check(int code, const char *what) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    if (code == MPI_SUCCESS) return KNNLM_OK;
    MPI_Error_string(code, text, &length);
    return kn_fail(KNNLM_EIO, "%s: %s", what, text);
}

int kn_rank(void) {
    return kn_the_job.rank;
}

int kn_rank_count(void) {
    return kn_the_job.count;
}

const char *kn_rank_host(int rank) {
    static char own[KN_HOST_NAME];
    if (kn_the_job.hosts) return kn_the_job.hosts[rank];
    if (!*own && gethostname(own, sizeof own - 1) != 0) strcpy(own, "?");
    return own;
}

const char *kn_ranks_library(void) {
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    if (*text || MPI_Get_library_version(text, &length) != MPI_SUCCESS) return text;
    text[strcspn(text, ",\n")] = 0; // what follows tells who packed it
    return text;
}

static bool started_by_mpirun(void) {
    return getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMI_RANK") || getenv("PMIX_RANK");
}

static knnlm_status compare_cards(const card *cards) {
    for (int i = 0; i < kn_the_job.count; i++)
        if (strcmp(cards[i].version, KNNLM_VERSION) != 0)
            return kn_fail(KNNLM_EINVAL, "rank %d (%s) is knnlm %s, rank %d (%s) is %s: install one", i,
                           cards[i].host, cards[i].version, kn_the_job.rank, cards[kn_the_job.rank].host,
                           KNNLM_VERSION);
    return KNNLM_OK;
}

static knnlm_status meet(void) {
    card mine = {.version = KNNLM_VERSION};
    card *cards = kn_alloc((size_t)kn_the_job.count, sizeof *cards);
    kn_the_job.hosts = kn_alloc((size_t)kn_the_job.count, sizeof *kn_the_job.hosts);
    kn_the_job.heard = kn_alloc((size_t)kn_the_job.count, sizeof *kn_the_job.heard);
    if (gethostname(mine.host, sizeof mine.host - 1) != 0) strcpy(mine.host, "?");
    knnlm_status status = cards && kn_the_job.hosts && kn_the_job.heard ? KNNLM_OK : KNNLM_ENOMEM;
    if (status == KNNLM_OK)
        status = kn_mpi_check(
            MPI_Allgather(&mine, sizeof mine, MPI_BYTE, cards, sizeof mine, MPI_BYTE, MPI_COMM_WORLD),
            "MPI_Allgather");
    for (int i = 0; i < kn_the_job.count && status == KNNLM_OK; i++)
        memcpy(kn_the_job.hosts[i], cards[i].host, KN_HOST_NAME);
    if (status == KNNLM_OK) status = compare_cards(cards);
    free(cards);
    return status;
}

static knnlm_status join(void) {
    int provided = 0;
    KN_TRY(kn_mpi_check(MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread"));
    kn_the_job.begun = true;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &kn_the_job.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &kn_the_job.count);
    if (provided < MPI_THREAD_MULTIPLE)
        return kn_fail(KNNLM_ENOTSUP, "%s does not serve threads (MPI_THREAD_MULTIPLE)", kn_ranks_library());
    KN_TRY(meet());
    return kn_the_job.count > 1 ? kn_watch_begin() : KNNLM_OK;
}

static void leave(void) {
    kn_watch_end();
    if (kn_the_job.begun && !kn_the_job.broken) MPI_Finalize();
    free(kn_the_job.hosts);
    free(kn_the_job.heard);
    kn_the_job = (kn_ranks_job){.count = 1};
}

// Ranks that cannot work together end, each by itself; the first tells why.
knnlm_status kn_ranks_begin(void) {
    if (!started_by_mpirun()) return KNNLM_OK;
    knnlm_status status = join();
    int rank = kn_the_job.rank;
    if (status == KNNLM_OK) return status;
    leave();
    kn_the_job.rank = rank;
    return status;
}

int kn_ranks_end(int code) {
    kn_call_head end = {.tag = code, .size = kn_the_job.broken};
    for (int i = 1; kn_the_job.begun && i < kn_the_job.count; i++)
        if (kn_watch_check(i) == KNNLM_OK)
            MPI_Send(&end, sizeof end, MPI_BYTE, i, KN_TAG_CALL, MPI_COMM_WORLD);
    leave();
    return code;
}

// ---------------------------------------------------------------- serving

typedef struct served {
    int tag;
    double told;
    bool stopped;
} served;

static bool is_stopped(int tag) {
    int there = 0;
    char nothing;
    MPI_Iprobe(0, tag + KN_TAG_STOP, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
    if (there) MPI_Recv(&nothing, 1, MPI_BYTE, 0, tag + KN_TAG_STOP, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return there;
}

static bool report(void *context, const char *phase, uint64_t done, uint64_t total, const char *unit) {
    served *s = context;
    double now = kn_seconds();
    (void)phase;
    (void)unit;
    if (s->stopped || now - s->told < 0.1) return !s->stopped;
    s->told = now;
    kn_progress_note note = {done, total};
    MPI_Send(&note, sizeof note, MPI_BYTE, 0, s->tag + KN_TAG_PROGRESS, MPI_COMM_WORLD);
    s->stopped = is_stopped(s->tag);
    return !s->stopped;
}

// Waits for a message of MPI without burning the CPU.
static void wait_for(MPI_Request *request) {
    unsigned waited = 0;
    for (int done = 0; MPI_Test(request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done;)
        kn_transport_rest(&waited);
}

static void receive(void *data, size_t size, int tag) {
    for (size_t at = 0; at < size; at += KN_PIECE) {
        MPI_Request request;
        MPI_Irecv((char *)data + at, (int)kn_min(KN_PIECE, size - at), MPI_BYTE, 0, tag, MPI_COMM_WORLD,
                  &request);
        wait_for(&request);
    }
}

static void send(const void *data, size_t size, int tag) {
    for (size_t at = 0; at < size; at += KN_PIECE) {
        MPI_Request request;
        MPI_Isend((const char *)data + at, (int)kn_min(KN_PIECE, size - at), MPI_BYTE, 0, tag, MPI_COMM_WORLD,
                  &request);
        wait_for(&request);
    }
}

static knnlm_status run(const kn_service *const *services, size_t count, const kn_call_head *head,
                        kn_message *out) {
    served s = {.tag = head->tag};
    kn_message in = {0};
    kn_progress progress = {report, &s};
    knnlm_status status = kn_fail(KNNLM_ENOTSUP, "no service %.23s", head->service);
    void *room = kn_message_room(&in, (size_t)head->size);
    if (!room && head->size) return kn_message_sent(&in); // the caller's bytes stay where they are
    receive(room, (size_t)head->size, head->tag);
    while (is_stopped(head->tag)) continue; // of a call before it that had the tag
    for (size_t i = 0; i < count; i++)
        if (strncmp(services[i]->name, head->service, KN_SERVICE_NAME) == 0)
            status = services[i]->run(&in, out, &progress);
    kn_message_free(&in);
    if (status == KNNLM_OK) status = kn_message_sent(out);
    return status;
}

static void answer(const kn_service *const *services, size_t count, const kn_call_head *head) {
    kn_message out = {0};
    knnlm_status status = run(services, count, head, &out);
    const char *failure = status == KNNLM_OK ? "" : knnlm_message();
    kn_answer_head reply = {(uint64_t)status, status == KNNLM_OK ? out.size : 0, strlen(failure)};
    send(&reply, sizeof reply, head->tag);
    send(failure, (size_t)reply.failure, head->tag);
    send(out.data, (size_t)reply.size, head->tag);
    kn_message_free(&out);
}

int kn_ranks_serve(const kn_service *const *services, size_t count) {
    for (unsigned waited = 0;;) {
        kn_call_head head;
        MPI_Message message;
        int there = 0;
        MPI_Improbe(0, KN_TAG_CALL, MPI_COMM_WORLD, &there, &message, MPI_STATUS_IGNORE);
        if (!there) {
            kn_transport_rest(&waited);
            continue;
        }
        MPI_Mrecv(&head, sizeof head, MPI_BYTE, &message, MPI_STATUS_IGNORE);
        waited = 0;
        if (*head.service) {
            answer(services, count, &head);
            continue;
        }
        if (head.size) _exit(head.tag); // MPI would wait for who is gone
        leave();
        return head.tag;
    }
}
