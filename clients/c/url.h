/* The URL of a server. */
#ifndef URL_H
#define URL_H

#include <stdbool.h>

struct redis_url {
    char *text;                         /* the other texts are parts of it */
    const char *user, *password, *host; /* decoded; "": none */
    int port, database;
};

/* Parses redis://[[user]:password@]host[:port][/database]. Returns false if the URL is wrong, or if memory is
 * exhausted. Call url_free in any case. */
bool url_parse(struct redis_url *url, const char *text);
void url_free(struct redis_url *url);

#endif
