/* Moves the wall clock of a server under test, into which this library is preloaded. The file named
 * by TEST_CLOCK contains the microsecond at which the clock is frozen (0: it runs), and by how many
 * microseconds a running clock is ahead. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *clock_file(void) {
    static volatile int64_t *mapped;
    static const int64_t none[2];
    if (!mapped) {
        const char *path = getenv("TEST_CLOCK");
        int file = path ? open(path, O_RDONLY) : -1;
        void *memory = file < 0 ? MAP_FAILED : mmap(0, 16, PROT_READ, MAP_SHARED, file, 0);
        mapped = memory == MAP_FAILED ? (volatile int64_t *)none : memory;
        if (file >= 0) close(file);
    }
    return mapped;
}

static int64_t moved(int64_t us) {
    volatile int64_t *file = clock_file();
    int64_t still = file[0];
    return still ? still : us + file[1];
}

/* Valkey reads the wall clock once per millisecond, and then adds the time of the monotonic clock.
 * While the wall clock is frozen, the monotonic clock leaps ahead by 2 ms at each reading, so that
 * Valkey reads the wall clock each time. */
static int64_t leapt_us(void) {
    static int64_t leapt;
    if (*clock_file()) {
        __atomic_add_fetch(&leapt, 2000, __ATOMIC_RELAXED);
    }
    return __atomic_load_n(&leapt, __ATOMIC_RELAXED);
}

int clock_gettime(clockid_t id, struct timespec *ts) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, ts);
    if (result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        int64_t us = moved((int64_t)ts->tv_sec * 1000000 + ts->tv_nsec / 1000);
        ts->tv_sec = us / 1000000;
        ts->tv_nsec = us % 1000000 * 1000;
    }
    if (result == 0 && id == CLOCK_MONOTONIC) {
        int64_t ns = ts->tv_nsec + leapt_us() * 1000;
        ts->tv_sec += ns / 1000000000;
        ts->tv_nsec = ns % 1000000000;
    }
    return result;
}

/* The processor's ticks cannot be moved. Without /proc/cpuinfo, a server does not use the
 * ticks, because the server cannot find out their rate. */
static FILE *open_unless_cpuinfo(const char *name, const char *path, const char *mode) {
    if (strcmp(path, "/proc/cpuinfo") == 0) {
        errno = ENOENT;
        return NULL;
    }
    FILE *(*real)(const char *, const char *) = dlsym(RTLD_NEXT, name);
    return real(path, mode);
}

FILE *fopen(const char *restrict path, const char *restrict mode) {
    return open_unless_cpuinfo("fopen", path, mode);
}

FILE *fopen64(const char *restrict path, const char *restrict mode) {
    return open_unless_cpuinfo("fopen64", path, mode);
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz) {
    (void)tz;
    struct timespec ts;
    int result = clock_gettime(CLOCK_REALTIME, &ts);
    tv->tv_sec = ts.tv_sec;
    tv->tv_usec = ts.tv_nsec / 1000;
    return result;
}

time_t time(time_t *out) {
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    if (out) *out = ts.tv_sec;
    return ts.tv_sec;
}
