/* Decides in a process under test whether the host name "redis.test" is known: it is as long as the
 * file is there that TEST_NAME names. To find out that it is not takes a while. Preloaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int getaddrinfo(const char *restrict node, const char *restrict service,
                const struct addrinfo *restrict hints, struct addrinfo **restrict found) {
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) =
        dlsym(RTLD_NEXT, "getaddrinfo");
    if (node && strcmp(node, "redis.test") == 0) {
        const char *path = getenv("TEST_NAME");
        if (!path || access(path, F_OK) != 0) {
            usleep(1200000);
            return EAI_NONAME;
        }
        node = "127.0.0.1";
    }
    return real(node, service, hints, found);
}
