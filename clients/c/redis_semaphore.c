#include "redis_semaphore.h"

#include <ctype.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "connection.h"
#include "message.h"

enum {
    HEARTBEAT_TIMEOUT_MS = 15000, /* the server skips requests of a client that is silent for longer */
    ASK_EVERY_MS = HEARTBEAT_TIMEOUT_MS / 3,
    PATIENCE_MS = 30000, /* how long a call is retried while Redis is unavailable */
    GIVE_BACK_MS = 2000, /* how long the release of a request without a permit is retried */
    PAUSE_MS = 200,
    MAX_NAME = 512
};
#define HEARTBEAT_TIMEOUT "15000"
#define MAX_TIMEOUT_MS ((INT64_C(1) << 53) - 1)

struct rsem {
    struct connection connection;
    char name[MAX_NAME + 2]; /* a longer name is cut, and rejected by the first call */
    char keys[4][MAX_NAME + 32];
    char limit[24];
    int64_t limit_number, lease_ms;
    int64_t declared_before;
    bool declared;
};

/* How long a call is retried while Redis is unavailable, and what ends the retries earlier. */
struct bounds {
    int64_t patience;
    int64_t until; /* -1: no bound */
    int cancel_fd; /* -1: no cancellation */
};

struct answer {
    int64_t reply[6];
    int64_t sent;  /* the time before the first attempt */
    bool repeated; /* an earlier attempt may have succeeded */
};

struct rsem *rsem_new(const char *url, const char *name, uint32_t limit, int64_t lease_ms)
{
    static const char *const keys[] = {"permits", "queue", "clients", "state"};
    struct rsem *sem = calloc(1, sizeof *sem);
    if (sem == NULL)
        return NULL;
    if (!connection_init(&sem->connection, url)) {
        free(sem);
        return NULL;
    }
    snprintf(sem->name, sizeof sem->name, "%s", name);
    for (int i = 0; i < 4; i++)
        snprintf(sem->keys[i], sizeof sem->keys[i], "sem:{%s}:%s", sem->name, keys[i]);
    snprintf(sem->limit, sizeof sem->limit, "%" PRIu32, limit);
    sem->limit_number = limit;
    sem->lease_ms = lease_ms;
    sem->declared_before = -1;
    return sem;
}

void rsem_free(struct rsem *sem)
{
    if (sem == NULL)
        return;
    connection_end(&sem->connection);
    free(sem);
}

const char *rsem_error(const struct rsem *sem)
{
    return sem->connection.error;
}

int64_t rsem_declared_before(const struct rsem *sem)
{
    return sem->declared_before;
}

int64_t rsem_expires_in(const struct rsem_permit *permit)
{
    int64_t left = permit->end - now_ms();
    return left > 0 ? left : 0;
}

static enum rsem_status fail(struct rsem *sem, const char *error)
{
    snprintf(sem->connection.error, sizeof sem->connection.error, "%s", error);
    return RSEM_ERROR;
}

/* Pauses before a retry. Returns another status than RSEM_OK if the call must not be retried. */
static enum rsem_status pause_before_repeating(struct rsem *sem, const struct bounds *bounds,
                                               int64_t give_up)
{
    struct pollfd fd = {.fd = bounds->cancel_fd, .events = POLLIN};
    int64_t now = now_ms();
    if (!connection_may_pass(&sem->connection))
        return RSEM_ERROR;
    if (bounds->until >= 0 && now >= bounds->until)
        return RSEM_TIMEOUT;
    if (now >= give_up)
        return RSEM_ERROR;
    connection_close(&sem->connection);
    return poll(&fd, 1, PAUSE_MS) > 0 ? RSEM_CANCELLED : RSEM_OK;
}

/* Calls a script, with retries while Redis is unavailable. A repeated call has no further effect. `count` is the
 * number of integers in the reply. */
static enum rsem_status call(struct rsem *sem, const struct bounds *bounds, struct answer *answer,
                             size_t count, const char *script, const char *const arguments[])
{
    const char *words[24] = {"4", sem->keys[0], sem->keys[1], sem->keys[2], sem->keys[3]};
    int number = 5;
    while (*arguments != NULL)
        words[number++] = *arguments++;

    enum rsem_status status = RSEM_OK;
    answer->sent = now_ms();
    answer->repeated = false;
    while (status == RSEM_OK) {
        redisReply *reply = connection_script(&sem->connection, script, number, words);
        if (reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->elements == count) {
            for (size_t i = 0; i < count; i++)
                answer->reply[i] = reply->element[i]->integer;
            freeReplyObject(reply);
            return RSEM_OK;
        }
        if (reply != NULL) {
            fail(sem, reply->type == REDIS_REPLY_ERROR ? reply->str : "ERR the reply has another format");
            freeReplyObject(reply);
        }
        status = pause_before_repeating(sem, bounds, answer->sent + bounds->patience);
        answer->repeated = true;
    }
    return status;
}

