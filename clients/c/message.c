#include "message.h"

#include <ctype.h>
#include <string.h>

#include <jansson.h>

enum { MAX_MESSAGE = 1048576 };
#define ALPHANUMERIC "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

bool is_utf8(const char *text, size_t size)
{
    json_t *string = json_stringn(text, size);
    json_decref(string);
    return string != NULL;
}

/* Returns a number of at most 16 digits and below 2^53, or -1. */
static int64_t read_number(const char **at, const char *end)
{
    int64_t number = 0;
    const char *begin = *at;
    while (*at < end && isdigit((unsigned char)**at) && *at - begin < 16)
        number = 10 * number + (*(*at)++ - '0');
    return *at > begin && number < INT64_C(1) << 53 ? number : -1;
}

/* Returns a positive number after a colon, or -1. */
static int64_t read_part(const char **at, const char *end)
{
    if (end - *at < 2 || (*at)[0] != ':' || (*at)[1] == '0')
        return -1;
    ++*at;
    return read_number(at, end);
}

/* Returns whether the text is an ID. `end` is the space after it. */
static bool is_word(const char *at, const char *end)
{
    if (end - at < 2 || memchr("PSN", at[0], 3) == NULL || at[1] != ':')
        return false;
    at += 2;
    size_t client = strspn(at, ALPHANUMERIC "._-");
    at += client;
    int64_t weight = read_part(&at, end);
    int64_t lease = read_part(&at, end);
    if (*at++ != ':')
        return false;
    size_t nonce = strspn(at, ALPHANUMERIC "_-");
    return client >= 1 && client <= 100 && weight >= 1 && weight <= MAX_WEIGHT && lease >= 1 &&
           lease <= MAX_LEASE_MS && nonce >= 16 && nonce <= 64 && at + nonce == end;
}

const char *message_next(const char *at, const char *end, struct message_line *line)
{
    const char *blank = at < end && *at == '\n' ? memchr(at, ' ', (size_t)(end - at)) : NULL;
    if (blank == NULL || !is_word(at + 1, blank))
        return NULL;
    *line = (struct message_line){.id = at + 1, .size = (size_t)(blank - at) - 1};
    at = blank + 1;
    line->token = read_number(&at, end);
    if (line->token < 0 || at == end || *at++ != ' ')
        return NULL;
    line->end = read_number(&at, end);
    return line->end < 0 ? NULL : at;
}

const char *message_lines(const char *text, size_t size, const char *name)
{
    struct message_line line;
    const char *end = text + size;
    if (size > MAX_MESSAGE || !is_utf8(text, size) || size < strlen(name) ||
        memcmp(text, name, strlen(name)) != 0)
        return end;
    text += strlen(name);
    for (const char *at = text; at != end;)
        if ((at = message_next(at, end, &line)) == NULL)
            return end;
    return text;
}
