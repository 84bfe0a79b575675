/* Moves the wall clock of a server under test. Preloaded into it; reads two numbers from the file
 * named by TEST_CLOCK, in microseconds: an offset, and the time to stand still at (0: run on). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
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
    return file[1] ? file[1] : us + file[0];
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
    return result;
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
