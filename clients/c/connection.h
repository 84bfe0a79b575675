/* The two connections of the client: for calls, and for wake-up messages. */
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
    pid_t pid;             /* who has connected */
    unsigned made;         /* how often it has connected, or tried to */
    char error[512]; /* of the server, then it begins with a word in upper case, or of this client */
};

/* Connects with the first command. False: no memory. */
bool connection_init(struct connection *connection, const char *url);
void connection_end(struct connection *connection);

/* The next command connects anew. */
void connection_close(struct connection *connection);

/* The reply, which may be an error of the server. NULL: there is no answer, and `error` tells why. */
redisReply *connection_command(struct connection *connection, int count, const char *words[]);

/* The same with a script. It is called by its SHA-1; a server that has forgotten it gets it again.
 * Words are the number of keys, keys and arguments. */
redisReply *connection_script(struct connection *connection, const char *script, int count,
                              const char *words[]);

/* Whether a call that met `error` may go well when it is repeated. */
bool connection_may_pass(const struct connection *connection);

struct listener {
    redisContext *context; /* NULL: does not listen */
    unsigned made;         /* that of the connection for calls, when this one began */
    bool pinged;
};

enum heard { HEARD_MESSAGE, HEARD_NOTHING, HEARD_CANCEL, HEARD_END };

/* True when the server has confirmed it; false with the cause in connection->error. The command is
 * SUBSCRIBE or SSUBSCRIBE. */
bool listener_start(struct listener *listener, struct connection *connection, const char *command,
                    const char *channel);
void listener_end(struct listener *listener);

/* The next message, within the time of now_ms(); its text is message->element[2]. */
enum heard listener_next(struct listener *listener, int64_t until, int cancel_fd,
                         redisReply **message);

/* To be called from time to time: a connection that went silent looks like a quiet one. False when
 * it did. */
bool listener_check(struct listener *listener);

/* The time in ms of a clock that nobody sets back or forth. */
int64_t now_ms(void);

#endif
