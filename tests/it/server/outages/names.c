/* Resolves the host name "redis.test" in a process under test, into which this library is preloaded.
 * The name exists while the file named by TEST_NAME exists. A failed look-up takes some time. */
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