/* Reports a wrong name. Bytes that are not printable ASCII appear as \xe4. */
static enum rsem_status fail_name(struct rsem *sem)
{
    char found[4 * 64 + 1] = "";
    size_t size = 0;
    for (const char *c = sem->name; *c != '\0' && size + 4 < sizeof found; c++)
        size += (size_t)snprintf(found + size, sizeof found - size,
                                 isprint((unsigned char)*c) ? "%c" : "\\x%02x", (unsigned char)*c);
    snprintf(sem->connection.error, sizeof sem->connection.error,
             "a name must have 1 to %d bytes of UTF-8, without braces and control characters, not %s\"%s\"",
             MAX_NAME, strlen(sem->name) > MAX_NAME ? "more, as in " : "", found);
    return RSEM_ERROR;
}

static enum rsem_status fail_number(struct rsem *sem, const char *rule, int64_t found)
{
    snprintf(sem->connection.error, sizeof sem->connection.error, "%s, not %" PRId64, rule, found);
    return RSEM_ERROR;
}

static enum rsem_status check(struct rsem *sem, int64_t timeout_ms)
{
    size_t length = strlen(sem->name);
    bool sound = length >= 1 && length <= MAX_NAME && is_utf8(sem->name, length);
    for (const char *c = sem->name; *c != '\0'; c++)
        sound = sound && (unsigned char)*c >= ' ' && *c != 0x7f && *c != '{' && *c != '}';
    if (!sound)
        return fail_name(sem);
    if (sem->lease_ms < 1 || sem->lease_ms > MAX_LEASE_MS)
        return fail_number(sem, "a lease must be a number from 1 to 604800000", sem->lease_ms);
    if (timeout_ms > MAX_TIMEOUT_MS)
        return fail_number(sem, "a timeout must be a number up to 9007199254740991", timeout_ms);
    return RSEM_OK;
}

/* Generates an ID. Each request has its own client and channel, so its messages concern no other permit. */
static enum rsem_status start(struct rsem *sem, struct rsem_permit *permit)
{
    char host[65] = ""; /* the longest name has 64 bytes */
    uint64_t random[3];
    *permit = (struct rsem_permit){.sem = sem};
    if (gethostname(host, sizeof host) != 0 || getentropy(random, sizeof random) != 0)
        return fail(sem, "the system returned no host name or no random number");
    for (char *c = host; *c != '\0'; c++)
        if (!isalnum((unsigned char)*c) && strchr("._-", *c) == NULL)
            *c = '-';
    snprintf(permit->id, sizeof permit->id,
             "P:%s.%ld.%016" PRIx64 ":1:%" PRId64 ":%016" PRIx64 "%016" PRIx64, host, (long)getpid(),
             random[0], sem->lease_ms, random[1], random[2]);
    sem->connection.error[0] = '\0';
    return RSEM_OK;
}

/* Calls wake until the server has no more work. Sets `wake_in` to the last value. */
static enum rsem_status serve(struct rsem *sem, const struct bounds *bounds, int64_t *wake_in)
{
    const char *none[] = {NULL};
    struct answer answer;
    enum rsem_status status = RSEM_OK;
    while (status == RSEM_OK && *wake_in == 0) {
        status = call(sem, bounds, &answer, 3, "wake", none);
        if (status == RSEM_OK)
            *wake_in = answer.reply[1];
    }
    return status;
}

/* Does the same after a successful reply, and ignores errors. Nothing is retried, because the waiters call wake,
 * too. */
static void serve_others(struct rsem *sem, int64_t wake_in)
{
    struct bounds once = {.patience = 0, .until = -1, .cancel_fd = -1};
    serve(sem, &once, &wake_in);
}

/* Returns until when the lease is certainly valid. The server counts in whole ms. */
static int64_t end_after(const struct rsem *sem, int64_t sent)
{
    return sent + sem->lease_ms - 1;
}

