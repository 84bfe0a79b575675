#include "message.h"

#include <ctype.h>
#include <string.h>

#include <jansson.h>

enum { MAX_MESSAGE = 1048576 };

bool is_utf8(const char *text, size_t size)
{
    json_t *string = json_stringn(text, size);
    json_decref(string);
    return string != NULL;
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

bool message_read(const char *text, size_t size, const char *name, const char *id, int64_t *token,
                  int64_t *lease_end)
{
    if (size > MAX_MESSAGE || !is_utf8(text, size))
        return false;
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
