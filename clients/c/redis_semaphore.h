/* A thin client of redis-semaphore. README.md describes its use. */
#ifndef REDIS_SEMAPHORE_H
#define REDIS_SEMAPHORE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum rsem_status {
    RSEM_OK,
    RSEM_NO_PERMIT, /* rsem_try_acquire: no permit is free, or other requests wait */
    RSEM_TIMEOUT,   /* rsem_acquire: no permit was granted in time */
    RSEM_CANCELLED, /* rsem_acquire: cancel_fd became readable */
    RSEM_LOST,      /* rsem_release: the permit was already lost */
    RSEM_ERROR      /* rsem_error returns the cause */
};

struct rsem;

struct rsem_permit {
    char id[160];
    int64_t fencing_token;
    int64_t end;       /* for rsem_expires_in */
    bool release_sent; /* for rsem_release */
    const struct rsem *sem; /* the semaphore that granted it */
};

/* Creates a semaphore on the server of this URL. A lease is 1 to 604800000 ms. Returns NULL if memory is
 * exhausted. The first call returns other errors, such as a wrong URL. Only one thread at a time may use a
 * semaphore. A forked child connects again, and must not release permits of its parent. */
struct rsem *rsem_new(const char *url, const char *name, uint32_t limit, int64_t lease_ms);
void rsem_free(struct rsem *sem);

/* Returns the limit that was declared before the first call, if it differed; otherwise -1. */
int64_t rsem_declared_before(const struct rsem *sem);

/* Acquires a permit without waiting. */
enum rsem_status rsem_try_acquire(struct rsem *sem, struct rsem_permit *permit);

/* Waits for a permit, for at most timeout_ms (negative: no bound). The wait also ends when cancel_fd (negative:
 * none) becomes readable, for example a pipe that a signal handler writes to. If the server is unavailable,
 * the request is released before the call returns. That takes 2 s if the server refuses connections, and up to
 * 10 s otherwise. */
enum rsem_status rsem_acquire(struct rsem *sem, int64_t timeout_ms, int cancel_fd,
                              struct rsem_permit *permit);

/* Releases a permit of the same `sem`. Retries for 30 s, or until the lease has expired. After RSEM_ERROR, the
 * call may be repeated. */
enum rsem_status rsem_release(struct rsem *sem, struct rsem_permit *permit);

/* Returns for how many ms the permit is certainly held. 0: it may be lost. */
int64_t rsem_expires_in(const struct rsem_permit *permit);

/* Returns the cause of the last RSEM_ERROR, or the last failure before a timeout or a cancellation. */
const char *rsem_error(const struct rsem *sem);

#ifdef __cplusplus
}
#endif

#endif
