/* turns NAME LIMIT COUNT HOLD_MS LEASE_MS [TIMEOUT_MS]: acquires COUNT permits, one after another, and prints the
 * times. Tests run this program together with those of other languages. */
#include <errno.h>
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
    static const char *const why[] = {"", "no permit", "too late", "ended by a signal", "lost", ""};
    fprintf(stderr, "turns: %s: %s %s\n", what, why[status], rsem_error(sem));
    rsem_free(sem);
    return 1;
}

static int64_t number(const char *text, int64_t from, int64_t to)
{
    char *end;
    errno = 0;
    int64_t found = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || found < from || found > to) {
        fprintf(stderr, "turns: not a number from %" PRId64 " to %" PRId64 ": %s\n", from, to, text);
        exit(2);
    }
    return found;
}

int main(int argc, char **argv)
{
    if ((argc != 6 && argc != 7) || pipe(ended) != 0) {
        fprintf(stderr, "usage: turns NAME LIMIT COUNT HOLD_MS LEASE_MS [TIMEOUT_MS]\n");
        return 2;
    }
    uint32_t limit = (uint32_t)number(argv[2], 0, UINT32_MAX);
    int64_t count = number(argv[3], 0, INT64_MAX);
    int hold_ms = (int)number(argv[4], 0, INT32_MAX);
    int64_t lease_ms = number(argv[5], INT64_MIN, INT64_MAX);
    int64_t timeout_ms = argc == 7 ? number(argv[6], INT64_MIN, INT64_MAX) : -1;
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    setvbuf(stdout, NULL, _IOLBF, 0);

    const char *url = getenv("REDIS_URL");
    struct rsem *sem = rsem_new(url != NULL ? url : "redis://127.0.0.1", argv[1],
                                limit, lease_ms);
    if (sem == NULL)
        return 1;
    for (int64_t turn = 0; turn < count; turn++) {
        struct rsem_permit permit;
        struct pollfd signal_came = {.fd = ended[0], .events = POLLIN};
        enum rsem_status status = rsem_acquire(sem, timeout_ms, ended[0], &permit);
        if (status != RSEM_OK)
            return fail(sem, "acquire", status);
        if (rsem_declared_before(sem) >= 0)
            fprintf(stderr, "turns: the limit replaces another declared limit\n");
        printf("held %" PRId64 " %" PRId64 "\n", permit.fencing_token, microseconds());
        int was_ended = poll(&signal_came, 1, hold_ms) != 0;
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
