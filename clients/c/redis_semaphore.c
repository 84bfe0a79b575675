#include "redis_semaphore.h"

#include <ctype.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "connection.h"

enum {
    LIVENESS_MS = 15000, /* the server passes over a waiter that was silent for so long */
    ASK_EVERY_MS = LIVENESS_MS / 3,
    PATIENCE_MS = 30000, /* how long a call is repeated while Redis is away */
    PAUSE_MS = 200,
    MAX_NAME = 512,
    MAX_MESSAGE = 1048576
};
#define LIVENESS "15000"

struct rsem {
    struct connection connection;
    char name[MAX_NAME + 1];
    char keys[4][MAX_NAME + 32];
    char limit[24], lease[24];
    int64_t lease_ms;
    int64_t declared_before;
    bool declared;
};

struct answer {
    int64_t reply[6];
    int64_t sent;  /* before the request was */
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

/* Whether a call may go well when it is repeated. An error of the server begins with a word in
 * upper case, what this client or its library says does not. */
static bool may_pass(const char *error)
{
    static const char *const passing[] = {"LOADING ",     "BUSY ",       "TRYAGAIN ",
                                          "CLUSTERDOWN ", "MASTERDOWN ", "READONLY "};
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++)
        if (strncmp(error, passing[i], strlen(passing[i])) == 0)
            return true;
    return islower((unsigned char)error[0]) && strncmp(error, "a URL", 5) != 0;
}

/* Waits before a call is repeated. False: it is not to be. */
static bool pause_before_repeating(struct rsem *sem, int64_t give_up, int cancel_fd)
{
    struct pollfd fd = {.fd = cancel_fd, .events = POLLIN};
    if (!may_pass(sem->connection.error) || now_ms() >= give_up)
        return false;
    connection_close(&sem->connection);
    return poll(&fd, 1, PAUSE_MS) <= 0;
}

/* Calls a script, again and again while Redis is away: each may be called twice. `count` is how many
 * integers it replies. */
static enum rsem_status call(struct rsem *sem, int64_t patience, int cancel_fd,
                             struct answer *answer, size_t count, const char *script,
                             const char *const arguments[])
{
    const char *words[24] = {"4", sem->keys[0], sem->keys[1], sem->keys[2], sem->keys[3]};
    int number = 5;
    while (*arguments != NULL)
        words[number++] = *arguments++;

    int64_t give_up = now_ms() + patience;
    answer->repeated = false;
    for (;;) {
        answer->sent = now_ms();
        redisReply *reply = connection_script(&sem->connection, script, number, words);
        if (reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->elements == count) {
            for (size_t i = 0; i < count; i++)
                answer->reply[i] = reply->element[i]->integer;
            freeReplyObject(reply);
            return RSEM_OK;
        }
        if (reply != NULL) {
            snprintf(sem->connection.error, sizeof sem->connection.error, "%s",
                     reply->type == REDIS_REPLY_ERROR ? reply->str : "ERR a reply of another form");
            freeReplyObject(reply);
        }
        if (!pause_before_repeating(sem, give_up, cancel_fd))
            return RSEM_ERROR;
        answer->repeated = true;
    }
}

static enum rsem_status declare_limit(struct rsem *sem, int cancel_fd)
{
    struct answer answer;
    if (sem->declared)
        return RSEM_OK;
    bool sound = sem->name[0] != '\0';
    for (const char *c = sem->name; *c != '\0'; c++)
        sound = sound && !iscntrl((unsigned char)*c) && *c != '{' && *c != '}';
    if (!sound) {
        snprintf(sem->connection.error, sizeof sem->connection.error,
                 "a name has 1 to 512 bytes, no { and }, and no control characters");
        return RSEM_ERROR;
    }
    const char *arguments[] = {"declare", sem->limit, NULL};
    enum rsem_status status = call(sem, PATIENCE_MS, cancel_fd, &answer, 6, "limit", arguments);
    if (status == RSEM_OK) {
        sem->declared = true;
        if (answer.reply[5] != answer.reply[4])
            sem->declared_before = answer.reply[5];
    }
    return status;
}

static bool random_word(char word[33])
{
    unsigned char bytes[16];
    if (getentropy(bytes, sizeof bytes) != 0)
        return false;
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(word + 2 * i, 3, "%02x", bytes[i]);
    return true;
}

