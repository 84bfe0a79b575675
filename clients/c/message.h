/* Grant messages. */
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

/* Returns the position of the lines of a message about this semaphore. Returns its end if there are none, or if no
 * script sent the message. */
const char *message_lines(const char *text, size_t size, const char *name);

/* Reads a line. Returns the position of the next line, or the end. NULL: not a valid line. */
const char *message_next(const char *at, const char *end, struct message_line *line);

bool is_utf8(const char *text, size_t size);

#endif
