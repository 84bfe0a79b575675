#include "url.h"

#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const char SCHEME[] = "redis://";

/* Decodes %41 and the like in place. Returns false for a % without two digits, and for a zero byte. */
static bool decode(char *text)
{
    char *to = text;
    for (const char *from = text; *from != '\0'; from++) {
        if (*from != '%') {
            *to++ = *from;
            continue;
        }
        char digits[3] = {0};
        for (int i = 0; i < 2; i++) {
            if (!isxdigit((unsigned char)*++from))
                return false;
            digits[i] = *from;
        }
        *to = (char)strtol(digits, NULL, 16);
        if (*to++ == '\0')
            return false;
    }
    *to = '\0';
    return true;
}

static bool read_number(const char *text, long from, long to, int *number)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 10 || text[digits] != '\0')
        return false;
    long found = strtol(text, NULL, 10);
    *number = (int)found;
    return found >= from && found <= to;
}

/* Cuts a text in two, and returns the second part. */
static char *cut(char *at)
{
    *at = '\0';
    return at + 1;
}

bool url_parse(struct redis_url *url, const char *text)
{
    *url = (struct redis_url){.text = strdup(text), .user = "", .password = "", .port = 6379};
    if (url->text == NULL || strncmp(text, SCHEME, strlen(SCHEME)) != 0)
        return false;
    char *host = url->text + strlen(SCHEME), *at = strrchr(host, '@');
    if (at != NULL) {
        char *user = host, *colon;
        host = cut(at);
        colon = strchr(user, ':');
        if (colon == NULL)
            return false;
        char *password = cut(colon);
        if (!decode(user) || !decode(password))
            return false;
        url->user = user;
        url->password = password;
    }
    char *path = strchr(host, '/');
    if (path != NULL && *(path = cut(path)) != '\0' &&
        !read_number(path, 0, INT_MAX, &url->database))
        return false;
    char *end = host + strcspn(host, ":");
    if (*host == '[') { /* IPv6 */
        char *bracket = strchr(++host, ']');
        if (bracket == NULL)
            return false;
        end = cut(bracket);
    }
    url->host = host;
    if (*end == ':' && !read_number(cut(end), 1, 65535, &url->port))
        return false;
    return *host != '\0' && *end == '\0';
}

void url_free(struct redis_url *url)
{
    free(url->text);
    *url = (struct redis_url){0};
}
