/* turns NAME LIMIT COUNT HOLD_MS LEASE_MS: takes so many permits, one after the other, and tells
 * when. A test of processes in several languages runs this beside the others. */
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "redis_semaphore.h"

static int ended[2]; /* a pipe: readable after a signal */

static void on_signal(int number)
{
    unsigned char byte = (unsigned char)number;
    if (write(ended[1], &byte, 1) != 1)
        _exit(1);
}

static int64_t microseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

static int fail(struct rsem *sem, const char *what, enum rsem_status status)
{
    static const char *const why[] = {"", "refused", "too late", "ended by a signal", "lost"};
    fprintf(stderr, "turns: %s: %s\n", what, status == RSEM_ERROR ? rsem_error(sem) : why[status]);
    rsem_free(sem);
    return 1;
}

int main(int argc, char **argv)
{
    if (argc != 6 || pipe(ended) != 0) {
        fprintf(stderr, "usage: turns NAME LIMIT COUNT HOLD_MS LEASE_MS\n");
        return 2;
    }
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    setvbuf(stdout, NULL, _IOLBF, 0);

    const char *url = getenv("REDIS_URL");
    struct rsem *sem = rsem_new(url != NULL ? url : "redis://127.0.0.1", argv[1],
                                (uint32_t)strtoul(argv[2], NULL, 10), strtoll(argv[5], NULL, 10));
    if (sem == NULL)
        return 1;
    for (int turn = 0; turn < atoi(argv[3]); turn++) {
        struct rsem_permit permit;
        struct pollfd signal_came = {.fd = ended[0], .events = POLLIN};
        enum rsem_status status = rsem_acquire(sem, -1, ended[0], &permit);
        if (status != RSEM_OK)
            return fail(sem, "acquire", status);
        printf("held %" PRId64 " %" PRId64 "\n", permit.token, microseconds());
        int was_ended = poll(&signal_came, 1, atoi(argv[4])) != 0;
        printf("released %" PRId64 "\n", microseconds());
        status = rsem_release(sem, &permit);
        if (status != RSEM_OK)
            return fail(sem, "release", status);
        if (was_ended)
            return fail(sem, "hold", RSEM_CANCELLED);
    }
    rsem_free(sem);
    return 0;
}