static enum rsem_status start(struct rsem *sem, int cancel_fd, struct rsem_permit *permit)
{
    char host[65] = "", word[33];
    *permit = (struct rsem_permit){0};
    if (gethostname(host, sizeof host - 1) != 0 || !random_word(word)) {
        snprintf(sem->connection.error, sizeof sem->connection.error,
                 "the system tells no host name or no random number");
        return RSEM_ERROR;
    }
    snprintf(permit->id, sizeof permit->id, "%s:%ld:%s", host, (long)getpid(), word);
    return declare_limit(sem, cancel_fd);
}

/* RSEM_OK: granted; RSEM_REFUSED: refused, or queued. */
static enum rsem_status ask(struct rsem *sem, int cancel_fd, const char *address, const char *wake,
                            const char *place, struct rsem_permit *permit, struct answer *answer)
{
    const char *arguments[] = {"declared", sem->limit, address,    wake,  LIVENESS,
                               permit->id, "1",        sem->lease, place, NULL};
    enum rsem_status status =
        call(sem, PATIENCE_MS, cancel_fd, answer, 5, "acquire", arguments);
    /* Granted, or queued and the lease may begin at any time from now on, or nobody knows. */
    permit->end = answer->sent + sem->lease_ms;
    if (status != RSEM_OK)
        return status;
    if (answer->reply[2] != 1)
        return RSEM_REFUSED;
    permit->token = answer->reply[3];
    return RSEM_OK;
}

/* Gives back what was asked for in vain, and keeps the status and the error. */
static enum rsem_status give_up(struct rsem *sem, struct rsem_permit *permit,
                                enum rsem_status status)
{
    char error[sizeof sem->connection.error];
    memcpy(error, sem->connection.error, sizeof error);
    rsem_release(sem, permit);
    memcpy(sem->connection.error, error, sizeof error);
    return status;
}

/* A number of at most 16 digits and below 2^53, or -1. */
static int64_t read_number(const char **at, const char *end)
{
    int64_t number = 0;
    const char *begin = *at;
    while (*at < end && isdigit((unsigned char)**at) && *at - begin < 16)
        number = 10 * number + (*(*at)++ - '0');
    return *at > begin && number < INT64_C(1) << 53 ? number : -1;
}

