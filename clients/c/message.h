/* The messages that wake. */
#ifndef MESSAGE_H
#define MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_WEIGHT INT64_C(4294967295)
enum { MAX_LEASE_MS = 604800000 };

struct message_line {
    const char *id;
    size_t size; /* of the ID */
    int64_t token, end;
};

/* Where the lines of a message about that semaphore begin. At its end, if it has none, or is nothing
 * that a script sends. */
const char *message_lines(const char *text, size_t size, const char *name);

/* Reads a line, and tells where the next one begins, or the end. NULL: it is none. */
const char *message_next(const char *at, const char *end, struct message_line *line);

bool is_utf8(const char *text, size_t size);

#endif
