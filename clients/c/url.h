/* The URL of a server. */
#ifndef URL_H
#define URL_H

#include <stdbool.h>

struct redis_url {
    char *text;                         /* what the others point into */
    const char *user, *password, *host; /* decoded; "": none */
    int port, database;
};

/* False: it is not redis://[[user]:password@]host[:port][/database], or there is no memory. To be
 * freed in any case. */
bool url_parse(struct redis_url *url, const char *text);
void url_free(struct redis_url *url);

#endif
