/* The messages that wake. */
#ifndef MESSAGE_H
#define MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether the message tells of a request, and what. One that no script sends tells of none. */
bool message_read(const char *text, size_t size, const char *name, const char *id, int64_t *token,
                  int64_t *lease_end);

bool is_utf8(const char *text, size_t size);

#endif