/* Sends a request. RSEM_OK: granted. RSEM_NO_PERMIT: not granted, or queued. */
static enum rsem_status ask(struct rsem *sem, const struct bounds *bounds, const char *place,
                            struct rsem_permit *permit, struct answer *answer)
{
    int64_t give_up = now_ms() + bounds->patience;
    enum rsem_status status = RSEM_OK;
    while (status == RSEM_OK) {
        const char *arguments[] = {sem->declared ? "declare_if_unset" : "declare", sem->limit, HEARTBEAT_TIMEOUT,
                                   permit->id, place, NULL};
        status = call(sem, bounds, answer, 6, "acquire", arguments);
        if (status != RSEM_OK)
            break;
        if (!sem->declared && answer->reply[2] != sem->limit_number)
            sem->declared_before = answer->reply[2];
        sem->declared = true;
        int64_t code = answer->reply[3];
        if (code != 1) {
            bool more = answer->reply[1] == 0;
            status = serve(sem, bounds, &answer->reply[1]);
            if (code == 0 && more)
                continue; /* A permit may be free now. */
            return status == RSEM_OK ? RSEM_NO_PERMIT : status;
        }
        serve_others(sem, answer->reply[1]);
        permit->fencing_token = answer->reply[4];
        permit->end = end_after(sem, answer->sent);
        if (rsem_expires_in(permit) > 0)
            break;
        /* The retry restarts the lease. */
        fail(sem, "the lease expired before the reply arrived: use a longer lease");
        status = pause_before_repeating(sem, bounds, give_up);
    }
    return status;
}

/* Releases a permit. `sent` is whether an earlier release failed, but may have reached the server. */
static enum rsem_status give_back(struct rsem *sem, const char *id, int64_t left, int64_t patience,
                                  bool *sent)
{
    bool repeated = *sent, held;
    struct answer answer;
    struct bounds bounds = {.patience = patience, .until = -1, .cancel_fd = -1};
    const char *arguments[] = {"return", id, NULL};
    *sent = true;
    if (call(sem, &bounds, &answer, 3, "release", arguments) != RSEM_OK)
        return RSEM_ERROR;
    /* If a reply was lost, the retry returns "unknown", because the first attempt released the permit. */
    held = left > 0 && (answer.reply[2] != 0 || answer.repeated || repeated);
    *sent = false;
    serve_others(sem, answer.reply[1]);
    return held ? RSEM_OK : RSEM_LOST;
}

/* Releases a request or permit without a caller, and keeps the status and the error. If the release fails, the
 * request or permit expires. */
static enum rsem_status give_up(struct rsem *sem, const char *id, enum rsem_status status)
{
    char error[sizeof sem->connection.error];
    bool sent = false;
    memcpy(error, sem->connection.error, sizeof error);
    give_back(sem, id, 0, GIVE_BACK_MS, &sent);
    memcpy(sem->connection.error, error, sizeof error);
    return status;
}

static int64_t ask_time(const struct answer *asked)
{
    return asked->sent + ASK_EVERY_MS;
}

/* Returns when to call wake, or when the heartbeat is due. The server chooses the client that calls wake. */
static int64_t wake_time(const struct answer *asked, int64_t wake_in)
{
    int64_t time = now_ms() + wake_in;
    return wake_in >= 0 && time < ask_time(asked) ? time : ask_time(asked);
}

/* Returns the line of the ID in a message, or a line without an ID. Releases other permits that the client was
 * granted. */
static struct message_line read_message(struct rsem *sem, const char *id, const redisReply *text)
{
    struct message_line line, found = {0};
    const char *end = text->str + text->len;
    size_t size = strlen(id), own = strcspn(id + 2, ":") + 3;
    for (const char *at = message_lines(text->str, text->len, sem->name); at != end;) {
        char other[256] = "";
        at = message_next(at, end, &line);
        if (line.size == size && memcmp(line.id, id, size) == 0) {
            found = line;
        } else if (line.token > 0 && line.size > own && line.size < sizeof other &&
                   memcmp(line.id, id, own) == 0) {
            memcpy(other, line.id, line.size);
            give_up(sem, other, RSEM_OK);
        }
    }
    return found;
}

