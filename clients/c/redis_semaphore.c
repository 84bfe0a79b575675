#include "redis_semaphore.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "connection.h"
#include "message.h"

enum {
    LIVENESS_MS = 15000, /* the server passes over a waiter that was silent for so long */
    ASK_EVERY_MS = LIVENESS_MS / 3,
    PATIENCE_MS = 30000, /* how long a call is repeated while Redis is away */
    GIVE_BACK_MS = 2000, /* and how long giving back what did not become a permit */
    PAUSE_MS = 200,
    MAX_NAME = 512,
    MAX_LEASE_MS = 604800000
};
#define LIVENESS "15000"
#define MAX_TIMEOUT_MS ((INT64_C(1) << 53) - 1)

struct rsem {
    struct connection connection;
    char name[MAX_NAME + 1];
    char keys[4][MAX_NAME + 32];
    char limit[24], lease[24];
    int64_t lease_ms;
    int64_t declared_before;
    bool declared;
};

/* How long a call is repeated while Redis is away, and what ends that earlier. */
struct bounds {
    int64_t patience;
    int64_t until; /* -1: it has the time that it takes */
    int cancel_fd; /* -1: nobody cancels it */
};

struct answer {
    int64_t reply[6];
    int64_t sent;  /* before the request was, for the first time */
    bool repeated; /* an earlier try may have been done as well */
};

struct rsem *rsem_new(const char *url, const char *name, uint32_t limit, int64_t lease_ms)
{
    static const char *const keys[] = {"permits", "queue", "waiting", "state"};
    struct rsem *sem = calloc(1, sizeof *sem);
    if (sem == NULL)
        return NULL;
    if (!connection_init(&sem->connection, url)) {
        free(sem);
        return NULL;
    }
    /* A name that is too long is refused by the first call, as an empty one is. */
    snprintf(sem->name, sizeof sem->name, "%s", strlen(name) > MAX_NAME ? "" : name);
    for (int i = 0; i < 4; i++)
        snprintf(sem->keys[i], sizeof sem->keys[i], "sem:{%s}:%s", sem->name, keys[i]);
    snprintf(sem->limit, sizeof sem->limit, "%" PRIu32, limit);
    snprintf(sem->lease, sizeof sem->lease, "%" PRId64, lease_ms);
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

int64_t rsem_left(const struct rsem_permit *permit)
{
    int64_t left = permit->end - now_ms();
    return left > 0 ? left : 0;
}

static enum rsem_status fail(struct rsem *sem, const char *error)
{
    snprintf(sem->connection.error, sizeof sem->connection.error, "%s", error);
    return RSEM_ERROR;
}

/* Waits before a call is repeated. Others than RSEM_OK: it is not to be. */
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

/* Calls a script, again and again while Redis is away: each may be called twice. `count` is how many
 * integers it replies. */
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
            fail(sem, reply->type == REDIS_REPLY_ERROR ? reply->str : "ERR a reply of another form");
            freeReplyObject(reply);
        }
        status = pause_before_repeating(sem, bounds, answer->sent + bounds->patience);
        answer->repeated = true;
    }
    return status;
}

static enum rsem_status check(struct rsem *sem, int64_t timeout_ms)
{
    bool sound = sem->name[0] != '\0' && is_utf8(sem->name, strlen(sem->name));
    for (const char *c = sem->name; *c != '\0'; c++)
        sound = sound && (unsigned char)*c >= ' ' && *c != 0x7f && *c != '{' && *c != '}';
    if (!sound)
        return fail(sem, "a name has 1 to 512 bytes of UTF-8, no { and }, and no control characters");
    if (sem->lease_ms < 1 || sem->lease_ms > MAX_LEASE_MS)
        return fail(sem, "a lease is a number from 1 to 604800000");
    if (timeout_ms > MAX_TIMEOUT_MS)
        return fail(sem, "a timeout is a number up to 9007199254740991");
    return RSEM_OK;
}

static enum rsem_status declare_limit(struct rsem *sem, const struct bounds *bounds)
{
    struct answer answer;
    if (sem->declared)
        return RSEM_OK;
    const char *arguments[] = {"declare", sem->limit, NULL};
    enum rsem_status status = call(sem, bounds, &answer, 6, "limit", arguments);
    if (status == RSEM_OK) {
        sem->declared = true;
        if (answer.reply[5] != answer.reply[4])
            sem->declared_before = answer.reply[5];
    }
    return status;
}

