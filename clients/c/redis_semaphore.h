/* A thin client of redis-semaphore. README.md tells how to use it. */
#ifndef REDIS_SEMAPHORE_H
#define REDIS_SEMAPHORE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum rsem_status {
    RSEM_OK,
    RSEM_REFUSED,   /* a try: no permit is free, or somebody else waits */
    RSEM_TIMEOUT,   /* an acquire: no permit came in time */
    RSEM_CANCELLED, /* an acquire: cancel_fd became readable */
    RSEM_LOST,      /* a release: the permit had been lost before */
    RSEM_ERROR      /* rsem_error tells which */
};

struct rsem;

struct rsem_permit {
    char id[160]; /* its name in Redis */
    int64_t token;
    int64_t end;       /* for rsem_left */
    bool release_sent; /* for rsem_release */
    const struct rsem *sem; /* the one that was asked */
};

/* A semaphore on the server of that URL, with leases of 1 to 604800000 ms. NULL: there is no memory
 * left. Other errors, a wrong URL or lease for one, come from the first call. Not to be used by two
 * threads at a time. A forked child connects anew, and must not release what its parent holds. */
struct rsem *rsem_new(const char *url, const char *name, uint32_t limit, int64_t lease_ms);
void rsem_free(struct rsem *sem);

/* The limit that others had declared before, when that was another one; else -1. */
int64_t rsem_declared_before(const struct rsem *sem);

enum rsem_status rsem_try(struct rsem *sem, struct rsem_permit *permit);

/* Waits for a permit, for timeout_ms if that is not negative, and until cancel_fd is readable if
 * that is not negative (a pipe that a signal handler writes to, for instance). When the server is
 * away both hold as well, but giving back what was asked for takes 2 s then, and up to 10 s if the
 * server does not even refuse. */
enum rsem_status rsem_acquire(struct rsem *sem, int64_t timeout_ms, int cancel_fd,
                              struct rsem_permit *permit);

/* Of a permit of the same `sem`. Repeated for 30 s, but not when the lease has ended. After RSEM_ERROR
 * it may be called again. */
enum rsem_status rsem_release(struct rsem *sem, struct rsem_permit *permit);

/* For how many ms the permit is held for sure. 0: it may be lost. */
int64_t rsem_left(const struct rsem_permit *permit);

/* What the last RSEM_ERROR was about; or what the last call met before it was too late. */
const char *rsem_error(const struct rsem *sem);

#ifdef __cplusplus
}
#endif

#endif
