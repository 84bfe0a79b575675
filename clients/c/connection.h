/* The two connections of the client: for calls, and for grant messages. */
#ifndef CONNECTION_H
#define CONNECTION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <hiredis/hiredis.h>
#include <jansson.h>

enum { RESPONSE_MS = 2000 };

struct connection {
    char *url;
    json_t *manifest;
    redisContext *context; /* NULL: not connected */
    pid_t pid;             /* the process that connected */
    unsigned made;         /* the number of attempts to connect */
    char error[512]; /* an error of the server begins with a word in upper case, any other error does not */
};

/* Initializes a connection, which the first command opens. Returns false if memory is exhausted. */
bool connection_init(struct connection *connection, const char *url);
void connection_end(struct connection *connection);

/* Disconnects. The next command connects again. */
void connection_close(struct connection *connection);

/* Returns the reply, which may be an error of the server. NULL: no reply; `error` is the cause. */
redisReply *connection_command(struct connection *connection, int count, const char *words[]);

/* Calls a script by its SHA-1. If the server does not know the script, this sends its source. `words` are the
 * number of keys, the keys and the arguments. */
redisReply *connection_script(struct connection *connection, const char *script, int count,
                              const char *words[]);

/* Returns whether a retry may succeed after `error`. */
bool connection_may_pass(const struct connection *connection);

struct listener {
    redisContext *context; /* NULL: not subscribed */
    unsigned made;         /* `made` of the other connection when this one began */
    bool pinged;
};

enum heard { HEARD_MESSAGE, HEARD_NOTHING, HEARD_CANCEL, HEARD_END };

/* Subscribes with `command`, SUBSCRIBE or SSUBSCRIBE. Returns true when the server has confirmed it, or false with
 * the cause in connection->error. */
bool listener_start(struct listener *listener, struct connection *connection, const char *command,
                    const char *channel);
void listener_end(struct listener *listener);

/* Waits for a message until this time of now_ms(). Its text is message->element[2]. */
enum heard listener_next(struct listener *listener, int64_t until, int cancel_fd,
                         redisReply **message);

/* Detects a dead connection, which otherwise looks like a quiet one. Call it regularly. Returns false if the
 * connection is dead. */
bool listener_check(struct listener *listener);

/* Returns the time of the monotonic clock in ms. */
int64_t now_ms(void);

#endif
