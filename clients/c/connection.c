#include "connection.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "url.h"

enum { MAX_WORDS = 4096 };

int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

bool connection_init(struct connection *connection, const char *url)
{
    *connection = (struct connection){.url = strdup(url)};
    return connection->url != NULL;
}

void connection_close(struct connection *connection)
{
    redisFree(connection->context);
    connection->context = NULL;
}

void connection_end(struct connection *connection)
{
    connection_close(connection);
    json_decref(connection->manifest);
    free(connection->url);
}

struct signals {
    sigset_t blocked, pending;
};

static sigset_t only_sigpipe(void)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGPIPE);
    return signals;
}

/* hiredis writes without MSG_NOSIGNAL. If the server has closed the connection, SIGPIPE would end the program, so
 * this thread blocks SIGPIPE during a write. */
static void block_sigpipe(struct signals *before)
{
    sigset_t sigpipe = only_sigpipe();
    sigpending(&before->pending);
    pthread_sigmask(SIG_BLOCK, &sigpipe, &before->blocked);
}

static void unblock_sigpipe(const struct signals *before)
{
    static const struct timespec at_once;
    sigset_t sigpipe = only_sigpipe();
    /* An earlier SIGPIPE belongs to the program. */
    while (!sigismember(&before->pending, SIGPIPE) && sigtimedwait(&sigpipe, NULL, &at_once) < 0 &&
           errno == EINTR)
        continue;
    pthread_sigmask(SIG_SETMASK, &before->blocked, NULL);
}

static redisReply *send_command(redisContext *context, int count, const char *words[])
{
    struct signals before;
    block_sigpipe(&before);
    redisReply *reply = redisCommandArgv(context, count, words, NULL);
    unblock_sigpipe(&before);
    return reply;
}

/* Sends one command while connecting. Returns false with the cause in `error`. */
static bool prepare(redisContext *context, int count, const char *words[], char *error, size_t size)
{
    redisReply *reply = send_command(context, count, words);
    if (reply == NULL) {
        snprintf(error, size, "no reply from Redis: %s", context->errstr);
        return false;
    }
    bool done = reply->type != REDIS_REPLY_ERROR;
    if (!done)
        snprintf(error, size, "%s", reply->str);
    freeReplyObject(reply);
    return done;
}

static redisContext *connect_to(const struct redis_url *url, char *error, size_t size)
{
    struct timeval limit = {.tv_sec = RESPONSE_MS / 1000};
    redisContext *context = redisConnectWithTimeout(url->host, url->port, limit);
    if (context == NULL || context->err != 0) {
        snprintf(error, size, "cannot connect to %s: %s", url->host,
                 context != NULL ? context->errstr : "no memory");
        redisFree(context);
        return NULL;
    }
    redisSetTimeout(context, limit);

    char number[16];
    snprintf(number, sizeof number, "%d", url->database);
    const char *select[] = {"SELECT", number};
    const char *auth[] = {"AUTH", url->user, url->password};
    const char *old_auth[] = {"AUTH", url->password};
    bool has_user = url->user[0] != '\0', has_password = url->password[0] != '\0';
    if ((has_user && !prepare(context, 3, auth, error, size)) ||
        (!has_user && has_password && !prepare(context, 2, old_auth, error, size)) ||
        (url->database != 0 && !prepare(context, 2, select, error, size))) {
        redisFree(context);
        return NULL;
    }
    return context;
}

/* Describes a wrong URL, without any part that may be a password. */
static void describe_wrong_url(const char *url, char *error, size_t size)
{
    static const char rule[] = "a URL must be redis://[[user]:password@]host[:port][/database], not";
    int scheme = (int)strspn(url, "abcdefghijklmnopqrstuvwxyz+");
    if (url[0] == '\0')
        snprintf(error, size, "%s an empty URL", rule);
    else if (strncmp(url + scheme, "://", strlen("://")) != 0)
        snprintf(error, size, "%s a URL that does not begin with redis://", rule);
    else if (strncmp(url, "redis://", strlen("redis://")) != 0)
        snprintf(error, size, "%s a URL that begins with %.*s://", rule, scheme, url);
    else
        snprintf(error, size,
                 "%s a URL whose user, password, host, port or database cannot be read "
                 "(in a password, write %% as %%25)",
                 rule);
}

static redisContext *open_connection(const char *text, char *error, size_t size)
{
    struct redis_url url;
    redisContext *context = NULL;
    if (url_parse(&url, text))
        context = connect_to(&url, error, size);
    else
        describe_wrong_url(text, error, size);
    url_free(&url);
    return context;
}

redisReply *connection_command(struct connection *connection, int count, const char *words[])
{
    /* A forked child needs its own connection. On its parent's connection, replies would be mixed up. */
    if (connection->pid != getpid())
        connection_close(connection);
    connection->pid = getpid();
    if (connection->context == NULL) {
        connection->context =
            open_connection(connection->url, connection->error, sizeof connection->error);
        connection->made++;
    }
    if (connection->context == NULL)
        return NULL;
    redisReply *reply = send_command(connection->context, count, words);
    if (reply == NULL) {
        /* A late reply must not be mistaken for the reply to the next command. */
        snprintf(connection->error, sizeof connection->error, "no reply from Redis: %s",
                 connection->context->errstr);
        connection_close(connection);
    }
    return reply;
}