static enum rsem_status random_word(struct rsem *sem, char word[33])
{
    unsigned char bytes[16];
    if (getentropy(bytes, sizeof bytes) != 0)
        return fail(sem, "the system has no random number");
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(word + 2 * i, 3, "%02x", bytes[i]);
    return RSEM_OK;
}

static enum rsem_status start(struct rsem *sem, const struct bounds *bounds,
                              struct rsem_permit *permit)
{
    char host[65] = "", word[33];
    *permit = (struct rsem_permit){0};
    if (gethostname(host, sizeof host - 1) != 0)
        return fail(sem, "the system tells no host name");
    if (random_word(sem, word) != RSEM_OK)
        return RSEM_ERROR;
    snprintf(permit->id, sizeof permit->id, "%s:%ld:%s", host, (long)getpid(), word);
    return declare_limit(sem, bounds);
}

/* RSEM_OK: granted; RSEM_REFUSED: refused, or queued. */
static enum rsem_status ask(struct rsem *sem, const struct bounds *bounds, const char *address,
                            const char *wake, const char *place, struct rsem_permit *permit,
                            struct answer *answer)
{
    const char *arguments[] = {"declared", sem->limit, address,    wake,  LIVENESS,
                               permit->id, "1",        sem->lease, place, NULL};
    int64_t give_up = now_ms() + bounds->patience;
    enum rsem_status status = RSEM_OK;
    while (status == RSEM_OK) {
        status = call(sem, bounds, answer, 5, "acquire", arguments);
        if (status != RSEM_OK)
            break;
        if (answer->reply[2] != 1)
            return RSEM_REFUSED;
        permit->token = answer->reply[3];
        permit->end = answer->sent + sem->lease_ms;
        if (rsem_left(permit) > 0)
            return RSEM_OK;
        /* Asking again begins the lease anew. */
        fail(sem, "answers come later than the lease, which has ended");
        status = pause_before_repeating(sem, bounds, give_up);
    }
    return status;
}

static enum rsem_status give_back(struct rsem *sem, const char *id, int64_t left, int64_t patience)
{
    struct answer answer, served;
    struct bounds bounds = {.patience = patience, .until = -1, .cancel_fd = -1};
    const char *arguments[] = {"return", id, NULL}, *none[] = {NULL};
    if (call(sem, &bounds, &answer, 3, "release", arguments) != RSEM_OK)
        return RSEM_ERROR;
    served = answer;
    bounds.patience = PATIENCE_MS;
    while (served.reply[1] == 0) /* There is more to do than the server does in one call. */
        if (call(sem, &bounds, &served, 3, "wake", none) != RSEM_OK)
            return RSEM_ERROR;
    /* Where a reply was lost, the second one is "unknown", since the first try found the permit. */
    return left > 0 && (answer.reply[2] != 0 || answer.repeated) ? RSEM_OK : RSEM_LOST;
}

/* Gives back what was asked for in vain, and keeps the status and the error. Where that fails it
 * ends by itself, as nobody asks for it any more. */
static enum rsem_status give_up(struct rsem *sem, const struct rsem_permit *permit,
                                enum rsem_status status)
{
    char error[sizeof sem->connection.error];
    memcpy(error, sem->connection.error, sizeof error);
    give_back(sem, permit->id, 0, GIVE_BACK_MS);
    memcpy(sem->connection.error, error, sizeof error);
    return status;
}

/* When to call wake, or -1. Of those who wait only the first few do, one after the other. */
static int64_t wake_time(int64_t wake_in, int64_t position)
{
    int64_t delay = 20 * (position - 1);
    return wake_in >= 0 && delay < ASK_EVERY_MS ? now_ms() + wake_in + delay : -1;
}

static int64_t earlier(int64_t time, int64_t other)
{
    return other >= 0 && other < time ? other : time;
}