/* Waits for a grant message. RSEM_NO_PERMIT: the next heartbeat is due. */
static enum rsem_status wait_for_message(struct rsem *sem, const struct bounds *bounds,
                                         struct listener *listener, const struct answer *asked,
                                         struct rsem_permit *permit)
{
    int64_t wake_at = wake_time(asked, asked->reply[1]);
    for (;;) {
        redisReply *message = NULL;
        struct message_line told = {0};
        bool ends = bounds->until >= 0 && bounds->until < wake_at;
        switch (listener_next(listener, ends ? bounds->until : wake_at, bounds->cancel_fd, &message)) {
        case HEARD_MESSAGE:
            told = read_message(sem, permit->id, message->element[2]);
            freeReplyObject(message);
            break;
        case HEARD_CANCEL:
            return RSEM_CANCELLED;
        case HEARD_END:
            listener_end(listener);
            return RSEM_NO_PERMIT;
        case HEARD_NOTHING:
            break;
        }
        int64_t now = now_ms();
        /* An earlier grant was lost before the server returned "queued", so its message is stale. */
        if (told.id != NULL && (told.token == 0 || told.end - sem->lease_ms >= asked->reply[0])) {
            /* Another acquire returns why the request was removed. If half of the lease may be over,
             * another acquire restarts it. */
            if (told.token == 0 || now - asked->sent >= sem->lease_ms / 2)
                return RSEM_NO_PERMIT;
            permit->fencing_token = told.token;
            permit->end = end_after(sem, asked->sent);
            return RSEM_OK;
        }
        if (bounds->until >= 0 && now >= bounds->until)
            return RSEM_TIMEOUT;
        if (now >= ask_time(asked))
            return RSEM_NO_PERMIT;
        if (now >= wake_at) {
            int64_t wake_in = 0;
            enum rsem_status status = serve(sem, bounds, &wake_in);
            if (status != RSEM_OK)
                return status;
            wake_at = wake_time(asked, wake_in);
        }
    }
}

/* Subscribes. The server skips requests of a client that is not subscribed, so this comes first. */
static enum rsem_status listen(struct rsem *sem, const struct bounds *bounds,
                               struct listener *listener, const char *id)
{
    char channel[160];
    int64_t give_up = now_ms() + bounds->patience;
    enum rsem_status status = RSEM_OK;
    snprintf(channel, sizeof channel, "sem:wake:%.*s", (int)strcspn(id + 2, ":"), id + 2);
    while (status == RSEM_OK && listener->context == NULL &&
           !listener_start(listener, &sem->connection, "SUBSCRIBE", channel))
        status = pause_before_repeating(sem, bounds, give_up);
    return status;
}

static enum rsem_status wait_in_queue(struct rsem *sem, const struct bounds *bounds,
                                      struct rsem_permit *permit)
{
    char place[24] = "wait";
    struct listener listener = {0};
    enum rsem_status status = RSEM_NO_PERMIT;
    while (status == RSEM_NO_PERMIT) {
        struct answer asked;
        status = listen(sem, bounds, &listener, permit->id);
        if (status == RSEM_OK)
            status = ask(sem, bounds, place, permit, &asked);
        if (status != RSEM_NO_PERMIT)
            break;
        snprintf(place, sizeof place, "%" PRId64, asked.reply[4]);
        /* After a failover, a new connection may lead to another server. */
        if (listener.made == sem->connection.made && listener_check(&listener))
            status = wait_for_message(sem, bounds, &listener, &asked, permit);
        else
            listener_end(&listener);
    }
    listener_end(&listener);
    return status;
}

static enum rsem_status acquire(struct rsem *sem, bool waits, int64_t timeout_ms, int cancel_fd,
                                struct rsem_permit *permit)
{
    struct bounds bounds = {.patience = PATIENCE_MS, .until = -1, .cancel_fd = cancel_fd};
    struct answer answer;
    enum rsem_status status = check(sem, timeout_ms);
    if (status == RSEM_OK)
        status = start(sem, permit);
    if (status != RSEM_OK)
        return status;
    if (timeout_ms >= 0)
        bounds.until = now_ms() + timeout_ms;
    /* Usually a permit is free. Then no subscription is needed. */
    status = ask(sem, &bounds, "try", permit, &answer);
    if (status == RSEM_NO_PERMIT && waits)
        status = wait_in_queue(sem, &bounds, permit);
    return status == RSEM_OK || status == RSEM_NO_PERMIT ? status : give_up(sem, permit->id, status);
}

enum rsem_status rsem_try_acquire(struct rsem *sem, struct rsem_permit *permit)
{
    return acquire(sem, false, -1, -1, permit);
}

enum rsem_status rsem_acquire(struct rsem *sem, int64_t timeout_ms, int cancel_fd,
                              struct rsem_permit *permit)
{
    return acquire(sem, true, timeout_ms, cancel_fd, permit);
}

enum rsem_status rsem_release(struct rsem *sem, struct rsem_permit *permit)
{
    int64_t left = rsem_expires_in(permit);
    if (permit->sem != sem)
        return fail(sem, "the permit belongs to another semaphore");
    return give_back(sem, permit->id, left, left < PATIENCE_MS ? left : PATIENCE_MS,
                     &permit->release_sent);
}