/* Returns the script's entry in the manifest, or NULL with the cause in `error`. */
static json_t *find_script(struct connection *connection, const char *name)
{
    if (connection->manifest == NULL) {
        json_error_t cause;
        connection->manifest = json_load_file(SEM_MANIFEST, 0, &cause);
        if (connection->manifest == NULL) {
            snprintf(connection->error, sizeof connection->error, "ERR %s: %s", SEM_MANIFEST,
                     cause.text);
            return NULL;
        }
    }
    size_t index;
    json_t *script;
    json_array_foreach(json_object_get(connection->manifest, "scripts"), index, script)
    {
        if (strcmp(json_string_value(json_object_get(script, "name")), name) == 0)
            return script;
    }
    snprintf(connection->error, sizeof connection->error, "ERR the manifest has no script %s", name);
    return NULL;
}

redisReply *connection_script(struct connection *connection, const char *name, int count,
                              const char *words[])
{
    const char *all[MAX_WORDS];
    json_t *script = find_script(connection, name);
    if (script == NULL)
        return NULL;
    if (count > MAX_WORDS - 2) {
        snprintf(connection->error, sizeof connection->error, "ERR too many arguments");
        return NULL;
    }
    memcpy(all + 2, words, (size_t)count * sizeof *words);
    all[0] = "EVALSHA";
    all[1] = json_string_value(json_object_get(script, "sha1"));
    redisReply *reply = connection_command(connection, count + 2, all);
    if (reply != NULL && reply->type == REDIS_REPLY_ERROR &&
        strncmp(reply->str, "NOSCRIPT ", strlen("NOSCRIPT ")) == 0) {
        freeReplyObject(reply);
        all[0] = "EVAL";
        all[1] = json_string_value(json_object_get(script, "source"));
        reply = connection_command(connection, count + 2, all);
    }
    return reply;
}

bool connection_may_pass(const struct connection *connection)
{
    const char *error = connection->error;
    static const char *const passing[] = {"LOADING ",     "BUSY ",       "TRYAGAIN ",
                                          "CLUSTERDOWN ", "MASTERDOWN ", "NOREPLICAS ",
                                          "READONLY ",    "ERR max number of clients "};
    static const char prefix[] = "ERR Error running script ";
    /* An error of the server begins with a word in upper case. Other errors do not. */
    if (islower((unsigned char)error[0]))
        return strncmp(error, "a URL", 5) != 0;
    /* Redis 6.2 adds a prefix to the errors of commands in scripts. */
    const char *met = strncmp(error, prefix, strlen(prefix)) == 0 ? strstr(error, ": -") : NULL;
    if (met != NULL)
        error = met + strlen(": -");
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++)
        if (strncmp(error, passing[i], strlen(passing[i])) == 0)
            return true;
    return false;
}

bool listener_start(struct listener *listener, struct connection *connection, const char *command,
                    const char *channel)
{
    listener_end(listener);
    listener->made = connection->made;
    listener->context =
        open_connection(connection->url, connection->error, sizeof connection->error);
    const char *words[] = {command, channel};
    if (listener->context != NULL &&
        !prepare(listener->context, 2, words, connection->error, sizeof connection->error))
        listener_end(listener);
    return listener->context != NULL;
}

void listener_end(struct listener *listener)
{
    redisFree(listener->context);
    *listener = (struct listener){0};
}

static bool is_message(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 &&
           (strcmp(reply->element[0]->str, "message") == 0 ||
            strcmp(reply->element[0]->str, "smessage") == 0);
}

enum heard listener_next(struct listener *listener, int64_t until, int cancel_fd,
                         redisReply **message)
{
    for (;;) {
        redisReply *reply = NULL;
        if (redisGetReplyFromReader(listener->context, (void **)&reply) != REDIS_OK)
            return HEARD_END;
        if (reply != NULL) {
            listener->pinged = false;
            if (is_message(reply)) {
                *message = reply;
                return HEARD_MESSAGE;
            }
            freeReplyObject(reply);
            continue;
        }
        int64_t left = until - now_ms();
        if (left < 0)
            left = 0;
        struct pollfd fds[] = {{.fd = listener->context->fd, .events = POLLIN},
                               {.fd = cancel_fd, .events = POLLIN}}; /* poll ignores negative descriptors */
        int ready = poll(fds, 2, (int)left);
        if (ready < 0 && errno != EINTR)
            return HEARD_END;
        if (ready == 0 && until <= now_ms())
            return HEARD_NOTHING;
        if (ready > 0 && fds[1].revents != 0)
            return HEARD_CANCEL;
        if (ready > 0 && fds[0].revents != 0 && redisBufferRead(listener->context) != REDIS_OK)
            return HEARD_END;
    }
}

bool listener_check(struct listener *listener)
{
    struct signals before;
    int done = 0;
    if (listener->pinged || redisAppendCommand(listener->context, "PING") != REDIS_OK)
        return false;
    block_sigpipe(&before);
    while (!done && redisBufferWrite(listener->context, &done) == REDIS_OK)
        continue;
    unblock_sigpipe(&before);
    listener->pinged = done;
    return done;
}