/* RSEM_REFUSED: it is time to ask again. */
static enum rsem_status wait_for_message(struct rsem *sem, const struct bounds *bounds,
                                         struct listener *listener, const struct answer *asked,
                                         struct rsem_permit *permit)
{
    int64_t ask_at = asked->sent + ASK_EVERY_MS;
    int64_t wake_at = wake_time(asked->reply[1], asked->reply[4]);
    for (;;) {
        redisReply *message = NULL;
        int64_t token = 0, end = 0;
        bool told = false;
        switch (listener_next(listener, earlier(earlier(ask_at, wake_at), bounds->until),
                              bounds->cancel_fd, &message)) {
        case HEARD_MESSAGE:
            told = message_read(message->element[2]->str, message->element[2]->len, sem->name,
                                permit->id, &token, &end);
            freeReplyObject(message);
            break;
        case HEARD_CANCEL:
            return RSEM_CANCELLED;
        case HEARD_END:
            listener_end(listener);
            return RSEM_REFUSED;
        case HEARD_NOTHING:
            break;
        }
        int64_t now = now_ms();
        /* Otherwise it was granted before the server said "queued", and lost since: long ago. */
        if (told && (token == 0 || end - sem->lease_ms >= asked->reply[0])) {
            /* Asking tells why it left the queue without a permit. And when half of the lease may
             * be over, asking begins it anew. */
            if (token == 0 || now - asked->sent >= sem->lease_ms / 2)
                return RSEM_REFUSED;
            permit->token = token;
            permit->end = asked->sent + sem->lease_ms;
            return RSEM_OK;
        }
        if (bounds->until >= 0 && now >= bounds->until)
            return RSEM_TIMEOUT;
        if (now >= ask_at)
            return RSEM_REFUSED;
        if (wake_at >= 0 && now >= wake_at) {
            struct answer answer;
            const char *arguments[] = {NULL};
            enum rsem_status status = call(sem, bounds, &answer, 3, "wake", arguments);
            if (status != RSEM_OK)
                return status;
            wake_at = wake_time(answer.reply[1], asked->reply[4]);
        }
    }
}

static enum rsem_status listen_again(struct rsem *sem, const struct bounds *bounds,
                                     struct listener *listener, const char *address)
{
    int64_t give_up = now_ms() + bounds->patience;
    enum rsem_status status = RSEM_OK;
    while (status == RSEM_OK &&
           !listener_start(listener, &sem->connection, "SUBSCRIBE", address))
        status = pause_before_repeating(sem, bounds, give_up);
    return status;
}

static enum rsem_status wait_in_queue(struct rsem *sem, const struct bounds *bounds,
                                      struct rsem_permit *permit)
{
    char address[64] = "sem:wake:", place[24] = "wait";
    struct listener listener = {0};
    enum rsem_status status = RSEM_REFUSED;
    /* Hard to guess, as who knows it could send messages to it. */
    if (random_word(sem, address + strlen(address)) != RSEM_OK)
        return RSEM_ERROR;
    while (status == RSEM_REFUSED) {
        struct answer asked;
        /* Who is not heard listening when its turn comes is taken for gone. So listen first, ask
         * then. */
        if (listener.context == NULL) {
            status = listen_again(sem, bounds, &listener, address);
            if (status != RSEM_OK)
                break;
        }
        status = ask(sem, bounds, address, "publish", place, permit, &asked);
        if (status != RSEM_REFUSED)
            break;
        snprintf(place, sizeof place, "%" PRId64, asked.reply[3]);
        if (listener_check(&listener))
            status = wait_for_message(sem, bounds, &listener, &asked, permit);
        else
            listener_end(&listener);
    }
    listener_end(&listener);
    return status;
}

enum rsem_status rsem_try(struct rsem *sem, struct rsem_permit *permit)
{
    struct bounds bounds = {.patience = PATIENCE_MS, .until = -1, .cancel_fd = -1};
    struct answer answer;
    enum rsem_status status = check(sem, -1);
    if (status == RSEM_OK)
        status = start(sem, &bounds, permit);
    if (status != RSEM_OK)
        return status;
    status = ask(sem, &bounds, "none", "poll", "try", permit, &answer);
    return status == RSEM_ERROR ? give_up(sem, permit, status) : status;
}

enum rsem_status rsem_acquire(struct rsem *sem, int64_t timeout_ms, int cancel_fd,
                              struct rsem_permit *permit)
{
    struct bounds bounds = {.patience = PATIENCE_MS, .until = -1, .cancel_fd = cancel_fd};
    struct answer answer;
    enum rsem_status status = check(sem, timeout_ms);
    if (status == RSEM_OK) {
        bounds.until = timeout_ms >= 0 ? now_ms() + timeout_ms : -1;
        status = start(sem, &bounds, permit);
    }
    if (status != RSEM_OK)
        return status;
    /* Most of the time nobody waits. Then there is no need to listen. */
    status = ask(sem, &bounds, "none", "poll", "try", permit, &answer);
    if (status == RSEM_REFUSED)
        status = wait_in_queue(sem, &bounds, permit);
    return status == RSEM_OK ? RSEM_OK : give_up(sem, permit, status);
}

enum rsem_status rsem_release(struct rsem *sem, const struct rsem_permit *permit)
{
    int64_t left = rsem_left(permit);
    return give_back(sem, permit->id, left, left < PATIENCE_MS ? left : PATIENCE_MS);
}