/* Whether the message tells of a request, and what. One that no script sends tells of none. */
static bool read_message(const char *text, size_t size, const char *name, const char *id,
                         int64_t *token, int64_t *lease_end)
{
    json_t *utf8 = size <= MAX_MESSAGE ? json_stringn(text, size) : NULL;
    if (utf8 == NULL)
        return false;
    json_decref(utf8);
    const char *end = text + size;
    if (size < strlen(name) || memcmp(text, name, strlen(name)) != 0)
        return false;
    bool found = false;
    for (const char *at = text + strlen(name); at < end;) {
        const char *begin = at + 1;
        const char *blank = *at == '\n' ? memchr(begin, ' ', (size_t)(end - begin)) : NULL;
        if (blank == NULL || blank == begin)
            return false;
        at = blank + 1;
        int64_t its_token = read_number(&at, end);
        if (its_token < 0 || at == end || *at++ != ' ')
            return false;
        int64_t its_end = read_number(&at, end);
        if (its_end < 0)
            return false;
        if ((size_t)(blank - begin) == strlen(id) && memcmp(begin, id, strlen(id)) == 0) {
            *token = its_token;
            *lease_end = its_end;
            found = true;
        }
    }
    return found;
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
static enum rsem_status wait_for_message(struct rsem *sem, struct listener *listener, int64_t until,
                                         int cancel_fd, const struct answer *asked,
                                         struct rsem_permit *permit)
{
    int64_t ask_at = asked->sent + ASK_EVERY_MS;
    int64_t wake_at = wake_time(asked->reply[1], asked->reply[4]);
    for (;;) {
        redisReply *message = NULL;
        int64_t token = 0, end = 0;
        bool told = false;
        switch (listener_next(listener, earlier(earlier(ask_at, wake_at), until), cancel_fd,
                              &message)) {
        case HEARD_MESSAGE:
            told = read_message(message->element[2]->str, message->element[2]->len, sem->name,
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
            return RSEM_OK;
        }
        if (until >= 0 && now >= until)
            return RSEM_TIMEOUT;
        if (now >= ask_at)
            return RSEM_REFUSED;
        if (wake_at >= 0 && now >= wake_at) {
            struct answer answer;
            const char *arguments[] = {NULL};
            if (call(sem, PATIENCE_MS, cancel_fd, &answer, 3, "wake", arguments) != RSEM_OK)
                return RSEM_ERROR;
            wake_at = wake_time(answer.reply[1], asked->reply[4]);
        }
    }
}

static enum rsem_status listen_again(struct rsem *sem, struct listener *listener, int cancel_fd,
                                     const char *address)
{
    int64_t give_up = now_ms() + PATIENCE_MS;
    while (!listener_start(listener, &sem->connection, "SUBSCRIBE", address))
        if (!pause_before_repeating(sem, give_up, cancel_fd))
            return RSEM_ERROR;
    return RSEM_OK;
}

static enum rsem_status wait_in_queue(struct rsem *sem, int64_t until, int cancel_fd,
                                      struct rsem_permit *permit)
{
    char address[64] = "sem:wake:", place[24] = "wait";
    struct listener listener = {0};
    enum rsem_status status = RSEM_REFUSED;
    /* Hard to guess, as who knows it could send messages to it. */
    if (!random_word(address + strlen(address)))
        return RSEM_ERROR;
    while (status == RSEM_REFUSED) {
        struct answer asked;
        /* Who is not heard listening when its turn comes is taken for gone. So listen first, ask
         * then. */
        if (listener.context == NULL) {
            status = listen_again(sem, &listener, cancel_fd, address);
            if (status != RSEM_OK)
                break;
        }
        status = ask(sem, cancel_fd, address, "publish", place, permit, &asked);
        if (status != RSEM_REFUSED)
            break;
        snprintf(place, sizeof place, "%" PRId64, asked.reply[3]);
        if (listener_check(&listener))
            status = wait_for_message(sem, &listener, until, cancel_fd, &asked, permit);
        else
            listener_end(&listener);
    }
    listener_end(&listener);
    return status;
}

enum rsem_status rsem_try(struct rsem *sem, struct rsem_permit *permit)
{
    struct answer answer;
    enum rsem_status status = start(sem, -1, permit);
    if (status != RSEM_OK)
        return status;
    status = ask(sem, -1, "none", "poll", "try", permit, &answer);
    return status == RSEM_ERROR ? give_up(sem, permit, status) : status;
}

enum rsem_status rsem_acquire(struct rsem *sem, int64_t timeout_ms, int cancel_fd,
                              struct rsem_permit *permit)
{
    struct answer answer;
    int64_t until = timeout_ms >= 0 ? now_ms() + timeout_ms : -1;
    enum rsem_status status = start(sem, cancel_fd, permit);
    if (status != RSEM_OK)
        return status;
    /* Most of the time nobody waits. Then there is no need to listen. */
    status = ask(sem, cancel_fd, "none", "poll", "try", permit, &answer);
    if (status == RSEM_REFUSED)
        status = wait_in_queue(sem, until, cancel_fd, permit);
    return status == RSEM_OK ? RSEM_OK : give_up(sem, permit, status);
}

enum rsem_status rsem_release(struct rsem *sem, const struct rsem_permit *permit)
{
    struct answer answer, served;
    int64_t left = rsem_left(permit);
    const char *arguments[] = {"return", permit->id, NULL}, *none[] = {NULL};
    /* Again and again until the lease has ended anyway. */
    if (call(sem, left, -1, &answer, 3, "release", arguments) != RSEM_OK)
        return RSEM_ERROR;
    served = answer;
    while (served.reply[1] == 0) /* There is more to do than the server does in one call. */
        if (call(sem, PATIENCE_MS, -1, &served, 3, "wake", none) != RSEM_OK)
            return RSEM_ERROR;
    /* Where a reply was lost, the second one is "unknown", since the first try found the permit. */
    return left > 0 && (answer.reply[2] != 0 || answer.repeated) ? RSEM_OK : RSEM_LOST;
}
